"""The teacher: a policy that has read a hint, asked about tokens that were sampled without it.

It reads exactly the sampled ids behind each prompt of a distillation target, through the learner's
own model code and temperature: of one model under one prompt both say the same. It has no gradient
and is asked before the update. Where it said nothing its log-prob is NaN and the token's weight 0.

With `baseline=control` the last prompt of a distillation target holds a hint about something else.
What is taught is then the policy's own word, moved by what the hint says and the other one does
not:

    log q = log p + log T(hint) - log T(control)

so that what any hint does to a reply (a shorter one, another topic) is not learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clawrl_gym.config import DistillationConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import DistilledTurn, Sample
from clawrl_gym.trainers.models.distillation import overlap, with_tail
from clawrl_gym.trainers.models.packing import (
    Floats,
    Ints,
    Pack,
    TeacherScores,
    make_packs,
    trainable,
)

if TYPE_CHECKING:
    from clawrl_gym.trainers.models.model import PackedModel, Predictions


@dataclass(frozen=True, slots=True)
class TeacherReport:
    """The teacher's readings of a batch."""

    of: list[TeacherScores | None]
    """Scores by sample; None where nothing is distilled."""
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Question:
    """One prompt of a distillation target, and the tokens of the distillation target behind it."""

    sample: int
    target: int
    prompt: int
    is_control: bool
    tokens: slice
    """Slice of the sample's tokens that are learned from."""
    sequence: Sample


@dataclass(frozen=True, slots=True)
class _Answer:
    """A model's log-probs of the M tokens of a sequence that are learned from."""

    logprobs_M: Floats
    topk_MK: Floats | None
    best_ids_MK: Ints
    best_MK: Floats
    overlap: float | None = None
    """None when the student was not asked; else the share of its most likely tokens that are
    among the teacher's."""

    def at(self, tokens: slice) -> _Answer:
        """The answer on some of the tokens."""
        return _Answer(
            self.logprobs_M[tokens], None, self.best_ids_MK[tokens], self.best_MK[tokens]
        )


_BestAnswers = dict[tuple[int, int], tuple[_Question, _Answer]]
"""The best question and answer of each distillation target, by index of sample and distillation
target."""


