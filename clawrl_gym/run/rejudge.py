"""Verdicts once more, without a policy: a judge reads the stored turns of a run and what came back.

The new verdicts stand beside the run's own, which stay as they are, as do its samples: nothing of
what was trained on changes. Hints are not asked for. A judge that fails abstains; a server that is
gone ends the command, which continues when it is called again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clawrl_gym.config import RejudgeConfig
from clawrl_gym.core.errors import ClawError, ConfigError, PolicyUnavailable, first_of
from clawrl_gym.core.files.files import private_files
from clawrl_gym.core.files.folder_lock import holder_of
from clawrl_gym.core.progress import NowAndThen
from clawrl_gym.core.reach import why_unreachable
from clawrl_gym.core.types import Verdict
from clawrl_gym.judge.agreement import Agreement, Rejudged, figures_of, outcome_of
from clawrl_gym.judge.interface import JUDGED_KINDS, Judge
from clawrl_gym.judge.rejudged import VERDICTS_FILE, RejudgedRecord, begun
from clawrl_gym.judge.verdicts import VerdictMaker
from clawrl_gym.preflight.judge import JudgeMaker, judge_problems, judges_in_words
from clawrl_gym.preflight.problems import Problems
from clawrl_gym.run.policy import OnPhase, quiet
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.judgeable import (
    JudgeableTurns,
    Reading,
    StoredTurn,
    judgeable_turns,
    read_turns,
)
from clawrl_gym.store import StoreReader
from clawrl_gym.ui.judging import why
from clawrl_gym.ui.rejudged import REJUDGED_PAGE, agreement_lines, write_rejudged_page

_MOST_REASONS = 3
_WORDLESS = ("rule", "votes", "probability")
"""Details of a verdict without any word of the conversation."""


@dataclass(frozen=True, slots=True)
class Rejudging:
    """Results of judging a run's turns again."""

    folder: Path
    judge: str
    """Its description."""
    agreement: Agreement
    abstentions: Counter[str]
    """Why the judge abstained, since this start."""
    has_page: bool
    """False: a session that it showed was deleted while it was written."""

    def summary(self) -> str:
        """The result in a few lines."""
        reasons = [
            f"  {count:,} turn{'' if count == 1 else 's'}: {reason}"
            for reason, count in self.abstentions.most_common(_MOST_REASONS)
        ]
        page = f"page: {self.folder / REJUDGED_PAGE}"
        if not self.has_page:
            page = "no page: a session was deleted while it was written"
        lines = [
            f"{len(self.agreement.turns):,} turns, by {self.judge}",
            *agreement_lines(self.agreement),
            *(["why it abstained:", *reasons] if reasons else []),
            page,
            f"every verdict: {self.folder / VERDICTS_FILE}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RejudgePlan:
    """A run whose turns can be judged."""

    config: RejudgeConfig
    folder: RunFolder
    turns: JudgeableTurns
    notes: Sequence[str]

    @property
    def judge(self) -> str:
        """Its description."""
        return judges_in_words(self.config.judge)


def preflight_rejudging(config: RejudgeConfig) -> RejudgePlan:
    """Check all. Raises ConfigErrors with all that would keep `rejudge` from running."""
    problems = Problems()
    if not config.judge.judges:
        problems.lines.append(
            f"got judge={config.judge.type}, which asks nobody, expected a judge, such as "
            "judge=rule, or judge=model judge.base_url=http://HOST:PORT/v1"
        )
    problems.lines += judge_problems([config.judge])
    if not problems.lines:
        with problems.noted():
            _judge_of(config, AsyncExitStack())
    plan = None
    with problems.noted():
        plan = _plan_of(config)
    if plan is None or problems.lines:
        raise problems.error()
    return plan


async def rejudge(config: RejudgeConfig, *, on_phase: OnPhase = quiet) -> Rejudging:
    """Judge a run's stored turns once more, into a folder of their own in the run's.

    Raises ConfigError for what cannot be judged, StoreError when it cannot be written,
    PolicyUnavailable when the judge's server is gone.
    """
    plan = await asyncio.to_thread(preflight_rejudging, config)
    for note in plan.notes:
        on_phase("rejudge", note)
    with private_files():
        record = await asyncio.to_thread(RejudgedRecord.open, plan.folder.path, config)
        rejudger = _Rejudger(plan, record, on_phase)
        try:
            await rejudger.judge_all()
        except ExceptionGroup as failures:
            first = first_of(failures)
            raise first if isinstance(first, ClawError) else failures from None
        finally:
            record.close()
        agreement = Agreement(list(record.turns.values()))
        has_page = await asyncio.to_thread(_write, plan, record, agreement)
        return Rejudging(record.folder, plan.judge, agreement, rejudger.abstentions, has_page)


class _Rejudger:
    """Judges what is not judged yet, some turns at a time."""

    def __init__(self, plan: RejudgePlan, record: RejudgedRecord, on_phase: OnPhase) -> None:
        self._plan = plan
        self._record = record
        self._say = partial(on_phase, "rejudge")
        self._now_and_then = NowAndThen(self._say)
        self._reading = asyncio.Lock()
        self.abstentions: Counter[str] = Counter()

    async def judge_all(self) -> None:
        """Judge all turns. Raises PolicyUnavailable when the judge's server is gone."""
        if self._record.turns:
            self._say(f"{self._progress}, and kept")
        config = self._plan.config
        readings = {session.reading for session in self._plan.turns.sessions}
        async with AsyncExitStack() as stack:
            judge = _judge_of(config, stack)
            makers = {reading: VerdictMaker(judge, config.judge, *reading) for reading in readings}
            turns = await stack.enter_async_context(aclosing(self._turns()))
            async with asyncio.TaskGroup() as running:
                for _ in range(config.judge.concurrency):
                    running.create_task(self._work(turns, makers))

    async def _work(
        self, turns: AsyncIterator[StoredTurn], makers: Mapping[Reading, VerdictMaker]
    ) -> None:
        while True:
            async with self._reading:
                stored = await anext(turns, None)
            if stored is None:
                return
            verdict = await makers[stored.reading].verdict(stored.turn, stored.next_state)
            if verdict.value is None:
                await self._check_server()
                self.abstentions[str(verdict.detail.get("reason", "it does not say"))] += 1
            self._record.add(_rejudged(stored, verdict))
            self._now_and_then(self._progress)

    async def _turns(self) -> AsyncGenerator[StoredTurn, None]:
        """Turns not judged yet, read a session at a time; SQLite wants one thread."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="store-reader") as thread:
            reader = await loop.run_in_executor(thread, StoreReader, self._plan.folder.path)
            try:
                for session in self._plan.turns.sessions:
                    read = partial(read_turns, reader, session, self._record.turns)
                    for stored in await loop.run_in_executor(thread, read):
                        yield stored
            finally:
                await loop.run_in_executor(thread, reader.close)

    async def _check_server(self) -> None:
        """An abstention is believed while the judge's server is there."""
        address = self._plan.config.judge.base_url
        reason = None if address is None else await asyncio.to_thread(why_unreachable, address)
        if reason is not None:
            raise PolicyUnavailable(
                f"no server answers at judge.base_url={address} any more ({reason}); "
                f"{self._progress}, the same command continues with the others"
            )

    @property
    def _progress(self) -> str:
        return f"{len(self._record.turns):,} of {len(self._plan.turns):,} turns are judged"


def _judge_of(config: RejudgeConfig, stack: AsyncExitStack) -> Judge:
    """Make the judge. Raises ConfigError for one that cannot be made without a run."""
    judge = JudgeMaker(config.judge, None, lambda: 0, stack, hints=False).make()
    assert judge is not None  # there is one, by the preflight
    return judge


def _plan_of(config: RejudgeConfig) -> RejudgePlan:
    """Plan the work. Raises ConfigError for what holds no turns, StoreError for unreadable runs."""
    if config.folder is None:
        raise ConfigError(
            "got no run, expected its folder: python -m clawrl_gym.rejudge runs/NAME judge=rule"
        )
    folder = RunFolder(Path(config.folder))
    turns, notes = judgeable_turns(folder), []
    if turns.left_out:
        notes.append(f"{turns.left_out:,} turns left out: their environment is no longer known")
    if not len(turns):
        raise ConfigError(
            f"{folder.path} holds no turn that a judge could read, expected some with what came "
            "back after them: of training episodes with a reward, or of conversations that serve "
            "recorded (live.record=true)" + "".join(f"; {note}" for note in notes)
        )
    if config.turns is not None and config.turns < len(turns):
        notes.append(f"{config.turns:,} of {len(turns):,} turns, spread evenly over the run")
        turns = turns.spread(config.turns)
    holder = holder_of(folder.path)
    if holder is not None:
        notes.append(f"process {holder} still writes to {folder.path}: its turns so far are judged")
    if begun(folder.path, config) is not None:
        notes.append("this resumes where it stopped")
    return RejudgePlan(config, folder, turns, notes)


def _rejudged(stored: StoredTurn, verdict: Verdict) -> Rejudged:
    judged = [one for one in stored.verdicts if one.kind in JUDGED_KINDS]
    people = [one for one in stored.verdicts if one.kind == "feedback"]
    detail = {name: value for name, value in verdict.detail.items() if name in _WORDLESS}
    return Rejudged(
        verdict.turn_id,
        before=outcome_of(judged[-1] if judged else None),
        now=outcome_of(verdict),
        person=outcome_of(people[-1] if people else None),
        weight=verdict.weight,
        by=why(replace(verdict, detail=detail)),  # type: ignore[arg-type]  # some of its fields
    )


def _write(plan: RejudgePlan, record: RejudgedRecord, agreement: Agreement) -> bool:
    """The page and the figures; whether there is a page. Raises StoreError."""
    run, examples = plan.folder.path, plan.config.examples
    has_page = write_rejudged_page(run, record.folder, plan.judge, agreement, examples)
    record.finish(figures_of(agreement))
    return has_page
