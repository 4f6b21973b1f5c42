"""The teacher probe of a shipped small policy in plain torch, without an engine.

    PYTHONPATH=. python bench/teacher_probe.py [--model tiny_skills] [--persona student]
        [--wording heldout] [--tasks 120]

First replies at temperature 1 by the words behind the first message, as `python -m
clawrl_gym.teacher_probe` has vLLM sample them.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from clawrl_gym.comparison.teacher_probe import KINDS
from clawrl_gym.core.intervals import share_of
from clawrl_gym.core.types import Message
from clawrl_gym.envs.conversation.agent import ConversationAgent
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.inference.models.resolve import resolve_model
from tools.tiny_policy.conversations import render
from tools.tiny_policy.episodes import reply_of
from tools.tiny_policy.sampling import sample

MAX_TURNS = 3
"""Replies until the first thing is said: files are read before."""
MAX_REPLY_TOKENS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny_skills", help="whatever policy.model takes")
    parser.add_argument("--persona", default="student")
    parser.add_argument("--wording", default="heldout")
    parser.add_argument("--tasks", type=int, default=120)
    options = parser.parse_args()
    folder = resolve_model(options.model)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for kind, words in KINDS.items():
        torch.manual_seed(0)
        env = {"persona": options.persona, "wording": options.wording, "hint": kind}
        talks = [Talk(env, number) for number in range(options.tasks)]
        for _ in range(MAX_TURNS):
            waiting = [talk for talk in talks if not talk.has_said]
            prompts = [talk.prompt(tokenizer) for talk in waiting]
            replies = (
                sample(model, prompts, temperature=1.0, max_tokens=MAX_REPLY_TOKENS)
                if waiting
                else []
            )
            for talk, ids_T in zip(waiting, replies, strict=True):
                talk.hear(tokenizer.decode(ids_T))
        liked = share_of([talk.info["scores"]["liked"] == 1 for talk in talks])
        correct = share_of([bool(talk.info["correct"]) for talk in talks])
        print(
            f"{words}: liked {liked.value:.2f} ({liked.low:.2f} to {liked.high:.2f}), "
            f"correct {correct.value:.2f}, n = {liked.n}",
            flush=True,
        )


class Talk:
    """A held-out conversation up to the first thing said."""

    def __init__(self, options: dict[str, Any], number: int) -> None:
        self._env = ConversationEnv(**options)
        self._agent = ConversationAgent()
        task = self._env.task_ids("heldout")[number]
        opening, info = self._env.reset(seed=number, options={"task": task})
        self.info: Any = info
        self._observations = [opening]
        self._replies: list[Message] = []
        self.has_said = False

    def prompt(self, tokenizer: PreTrainedTokenizerFast) -> list[int]:
        """The ids that the next reply is sampled from."""
        messages = self._agent.messages(self._observations, self._replies)
        text = render(tokenizer, messages, self.info["tools"] or None, ask=True)
        ids_T: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids_T

    def hear(self, text: str) -> None:
        """Carry out a reply."""
        reply = reply_of(text)
        action = self._agent.action(reply)
        observation, _, _, _, self.info = self._env.step(getattr(action, "text", ""))
        self._observations.append(observation)
        self._replies.append(reply)
        self.has_said = not reply.get("tool_calls")


if __name__ == "__main__":
    main()