class Teacher:
    """`model` teaches `student`; they may be one."""

    def __init__(
        self, config: DistillationConfig, student: PackedModel, model: PackedModel, max_tokens: int
    ) -> None:
        """`max_tokens`: tokens that go through the model at a time."""
        self._config = config
        self._student = student
        self._model = model
        self._max_tokens = max_tokens
        self._width = min(student.width, model.width)
        self._has_control = config.baseline == "control"

    def read(self, samples: Sequence[Sample]) -> TeacherReport:
        """Ask about all distillation targets; of several prompts, the one closest to the student is
        followed.

        Distillation targets that do not fit the model's context teach nothing and are counted.
        """
        questions = list(self._questions(samples))
        several = any(question.prompt and not question.is_control for question in questions)
        k = self._config.top_k if self._config.form == "topk" or several else 0
        has_controls = any(question.is_control for question in questions)
        own = self._own(samples, questions, k) if k or has_controls else {}
        best: _BestAnswers = {}
        controls: dict[tuple[int, int], _Answer] = {}
        for question, answer in zip(questions, self._ask(questions, own, k), strict=True):
            target = (question.sample, question.target)
            if question.is_control:
                controls[target] = answer
            elif target not in best or _closer(answer, best[target][1]):
                best[target] = question, answer
        for target, control in controls.items():
            if target in best:
                question, answer = best[target]
                student = own[question.sample].at(question.tokens)
                best[target] = question, _moved(student, answer, control)
        readings = [
            self._reading(index, sample, best, own) if any(sample.distill_T) else None
            for index, sample in enumerate(samples)
        ]
        return TeacherReport(readings, _metrics(samples, readings, best))

    def _questions(self, samples: Sequence[Sample]) -> Iterator[_Question]:
        for index, sample in enumerate(samples):
            if not any(sample.distill_T):
                continue
            self._check(sample)
            learned = trainable(sample)
            where = np.flatnonzero(learned)
            for number, target in enumerate(sample.distill_targets):
                end = target.start + target.length
                first, last = np.searchsorted(where, [target.start, end])
                for place, prompt in enumerate(target.prompts if first < last else ()):
                    if self._model.context and len(prompt) + target.length > self._model.context:
                        continue
                    sequence = _behind(
                        prompt, sample, learned, slice(target.start, end), target.pictures
                    )
                    is_control = self._has_control and 0 < place == len(target.prompts) - 1
                    tokens = slice(first, last)
                    yield _Question(index, number, place, is_control, tokens, sequence)

    def _check(self, sample: Sample) -> None:
        """Raises TrainerError for a sample with impossible distillation targets."""
        covered = np.zeros(len(sample.ids_T), bool)
        for target in sample.distill_targets:
            end = target.start + target.length
            if target.start < 1 or target.length < 1 or end > len(sample.ids_T):
                raise _refused(
                    sample,
                    f"a distillation target on the tokens {target.start} to {end}",
                    f"a part of its {len(sample.ids_T)} tokens, the first left out",
                )
            if not target.prompts or not all(target.prompts):
                raise _refused(
                    sample, "a distillation target without a prompt", "at least one token to read"
                )
            covered[target.start : end] = True
            highest = max(*map(max, target.prompts), *sample.ids_T[target.start : end])
            lowest = min(*map(min, target.prompts), *sample.ids_T[target.start : end])
            if lowest < 0 or highest >= self._width:
                wrong = lowest if lowest < 0 else highest
                raise _refused(sample, f"the token {wrong}", f"one of {self._width}")
        if (np.array(sample.distill_T)[~covered & np.array(trainable(sample))] != 0).any():
            raise _refused(
                sample, "a weight of distillation outside of all distillation targets", "none there"
            )

    def _own(
        self, samples: Sequence[Sample], questions: list[_Question], k: int
    ) -> dict[int, _Answer]:
        """The student's answers wherever a sample is learned from, by sample."""
        indices = sorted({question.sample for question in questions})
        packs = make_packs([samples[index] for index in indices], self._max_tokens)
        return {
            indices[origin]: answer
            for pack in packs
            for origin, answer in _split(pack, self._student.look(pack, k, self._width))
        }

    def _ask(self, questions: list[_Question], own: dict[int, _Answer], k: int) -> list[_Answer]:
        compared: list[TeacherScores | None] = [None for _ in questions]
        student_best = (
            [own[question.sample].best_ids_MK[question.tokens] for question in questions]
            if k
            else []
        )
        for index, ids_MK in enumerate(student_best):
            nothing = np.full(ids_MK.shape, math.nan, np.float32)
            compared[index] = TeacherScores(nothing[:, 0], nothing[:, 0], ids_MK, nothing)
        sequences = [question.sequence for question in questions]
        answers: dict[int, _Answer] = {}
        for pack in make_packs(sequences, self._max_tokens, compared):
            answers.update(_split(pack, self._model.look(pack, k, self._width)))
        if not k:
            return [answers[index] for index in range(len(questions))]
        return [_compare(answers[index], ids_MK) for index, ids_MK in enumerate(student_best)]

    def _reading(
        self, index: int, sample: Sample, best: _BestAnswers, own: dict[int, _Answer]
    ) -> TeacherScores:
        weights_M = np.array(sample.distill_T, np.float32)[trainable(sample)]
        k = min(self._config.top_k, self._width) if self._config.form == "topk" else 0
        teacher_M = np.full(len(weights_M), math.nan, np.float32)
        ids_MK = np.zeros((len(weights_M), k), np.int64)
        topk_MK = np.full((len(weights_M), k), math.nan, np.float32)
        prompts: list[int | None] = [None for _ in sample.distill_targets]
        for number in range(len(sample.distill_targets)):
            if (index, number) not in best:
                continue
            question, answer = best[index, number]
            prompts[number] = question.prompt
            teacher_M[question.tokens] = answer.logprobs_M
            if k and self._config.top_k_of == "student":
                ids_MK[question.tokens] = own[index].best_ids_MK[question.tokens]
                topk_MK[question.tokens] = answer.topk_MK
            elif k:
                ids_MK[question.tokens] = answer.best_ids_MK
                topk_MK[question.tokens] = answer.best_MK
        weights_M[~np.isfinite(teacher_M)] = 0.0
        if not k:
            return TeacherScores(weights_M, teacher_M, prompts=tuple(prompts))
        return TeacherScores(weights_M, teacher_M, ids_MK, topk_MK, tuple(prompts))


