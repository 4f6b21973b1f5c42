"""This project's trainer on the exchange files: groups in, samples, packs, loss and gradient.

    PYTHONPATH=. python -m tools.conformance.ours

All but the network is what a run uses: `Grpo`, `merge_turns`, `make_packs`, `policy_loss`. The
network is the file's table, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Many
from typing import Any

import torch
from torch import Tensor

from clawrl_gym.config import LossConfig
from clawrl_gym.core.types import Episode, Group, Sample, StopReason, TaskRef, Turn
from clawrl_gym.dialogue.merging import Segment, merge_turns
from clawrl_gym.trainers.algorithms.grpo import Grpo
from clawrl_gym.trainers.losses.gspo import sequence_ratio
from clawrl_gym.trainers.losses.loss import LossSettings, outside, policy_loss, truncated_importance
from clawrl_gym.trainers.losses.loss_function import build_loss
from clawrl_gym.trainers.losses.token_loss import LossInputs, ratio
from clawrl_gym.trainers.models.packing import (
    Pack,
    count_sequences,
    count_tokens,
    make_packs,
    trainable,
)
from tools.conformance.exchange import Case, Result, Sequence, compare, load_cases

CANNOT = {
    "constant_group_kept": "a group without a difference is left out, tokens and all",
    "kept_sampling_mask": "log-probs are over the whole vocabulary; a run refuses policy.sampling "
    "that filters (top_p below 1)",
}
"""Cases that this trainer has no setting for, and why."""
_OPTIONS = {
    "sapo": ("tau_pos", "tau_neg"),
    "dppo": ("divergence", "threshold", "ratio_cap"),
}
"""Settings of a file that are options of its loss; the others have the two of clipping."""
_WHOLE = 1 << 20


def run(case: Case) -> Result:
    """This trainer's results for a case's batch."""
    samples = _samples(case)
    settings = _settings(case)
    tokens, sequences = count_tokens(samples), count_sequences(samples)
    table = torch.tensor(case.weights["current"], requires_grad=True)
    (pack,) = make_packs(samples, _WHOLE)
    lp_M = _logprobs(table, pack)
    lp_M.retain_grad()
    old_M, reference_M = (
        _logprobs(torch.tensor(case.weights[name]), pack) if name in case.weights else None
        for name in ("proximal", "reference")
    )
    old_M = lp_M.detach() if old_M is None else old_M
    mu_M = torch.from_numpy(pack.behaviour_M).double()
    surrogate = case.settings["surrogate"]
    if case.settings["importance_cap"] is None and surrogate != "dppo":
        mu_M = old_M  # the case's loss has no importance weights
    rows_M = torch.from_numpy(pack.rows_M)
    terms = policy_loss(
        lp_M, old_M, mu_M, torch.from_numpy(pack.advantages_M).double(), tokens, settings,
        reference_M, rows_M=rows_M, sequences=sequences,
    )  # fmt: skip
    torch.autograd.backward(terms.loss)
    masked = torch.stack(outside(old_M, mu_M, settings, rows_M)).any(0)
    importance_M = truncated_importance(old_M, mu_M, settings.tis_cap)
    weights_M = torch.ones_like(mu_M) if surrogate == "dppo" else importance_M
    streams = LossInputs(lp_M, old_M, mu_M, mu_M, importance_M, rows_M)
    places = _Places(case, samples, pack)
    assert table.grad is not None
    return Result(
        advantages=_advantages(case, samples),
        trained=places.trained(),
        ratios=places.of(_ratios(surrogate, streams)),
        importance=places.of(weights_M.masked_fill(masked, 0.0)),
        loss=float(terms.loss.detach()),
        logprob_gradient=places.of(lp_M.grad),
        gradient_norm=float(table.grad.norm()),
    )


def _ratios(surrogate: str, tokens: LossInputs) -> Tensor:
    if surrogate == "gspo":
        return sequence_ratio(tokens)
    return ratio(tokens.logprobs_M, tokens.behaviour_M if surrogate == "dppo" else tokens.old_M)


def _settings(case: Case) -> LossSettings:
    values = case.settings
    keep = values["keep"] or {"token": [0.0, None], "sequence": [0.0, None]}
    cap = values["importance_cap"]
    surrogate = values["surrogate"]
    names = _OPTIONS.get(surrogate, ("clip_low", "clip_high"))
    options = {name: values[name] for name in names}
    return LossSettings(
        loss=build_loss(LossConfig(type=surrogate, options=options)),
        tis_cap=math.inf if cap is None else cap,
        kl_coef=values["kl"],
        reduction=values["reduction"],
        constant_length=values["constant_length"],
        token_ratio_min=keep["token"][0],
        token_ratio_max=keep["token"][1],
        sequence_ratio_min=keep["sequence"][0],
        sequence_ratio_max=keep["sequence"][1],
    )


def _samples(case: Case) -> list[Sample]:
    """The algorithm's samples of each group."""
    advantage = case.settings["advantage"]
    algorithm = Grpo(
        normalize_std=advantage["std"] == "sample",
        leave_one_out=advantage["baseline"] == "leave_one_out",
    )
    task = TaskRef(None, 0, "train")
    samples = []
    for number in sorted({episode.group for episode in case.episodes}):
        own = [at for at, episode in enumerate(case.episodes) if episode.group == number]
        episodes = [_episode(at, number, case.episodes[at].reward, task) for at in own]
        segments = [_segments(case, at) for at in own]
        samples += algorithm.make_samples(Group(number, task, episodes, 0), segments)
    return samples


