"""How often the tiny policy writes the oracle's very commands: a quick proxy for solving tasks.

Executing is the real measure; a command that differs from the oracle's may solve the task too.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from clawrl_gym.policy.tiny.conversations import Conversation, Source, render
from clawrl_gym.policy.tiny.sampling import sample

MAX_REPLY_TOKENS = 128


def prompts_of(tokenizer: Any, conversation: Conversation) -> list[tuple[list[int], str]]:
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
    model: Any, tokenizer: Any, source: Source, *, seed: int, tasks: int, temperature: float = 0.0
) -> dict[str, float]:
    """Share of demonstrations whose every reply is reproduced: by family, and under `all`."""
    shown = list(itertools.islice(source.conversations(seed), tasks))
    asked = [prompts_of(tokenizer, conversation) for conversation in shown]
    replies = iter(
        sample(
            model,
            [ids_T for turns in asked for ids_T, _ in turns],
            temperature=temperature,
            max_tokens=MAX_REPLY_TOKENS,
        )
    )
    right: dict[str, list[bool]] = defaultdict(list)
    for conversation, turns in zip(shown, asked, strict=True):
        matches = [tokenizer.decode(next(replies)) == text for _, text in turns]
        right[conversation.family].append(all(matches))
        right["all"].append(all(matches))
    return {family: sum(hits) / len(hits) for family, hits in sorted(right.items())}