def show(sample: Sample, reading: TeacherScores, gaps_M: Floats) -> Iterator[DistilledTurn]:
    """Turns of a stored sample with the teacher's scores."""
    if sample.id is None:
        return
    where = np.flatnonzero(trainable(sample))
    for target, prompt in zip(sample.distill_targets, reading.prompts, strict=True):
        if prompt is None:
            continue
        first, last = np.searchsorted(where, [target.start, target.start + target.length])
        ids = [sample.ids_T[place] for place in where[first:last]]
        yield DistilledTurn(sample.id, sample.turn_id, prompt, ids, gaps_M[first:last].tolist())


def _behind(
    prompt: list[int], sample: Sample, learned: list[bool], turn: slice, pictures: int
) -> Sample:
    """The turn's ids behind another prompt; only they are asked about."""
    ids = prompt + sample.ids_T[turn]
    return Sample(
        session_id=sample.session_id,
        group_id=sample.group_id,
        ids_T=ids,
        mask_T=[False] * len(prompt) + learned[turn],
        logprobs_T=[0.0] * len(ids),
        versions_T=[-1] * len(ids),
        advantages_T=[0.0] * len(ids),
        reward=0.0,
        pictures=sample.pictures[:pictures],
        temperature=sample.temperature,
    )


def _split(pack: Pack, look: Predictions) -> Iterator[tuple[int, _Answer]]:
    """Answers for each sequence of the pack, with its index among those packed."""
    ends = np.cumsum(np.bincount(pack.rows_M))[:-1]

    def parts(stream: torch.Tensor) -> list[Any]:
        return np.split(stream.cpu().numpy(), ends)

    logprobs, ids, best = parts(look.logprobs_M), parts(look.best_ids_MK), parts(look.best_MK)
    topk = [None for _ in ids] if look.topk_MK is None else parts(look.topk_MK)
    for row, origin in enumerate(pack.origins):
        yield origin, _Answer(logprobs[row], topk[row], ids[row], best[row])


def _moved(student: _Answer, answer: _Answer, control: _Answer) -> _Answer:
    """The student's words moved by what the answer says and the control does not."""
    logprobs_M = student.logprobs_M + answer.logprobs_M - control.logprobs_M
    if answer.topk_MK is None or control.topk_MK is None:
        return replace(answer, logprobs_M=logprobs_M)
    own_MK, hinted_MK, control_MK = (
        with_tail(torch.from_numpy(words))
        for words in (student.best_MK, answer.topk_MK, control.topk_MK)
    )
    moved_MK = (own_MK + hinted_MK - control_MK).log_softmax(-1)[:, :-1]
    return replace(answer, logprobs_M=logprobs_M, topk_MK=moved_MK.numpy())


def _compare(answer: _Answer, student_MK: Ints) -> _Answer:
    shares_M = overlap(torch.from_numpy(student_MK), torch.from_numpy(answer.best_ids_MK))
    return replace(answer, overlap=float(shares_M.mean()))


def _closer(left: _Answer, right: _Answer) -> bool:
    return left.overlap is not None and right.overlap is not None and left.overlap > right.overlap


def _metrics(
    samples: Sequence[Sample], readings: list[TeacherScores | None], best: _BestAnswers
) -> dict[str, float]:
    """Metrics known before the update; `teacher/overlap` is a mean over tokens."""
    too_long = 0
    for sample, reading in zip(samples, readings, strict=True):
        if reading is not None:
            learned = np.array(trainable(sample))
            too_long += sum(
                prompt is None and bool(learned[target.start : target.start + target.length].any())
                for target, prompt in zip(sample.distill_targets, reading.prompts, strict=True)
            )
    metrics = {"teacher/too_long": float(too_long)}
    counted = [
        (answer.overlap, len(answer.logprobs_M))
        for _, answer in best.values()
        if answer.overlap is not None
    ]
    if counted:
        tokens = sum(count for _, count in counted)
        metrics["teacher/overlap"] = sum(share * count for share, count in counted) / tokens
    return metrics


def _refused(sample: Sample, actual: str, expected: str) -> TrainerError:
    return TrainerError(f"session {sample.session_id!r}: got {actual}, expected {expected}")
