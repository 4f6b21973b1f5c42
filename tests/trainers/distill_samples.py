"""Samples with distillation targets for the random model of `tests.reference.tiny_model`."""

from __future__ import annotations

import random

from clawrl_gym.core.types import DistillTarget, Sample
from tests.reference.tiny_model import VOCAB


def draw_ids(count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(VOCAB) for _ in range(count)]


def one_turn(
    reply: list[int],
    prompts: tuple[list[int], ...] = (),
    *,
    prompt: list[int] | None = None,
    distill: float = 1.0,
    advantage: float = 0.0,
    id: int | None = None,
) -> Sample:
    """A prompt and a reply; a distillation target on the reply where there are prompts for a
    teacher."""
    prompt = draw_ids(7, 99) if prompt is None else prompt
    before, after = [0.0] * len(prompt), len(reply)
    targets = (DistillTarget(len(prompt), after, prompts),) if prompts else ()
    return Sample(
        session_id=f"s{id}",
        group_id=0,
        ids_T=prompt + reply,
        mask_T=[False] * len(prompt) + [True] * after,
        logprobs_T=before + [-3.0] * after,
        versions_T=[-1] * len(prompt) + [0] * after,
        advantages_T=before + [advantage] * after,
        reward=advantage,
        turn_id=id,
        distill_T=before + [distill] * after if targets else [],
        distill_targets=targets,
        id=id,
    )


def two_turns(id: int | None = None, *, same: bool = False) -> Sample:
    """Prompt, reply, tool result, reply: a distillation target on each; `same` asks under the own
    prompts."""
    ids = draw_ids(40, 5)
    spans = ((6, 9), (25, 15))
    inside = [any(start <= i < start + length for start, length in spans) for i in range(40)]
    hint = [] if same else draw_ids(4, 6)
    return Sample(
        session_id=f"s{id}",
        group_id=0,
        ids_T=ids,
        mask_T=inside,
        logprobs_T=[-4.0 if i else 0.0 for i in inside],
        versions_T=[0 if i else -1 for i in inside],
        advantages_T=[0.0] * 40,
        reward=0.0,
        distill_T=[1.0 if i else 0.0 for i in inside],
        distill_targets=tuple(
            DistillTarget(start, length, (ids[:start] + hint,)) for start, length in spans
        ),
        id=id,
    )
