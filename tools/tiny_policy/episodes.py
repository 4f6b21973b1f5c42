"""Conversations of the tiny policy: episodes of the environment, many side by side."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clawrl_gym.core.types import FunctionCall, Message
from clawrl_gym.envs.conversation.agent import ConversationAgent
from clawrl_gym.envs.conversation.env import ConversationEnv
from tools.tiny_policy.conversations import render
from tools.tiny_policy.sampling import sample
from tools.tiny_policy.tokenizer import END

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

MAX_REPLY_TOKENS = 96


@dataclass(slots=True)
class _Episode:
    """One conversation while it is held."""

    env: ConversationEnv
    observations: list[str]
    info: dict[str, Any]
    replies: list[Message] = field(default_factory=list)
    calls: list[bool] = field(default_factory=list)
    """Whether all calls were carried out, for each reply that called tools."""
    reward: float = 0.0
    over: bool = False


def hold_conversations(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    persona: str,
    *,
    seed: int,
    tasks: int,
    temperature: float = 0.0,
) -> dict[str, float]:
    """Held-out conversations with one persona, as means.

    `satisfied` is the environment's reward; `correct` and `personalization` are those of the first
    thing said; `calls` is the share of replies with tool calls that were carried out.
    """
    agent = ConversationAgent()
    episodes = [_started(persona, seed, number) for number in range(tasks)]
    while waiting := [episode for episode in episodes if not episode.over]:
        prompts = [_prompt(tokenizer, agent, episode) for episode in waiting]
        replies = sample(model, prompts, temperature=temperature, max_tokens=MAX_REPLY_TOKENS)
        for episode, ids_T in zip(waiting, replies, strict=True):
            _step(agent, episode, reply_of(tokenizer.decode(ids_T)))
    calls = [succeeded for episode in episodes for succeeded in episode.calls]
    return {
        "satisfied": _mean([episode.reward for episode in episodes]),
        "correct": _mean([float(episode.info["correct"]) for episode in episodes]),
        "personalization": _mean([episode.info["first_reply_score"] for episode in episodes]),
        "calls": _mean([float(succeeded) for succeeded in calls]),
    }


def reply_of(text: str) -> Message:
    """A sampled text as a message: a small stand-in for vLLM's hermes parser."""
    content, *bodies = text.removesuffix(END).split("<tool_call>")
    try:
        calls = [json.loads(body.split("</tool_call>")[0]) for body in bodies]
        functions: list[FunctionCall] = [
            {"name": call["name"], "arguments": call["arguments"]} for call in calls
        ]
    except (ValueError, TypeError, KeyError):
        return {"role": "assistant", "content": text.removesuffix(END)}
    message: Message = {"role": "assistant", "content": content.strip() or None}
    if functions:
        message["tool_calls"] = [
            {"id": f"call-{number}", "type": "function", "function": function}
            for number, function in enumerate(functions)
        ]
    return message


def _started(persona: str, seed: int, number: int) -> _Episode:
    env = ConversationEnv(persona=persona, wording="train")
    ids = env.task_ids("heldout")
    opening, info = env.reset(seed=seed + number, options={"task": ids[(seed + number) % len(ids)]})
    return _Episode(env, [opening], info)


def _prompt(
    tokenizer: PreTrainedTokenizerFast, agent: ConversationAgent, episode: _Episode
) -> list[int]:
    messages = agent.messages(episode.observations, episode.replies)
    text = render(tokenizer, messages, agent.tools(episode.info["tools"]) or None, ask=True)
    ids_T: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids_T


def _step(agent: ConversationAgent, episode: _Episode, reply: Message) -> None:
    action = agent.action(reply)
    text = getattr(action, "text", "")
    observation, reward, terminated, truncated, episode.info = episode.env.step(text)
    episode.observations.append(observation)
    episode.replies.append(reply)
    episode.reward += reward
    episode.over = terminated or truncated
    if reply.get("tool_calls"):
        episode.calls.append('"status": "error"' not in observation.replace("\\", ""))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