def _episode(at: int, group: int, reward: float | None, task: TaskRef) -> Episode:
    stop = StopReason.ENV_ERROR if reward is None else StopReason.TERMINATED
    return Episode(str(at), group, task, stop, reward, 1)


def _segments(case: Case, episode: int) -> list[Segment]:
    """Segments from turns where the case has them, else the sequences as they are."""
    own = [sequence for sequence in case.sequences if sequence.episode == episode]
    turns = [turn for turn in case.turns if turn["episode"] == episode]
    if not turns:
        return [_segment(sequence) for sequence in own]
    known = {
        (sequence.ids[at], tuple(sequence.ids[:at])): (
            sequence.behaviour_logprobs[at],
            sequence.versions[at],
        )
        for sequence in own
        for at, sampled in enumerate(sequence.sampled)
        if sampled
    }
    return merge_turns([_turn(turn, at, known) for at, turn in enumerate(turns)]).sequences


def _turn(turn: dict[str, Any], index: int, known: dict[Any, Any]) -> Turn:
    whole = [*turn["prompt"], *turn["sampled"]]
    start = len(turn["prompt"])
    streams = [known[whole[at], tuple(whole[:at])] for at in range(start, len(whole))]
    return Turn(
        session_id=str(turn["episode"]),
        index=index,
        kind="main",
        prompt_ids_T=turn["prompt"],
        sampled_ids_T=turn["sampled"],
        logprobs_T=[logprob for logprob, _ in streams],
        versions_T=[version for _, version in streams],
        finish_reason="stop",
        messages=[],
        reply={"role": "assistant", "content": ""},
        created_s=0.0,
    )


def _segment(sequence: Sequence) -> Segment:
    return Segment(
        ids_T=sequence.ids,
        mask_T=sequence.sampled,
        logprobs_T=[0.0 if one is None else one for one in sequence.behaviour_logprobs],
        versions_T=sequence.versions,
        turns_T=[0 if sampled else -1 for sampled in sequence.sampled],
        turn_indices=[0],
    )


def _logprobs(table: Tensor, pack: Pack) -> Tensor:
    """The table's log-probs of the pack's trained tokens."""
    before_M = torch.from_numpy(pack.ids_T[pack.predictors_M])
    targets_M = torch.from_numpy(pack.targets_M)
    return table.log_softmax(-1)[before_M, targets_M]


def _advantages(case: Case, samples: Many[Sample]) -> list[float | None]:
    found: dict[int, float] = {}
    for sample in samples:
        trained = trainable(sample)
        found[int(sample.session_id)] = sample.advantages_T[trained.index(True)]
    return [found.get(at) for at in range(len(case.episodes))]


class _Places:
    """Places of a pack's tokens in the case's sequences."""

    def __init__(self, case: Case, samples: Many[Sample], pack: Pack) -> None:
        self._case = case
        free = list(range(len(case.sequences)))
        numbers = []
        for sample in samples:
            same = [
                at
                for at in free
                if case.sequences[at].episode == int(sample.session_id)
                and case.sequences[at].ids == sample.ids_T
            ]
            if not same:
                raise ValueError(f"case {case.name}: got the sequence {sample.ids_T}, not in it")
            free.remove(same[0])
            numbers.append(same[0])
        self._at = [
            (numbers[origin], place)
            for origin in pack.origins
            for place, trained in enumerate(trainable(samples[origin]))
            if trained
        ]

    def of(self, values_M: Tensor | None) -> list[list[float | None]]:
        rows: list[list[float | None]] = [[None] * len(one.ids) for one in self._case.sequences]
        assert values_M is not None
        for (sequence, place), value in zip(self._at, values_M.tolist(), strict=True):
            rows[sequence][place] = value
        return rows

    def trained(self) -> list[list[bool]]:
        rows = [[False] * len(one.ids) for one in self._case.sequences]
        for sequence, place in self._at:
            rows[sequence][place] = True
        return rows


def main() -> None:
    for case in load_cases():
        why = CANNOT.get(case.name)
        lines = [f"cannot express it: {why}"] if why else compare(case, run(case))
        print(f"{case.name}: {'; '.join(lines) or 'passes'}")


if __name__ == "__main__":
    main()
