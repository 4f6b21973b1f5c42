"""Share of the oracle's very commands that the tiny policy writes: a quick proxy for solving tasks.

Executing is the real measure; a command that differs from the oracle's may solve the task too.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from tools.tiny_policy.conversations import Conversation, Source, render
from tools.tiny_policy.sampling import sample

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

MAX_REPLY_TOKENS = 128
PROMPTS_AT_A_TIME = 64


def prompts_of(
    tokenizer: PreTrainedTokenizerFast, conversation: Conversation
) -> list[tuple[list[int], str]]:
    """Each imitated reply of a demonstration as (ids before it, its text)."""
    turns = []
    for place, message in enumerate(conversation.messages):
        if message["role"] == "assistant" and place not in conversation.unlearned:
            before, after = (
                render(tokenizer, conversation.messages[:upto], conversation.tools, ask=ask)
                for upto, ask in ((place, True), (place + 1, False))
            )
            ids_T = tokenizer(before, add_special_tokens=False)["input_ids"]
            turns.append((ids_T, after.removeprefix(before).removesuffix("\n")))
    return turns


def exact_match(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    source: Source,
    *,
    seed: int,
    tasks: int,
    temperature: float = 0.0,
) -> dict[str, float]:
    """Share of demonstrations whose every reply is reproduced: by family, and under `all`."""
    conversations = list(itertools.islice(source.conversations(seed), tasks))
    turns_by_conversation = [prompts_of(tokenizer, conversation) for conversation in conversations]
    prompts = [ids_T for turns in turns_by_conversation for ids_T, _ in turns]
    replies = iter(_in_parts(model, prompts, temperature))
    right: dict[str, list[bool]] = defaultdict(list)
    for conversation, turns in zip(conversations, turns_by_conversation, strict=True):
        matches = [tokenizer.decode(next(replies)) == text for _, text in turns]
        right[conversation.family].append(all(matches))
        right["all"].append(all(matches))
    return {family: sum(hits) / len(hits) for family, hits in sorted(right.items())}


def _in_parts(
    model: PreTrainedModel, prompts: list[list[int]], temperature: float
) -> list[list[int]]:
    """One reply per prompt; few at a time and of about the same length, which memory allows."""
    replies: list[list[int]] = [[] for _ in prompts]
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    for start in range(0, len(order), PROMPTS_AT_A_TIME):
        part = order[start : start + PROMPTS_AT_A_TIME]
        sampled = sample(
            model,
            [prompts[place] for place in part],
            temperature=temperature,
            max_tokens=MAX_REPLY_TOKENS,
        )
        for place, reply in zip(part, sampled, strict=True):
            replies[place] = reply
    return replies
