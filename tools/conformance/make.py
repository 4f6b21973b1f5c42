"""Makes the exchange files again: batches from fixed seeds, expectations from the reference.

PYTHONPATH=. python -m tools.conformance.make [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tools.conformance.exchange import CASES, FORMAT, Case, Episode, Sequence, Table, logprobs
from tools.conformance.reference import expected_of, filtered

VOCABULARY = 12
GRPO, DR_GRPO = "arXiv:2402.03300 (GRPO)", "arXiv:2503.20783 (Dr. GRPO)"
DAPO, GSPO, CISPO = (
    "arXiv:2503.14476 (DAPO)",
    "arXiv:2507.18071 (GSPO)",
    "arXiv:2506.13585 (CISPO)",
)
RLOO, DECOUPLED = "arXiv:2402.14740 (RLOO)", "arXiv:2110.00641 (decoupled PPO)"
TRUNCATED = "arXiv:1802.01561 (V-trace: truncated importance weights)"
ICEPOP, KEPT = "arXiv:2510.18855 (IcePop)", "arXiv:2512.02556 (DeepSeek-V3.2: keep sampling mask)"
PPO = "arXiv:1707.06347 (PPO)"
SAPO, DPPO = "arXiv:2511.20347 (SAPO)", "arXiv:2602.04879 (DPPO)"

PLAIN: dict[str, Any] = {
    "advantage": {"baseline": "mean", "std": "sample", "epsilon": 1e-6},
    "constant_groups": "drop",
    "surrogate": "ppo",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "importance_cap": None,
    "keep": None,
    "reduction": "token_mean",
    "constant_length": 1024,
    "kl": 0.0,
}


class Draw:
    """Tables and sequences from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.base = self.table(1.0)

    def table(self, spread: float, near: Table | None = None) -> Table:
        """Logits, rounded so that the file reads well."""
        noise = self._random.normal(0, spread, (VOCABULARY, VOCABULARY))
        table: Table = np.round(noise if near is None else near + noise, 3)
        return table

    def sequence(
        self,
        episode: int,
        tables: list[Table],
        lengths: tuple[int, int],
        versions: list[int],
        sampling: dict[str, float] | None = None,
    ) -> Sequence:
        """A prompt, and a reply whose tokens the versions sample in turn."""
        prompt, reply = lengths
        ids = [int(one) for one in self._random.integers(0, VOCABULARY, prompt)]
        stream = [versions[at * len(versions) // reply] for at in range(reply)]
        recorded_logprobs: list[float | None] = [None] * prompt
        for version in stream:
            row = tables[version][ids[-1]]
            kept = filtered(row, sampling or {})
            chances = np.exp(row[kept] - row[kept].max())
            ids.append(int(self._random.choice(kept, p=chances / chances.sum())))
            allowed: list[list[int] | None] = [None] * (len(ids) - 1)
            recorded_logprobs.append(logprobs(tables[version], ids, [*allowed, kept])[-1])
        return Sequence(
            episode=episode,
            ids=ids,
            sampled=[False] * prompt + [True] * reply,
            behaviour_logprobs=recorded_logprobs,
            versions=[-1] * prompt + stream,
            sampling=sampling or {},
            allowed=None,
        )


def batch(
    name: str,
    about: str,
    sources: list[str],
    settings: dict[str, Any],
    *,
    rewards: list[list[float | None]] | None = None,
    far: float = 0.3,
    seed: int = 1,
    reference: bool = False,
) -> Case:
    """Two groups of four episodes of very different lengths, one version, a policy that moved."""
    draw = Draw(seed)
    current, proximal = draw.table(far, draw.base), draw.table(far / 2, draw.base)
    groups = rewards or [[1.0, 0.0, 0.25, 1.0], [0.0, 2.0, 0.5, -1.0]]
    episodes = [Episode(at, reward) for at, group in enumerate(groups) for reward in group]
    lengths = [(2, 3), (2, 9), (3, 5), (3, 2), (4, 7), (4, 4), (2, 12), (2, 6)]
    sequences = [
        draw.sequence(at, [draw.base], lengths[at % len(lengths)], [0])
        for at in range(len(episodes))
    ]
    weights = {"current": current, "proximal": proximal}
    if reference:
        weights["reference"] = draw.table(0.3, draw.base)
    return Case(
        name, about, sources, {**PLAIN, **settings}, weights, episodes, sequences, [], [], {}
    )


def cases() -> Iterator[Case]:
    yield from _forms()
    yield from _left_out()
    yield from _of_other_policies()
    yield from _masked_sampling()
    yield _retokenised()


def _forms() -> Iterator[Case]:
    yield batch(
        "grpo",
        "GRPO as published: standardised rewards, clipped ratios, a KL term, the mean of each "
        "sequence's mean.",
        [GRPO],
        {"reduction": "sequence_mean", "kl": 0.04},
        reference=True,
    )
    yield batch(
        "token_mean",
        "The same batch as a mean over all tokens: long replies weigh more.",
        [GRPO, DAPO],
        {},
    )
    yield batch(
        "dr_grpo",
        "No standard deviation, and each sequence's sum over a constant length.",
        [DR_GRPO],
        {
            "advantage": {"baseline": "mean", "std": "none", "epsilon": 0.0},
            "reduction": "constant",
            "constant_length": 16,
        },
    )
    yield batch(
        "rloo",
        "The baseline is the mean of the other episodes of the group.",
        [RLOO],
        {"advantage": {"baseline": "leave_one_out", "std": "none", "epsilon": 0.0}},
    )
    yield batch(
        "dapo",
        "An upper bound above the lower one, a mean over tokens, groups without a difference left "
        "out.",
        [DAPO],
        {"clip_high": 0.28},
        rewards=[[1.0, 0.0, 0.25, 1.0], [0.5, 0.5, 0.5, 0.5], [0.0, 2.0, 0.5, -1.0]],
        far=0.5,
    )
    yield batch(
        "gspo",
        "One ratio for a whole sequence: the geometric mean of its tokens'.",
        [GSPO],
        {
            "surrogate": "gspo",
            "clip_low": 3e-3,
            "clip_high": 4e-3,
            "reduction": "sequence_mean",
        },
        far=0.02,
        seed=3,
    )
    yield batch(
        "cispo",
        "The ratio is cut from above and only weighs the log-prob: no token loses its gradient.",
        [CISPO],
        {"surrogate": "cispo", "clip_low": 1.0, "clip_high": 0.5},
        far=0.6,
    )
    yield batch(
        "sapo",
        "The gradient fades as the ratio leaves 1, faster where the advantage is below 0; the mean "
        "of each sequence's mean.",
        [SAPO],
        {"surrogate": "sapo", "tau_pos": 1.0, "tau_neg": 1.05, "reduction": "sequence_mean"},
        far=0.6,
    )
    for divergence, threshold in (("tv", 0.15), ("kl", 0.05)):
        yield batch(
            f"dppo_{divergence}",
            "Ratios to the policy that sampled. A token is blocked where its probability is "
            f"further from that policy's than allowed ({divergence}) and its term would push it "
            "further.",
            [DPPO],
            {
                "surrogate": "dppo",
                "divergence": divergence,
                "threshold": threshold,
                "ratio_cap": None,
            },
            far=0.8,
        )


def _left_out() -> Iterator[Case]:
    yield batch(
        "environment_failure",
        "Two environments failed: their episodes have no reward, are not in their group's mean, "
        "and their tokens are not in the loss's.",
        [GRPO],
        {},
        rewards=[[1.0, None, 0.25, 1.0], [None, 2.0, 0.5, -1.0]],
    )
    constant = [[1.0, 0.0, 0.25, 1.0], [0.5, 0.5, 0.5, 0.5]]
    yield batch(
        "constant_group_dropped",
        "A group of equal rewards teaches nothing: its tokens are not in the mean either.",
        [DAPO],
        {},
        rewards=[list(group) for group in constant],
    )
    yield batch(
        "constant_group_kept",
        "The same group with advantages of 0, whose tokens stay in the mean over tokens.",
        [GRPO],
        {"constant_groups": "keep"},
        rewards=[list(group) for group in constant],
    )


def _of_other_policies() -> Iterator[Case]:
    """Samples of older weights: the proximal policy is the current one before its update."""
    draw = Draw(5)
    tables = [draw.base]
    for _ in range(3):
        tables.append(draw.table(0.4, tables[-1]))
    current = draw.table(0.4, tables[-1])
    rewards = [1.0, 0.0, 0.25, 1.0]
    versions = [[0, 1, 2, 3], [3], [1, 2], [2, 3]]
    lengths = [(2, 12), (2, 5), (3, 8), (3, 7)]
    sequences = [draw.sequence(at, tables, lengths[at], versions[at]) for at in range(len(rewards))]
    episodes = [Episode(0, reward) for reward in rewards]
    weights = {"current": current}
    weights |= {f"behaviour/{at}": table for at, table in enumerate(tables)}
    old = {**PLAIN, "importance_cap": 2.0}
    yield Case(
        "four_versions",
        "Weights were published while sequences were sampled: four versions within one of them. "
        "Each token's weight is against the version that sampled it.",
        [DECOUPLED, TRUNCATED],
        old, weights, episodes, sequences, [], [], {},
    )  # fmt: skip
    yield Case(
        "truncated_importance",
        "The same batch with a low bound of the importance weights, which many tokens meet.",
        [TRUNCATED],
        {**old, "importance_cap": 1.05}, weights, episodes, sequences, [], [], {},
    )  # fmt: skip
    keep = {"token": [0.6, 1.6], "sequence": [0.8, 1.2]}
    yield Case(
        "masked_importance",
        "The same batch without tokens and sequences whose importance weights (of a sequence: "
        "their geometric mean) are outside of bounds; they stay in the mean's denominator.",
        [ICEPOP],
        {**old, "keep": keep}, weights, episodes, sequences, [], [], {},
    )  # fmt: skip


def _masked_sampling() -> Iterator[Case]:
    draw = Draw(8)
    filters: list[dict[str, float]] = [{"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.3}, {}]
    sequences = [
        draw.sequence(at, [draw.base], (2, 6), [0], sampling) for at, sampling in enumerate(filters)
    ]
    episodes = [Episode(0, reward) for reward in (1.0, 0.0, 0.25, 1.0)]
    moved = draw.table(0.3, draw.base)
    yield Case(
        "masked_sampling",
        "Replies sampled by top_k, top_p, min_p and from everything. What is recorded is the "
        "log-prob after the filter: the importance weight is then at most the share of "
        "probability that the filter kept, where the policy has not moved.",
        [TRUNCATED],
        {**PLAIN, "importance_cap": 2.0},
        {"current": moved, "behaviour/0": draw.base},
        episodes, sequences, [], [], {},
    )  # fmt: skip
    kept = [
        replace(
            one,
            allowed=[
                filtered(draw.base[one.ids[at - 1]], one.sampling) if sampled else None
                for at, sampled in enumerate(one.sampled)
            ],
        )
        for one in sequences
    ]
    yield Case(
        "kept_sampling_mask",
        "The same replies, and the learner's log-probs are among the ids that the filter left.",
        [KEPT],
        {**PLAIN, "importance_cap": 2.0},
        {"current": moved, "behaviour/0": draw.base},
        episodes, kept, [], [], {},
    )  # fmt: skip


def _retokenised() -> Case:
    """A reply that its text encodes otherwise: `a b c` was sampled, and `abc` is one token."""
    draw = Draw(13)
    vocabulary = ["<s>", "</s>", "a", "b", "c", "ab", "bc", "abc", " ", "d", "cd", "?"]
    first, second = [2, 3, 4, 1], [10, 1]
    turns = [
        {"episode": 0, "prompt": [0, 9], "sampled": first},
        {"episode": 0, "prompt": [0, 9, 7, 1, 11], "sampled": second},
        {"episode": 1, "prompt": [0, 9], "sampled": [7, 1]},
        {"episode": 1, "prompt": [0, 9, 7, 1, 11], "sampled": [9, 1]},
    ]
    apart = [([0, 9], first), ([0, 9, 7, 1, 11], second)]
    sequences = [_replayed(draw.base, 0, [part]) for part in apart]
    sequences.append(_replayed(draw.base, 1, [([0, 9], [7, 1]), ([11], [9, 1])]))
    return Case(
        "retokenisation",
        "The second request of episode 0 holds its first reply in other ids than were sampled. "
        "The ids that were sampled are trained on, each once: the episode is two sequences with "
        "one advantage. Episode 1 has no such drift and is one sequence.",
        [PPO],
        {**PLAIN, "importance_cap": 2.0},
        {"current": draw.table(0.3, draw.base), "behaviour/0": draw.base},
        [Episode(0, 1.0), Episode(0, 0.0)],
        sequences,
        turns,
        vocabulary,
        {},
    )


def _replayed(table: Table, episode: int, parts: list[tuple[list[int], list[int]]]) -> Sequence:
    """Observed and sampled ids in turn, as one sequence."""
    ids = [one for observed, sampled in parts for one in (*observed, *sampled)]
    mask = [
        own
        for observed, sampled in parts
        for own in [False] * len(observed) + [True] * len(sampled)
    ]
    own = logprobs(table, ids)
    return Sequence(
        episode=episode,
        ids=ids,
        sampled=mask,
        behaviour_logprobs=[
            value if sampled else None for value, sampled in zip(own, mask, strict=True)
        ],
        versions=[0 if sampled else -1 for sampled in mask],
        sampling={},
        allowed=None,
    )


def as_json(case: Case) -> str:
    """The file's text; each row of numbers on a line."""
    values: dict[str, Any] = {
        "format": FORMAT,
        "name": case.name,
        "about": case.about,
        "sources": case.sources,
        "settings": case.settings,
        "episodes": [{"group": one.group, "reward": one.reward} for one in case.episodes],
        "sequences": [_sequence_json(one) for one in case.sequences],
        "turns": case.turns,
        "vocabulary": case.vocabulary,
        "weights": {name: table.tolist() for name, table in case.weights.items()},
        "expected": expected_of(case),
    }
    lines = [f"  {json.dumps(name)}: {_lines(value)}" for name, value in values.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _sequence_json(one: Sequence) -> dict[str, Any]:
    values: dict[str, Any] = {
        "episode": one.episode,
        "ids": one.ids,
        "sampled": [int(sampled) for sampled in one.sampled],
        "behaviour_logprobs": one.behaviour_logprobs,
        "versions": one.versions,
    }
    if one.sampling:
        values["sampling"] = one.sampling
    if one.allowed is not None:
        values["allowed"] = one.allowed
    return values


def _lines(value: Any, depth: int = 1) -> str:
    """JSON whose innermost lists and objects are one line each."""
    rounded = _rounded(value)
    children = rounded.values() if isinstance(rounded, dict) else rounded
    if not isinstance(rounded, dict | list) or not any(
        isinstance(child, dict | list) for child in children
    ):
        return json.dumps(rounded)
    margin = "  " * (depth + 1)
    if isinstance(rounded, dict):
        inner = [f"{margin}{json.dumps(k)}: {_lines(v, depth + 1)}" for k, v in rounded.items()]
        return "{\n" + ",\n".join(inner) + "\n" + "  " * depth + "}"
    inner = [f"{margin}{_lines(child, depth + 1)}" for child in rounded]
    return "[\n" + ",\n".join(inner) + "\n" + "  " * depth + "]"


def _rounded(value: Any) -> Any:
    """Twelve digits: more are noise of the order of summation."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=CASES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for case in cases():
        (options.out / f"{case.name}.json").write_text(as_json(case), encoding="utf-8")


if __name__ == "__main__":
    main()
