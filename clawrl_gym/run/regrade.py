"""Verdicts once more, without a policy: episodes are replayed into today's environments and graded.

The stored replies are given, one by one, to the rollout loop itself: today's agent reads them, a
fresh environment gets the actions. What the policy saw must be what it saw then, word for word,
else its replies would answer something else, and the episode is told as not replayable. Deadlines
are kept as they were: time does not come again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clawrl_gym.agents.agent import Agent
from clawrl_gym.cluster.envs import check_env, settle
from clawrl_gym.config import EvaluateConfig
from clawrl_gym.core.errors import ConfigError, ContextError, PolicyError, RequestError, StoreError
from clawrl_gym.core.files.files import private_files, replace_text
from clawrl_gym.core.provenance import describe_start
from clawrl_gym.core.types import Episode, Message, StopReason, Tool, Transcript
from clawrl_gym.evaluation.figures import EvaluationResult, data_of, read_result
from clawrl_gym.evaluation.page import PAGE_FILE, write_evaluation_page
from clawrl_gym.evaluation.record import Attempt, EvaluationRecord, each_attempt
from clawrl_gym.evaluation.settings import EVALUATION_FILE, read_settings
from clawrl_gym.rollout.collection.worker import build_agent
from clawrl_gym.rollout.episodes.environment_thread import EnvironmentThread
from clawrl_gym.rollout.episodes.episode import Bounds, EpisodeSpec, PolicyReply, run_episode
from clawrl_gym.run.policy import OnPhase, quiet
from clawrl_gym.ui.text import in_words

_AT_A_TIME = 4
_KEPT = (StopReason.DEADLINE,)
"""Ends that no replay can find again."""
_GRADED = (StopReason.TERMINATED, StopReason.TRUNCATED, StopReason.CONTEXT)
"""Ends after which an environment can be used again."""
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Change:
    """An episode whose grade is another one now."""

    before: Attempt
    after: Episode

    def __str__(self) -> str:
        task, sample = self.before.episode.task, self.before.sample
        name = task.id or f"seed {task.seed}"
        which = "" if sample is None else f", sample {sample + 1}"
        return f"{name}{which}: reward {self.before.episode.reward} is {self.after.reward} now"


@dataclass(frozen=True, slots=True)
class Regrading:
    """Changes of an evaluation's verdicts."""

    before: EvaluationResult
    after: EvaluationResult
    graded: int
    kept: int
    """Deadlines."""
    changes: tuple[Change, ...]
    failures: tuple[str, ...]
    """Episodes that could not be replayed, with the reason; they are lost in the new folder."""

    def summary(self) -> str:
        """The result in a few lines."""
        lines = [
            f"{self.graded} episodes graded again, {len(self.changes)} otherwise than before"
            + (f"; {self.kept} deadlines kept as they were" if self.kept else ""),
            *(f"  {change}" for change in self.changes[:_SHOWN]),
        ]
        if len(self.changes) > _SHOWN:
            lines.append(f"  and {len(self.changes) - _SHOWN} more")
        if self.failures:
            lines.append(f"{len(self.failures)} could not be replayed, and are in no figure:")
            lines += [f"  {failure}" for failure in self.failures[:_SHOWN]]
        lines.append(
            f"success {in_words(self.before.success)} before, {in_words(self.after.success)} now"
        )
        lines.append(f"page: {self.after.folder / PAGE_FILE}")
        return "\n".join(lines)


class StoredReplies:
    """A policy that says again what it said, and nothing else."""

    def __init__(self, attempt: Attempt) -> None:
        transcript = attempt.episode.transcript
        assert transcript is not None
        self._answers = list(transcript.answers)
        self._stop = attempt.episode.stop_reason
        self._was_refused = len(transcript.observations) > len(transcript.answers)
        """Whether its last reply was not sent on: the environment itself had not failed."""

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        if self._answers:
            answer = self._answers.pop(0)
            return PolicyReply(
                answer.message,
                answer.completion_tokens or 0,
                answer.prompt_tokens,
                answer.finish_reason,
            )
        if self._stop is StopReason.CONTEXT:
            raise ContextError("the context was full here")
        if self._stop is StopReason.AGENT_FAULT and self._was_refused:
            raise RequestError("the request was refused here")
        raise PolicyError("the episode continues where it had ended, and there is no more reply")

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None:
        """Do nothing: there is nothing to record."""


async def regrade(folder: Path, out: Path | None = None, *, on_phase: OnPhase = quiet) -> Regrading:
    """Grade the episodes of an evaluation again, into a folder of their own.

    `out`: None takes `FOLDER-regraded`. Raises ConfigError for what cannot be graded again,
    StoreError when it cannot be written.
    """
    out = out or _beside(folder)
    with private_files():
        replayer = await asyncio.to_thread(_prepared, folder, out, on_phase)
        record = await asyncio.to_thread(_new_record, folder, out)
        try:
            changes, failures = await replayer.replay_all(record)
        finally:
            record.close()
        return await asyncio.to_thread(_result, folder, out, replayer, changes, failures)


class _Replayer:
    """Plays stored episodes, some at a time."""

    def __init__(self, config: EvaluateConfig, attempts: Sequence[Attempt]) -> None:
        self._config = config
        self.attempts = attempts
        self._agent = _agent_of(config)
        bounds = config.agent
        self._bounds = Bounds(bounds.context, bounds.max_context_chars, bounds.max_reply_tokens)

    @property
    def kept(self) -> int:
        return sum(attempt.episode.stop_reason in _KEPT for attempt in self.attempts)

    async def replay_all(self, record: EvaluationRecord) -> tuple[list[Change], list[str]]:
        """Every episode once; `record` gets what became of each."""
        waiting = iter(self.attempts)
        changes: list[Change] = []
        failures: list[str] = []

        async def work(environment: EnvironmentThread) -> None:
            for attempt in waiting:
                episode = await self._again(attempt, environment)
                record.ended(attempt.sample, episode)
                if episode.stop_reason.is_infrastructure:
                    name = attempt.episode.task.id or f"seed {attempt.episode.task.seed}"
                    failures.append(f"{name}: {episode.error}")
                elif episode.reward != attempt.episode.reward:
                    changes.append(Change(attempt, episode))

        environments = [EnvironmentThread(self._config.env, n) for n in range(_AT_A_TIME)]
        try:
            async with asyncio.TaskGroup() as running:
                for environment in environments:
                    running.create_task(work(environment))
        finally:
            for environment in environments:
                await environment.close()
        return changes, failures

    async def _again(self, attempt: Attempt, environment: EnvironmentThread) -> Episode:
        before = attempt.episode
        if before.stop_reason in _KEPT:
            return before
        if before.transcript is None:
            return _not_replayable(before, "what was said is not kept")
        spec = EpisodeSpec(
            before.session_id, None, before.task, self._config.env.max_turns,
            self._config.rollout.episode_timeout_s, keeps_transcript=True,
        )  # fmt: skip
        episode = await run_episode(
            spec, environment, self._agent, StoredReplies(attempt), environment.call, self._bounds
        )
        if episode.stop_reason not in _GRADED:
            environment.discard()
        if episode.stop_reason is StopReason.DEADLINE:
            return _not_replayable(before, f"the replay took too long: {episode.error}")
        if episode.stop_reason.is_infrastructure:
            return _not_replayable(before, episode.error or episode.stop_reason.value)
        difference = _difference(before, episode)
        if difference is not None:
            return _not_replayable(before, difference)
        return replace(episode, duration_s=before.duration_s, transcript=_as_paid(before, episode))


def _beside(folder: Path) -> Path:
    return folder.resolve().with_name(f"{folder.resolve().name}-regraded")


def _prepared(folder: Path, out: Path, on_phase: OnPhase) -> _Replayer:
    """Check everything before anything is played. Raises ConfigError or EnvError."""
    config = EvaluateConfig.of(read_settings(folder).config)
    if out.resolve() == folder.resolve() or (out.exists() and any(out.iterdir())):
        raise ConfigError(f"got {out} to write to, expected a new folder: --out PATH")
    if getattr(config.env, "user", None) == "model" or getattr(config.env, "mcp", None):
        raise ConfigError(
            f"{folder}: what its environment says comes from a model or from other servers, which "
            "a replay cannot ask again"
        )
    attempts = [attempt for attempt in each_attempt(folder) if attempt.is_graded]
    newest = {attempt.key: attempt for attempt in attempts}
    if not newest:
        raise ConfigError(f"{folder} has no graded episode, expected at least one")

    def say(line: str) -> None:
        on_phase("environments", line)

    config = settle(config, say)
    check_env(config.env, say)
    on_phase("regrade", f"{len(newest)} episodes")
    return _Replayer(config, list(newest.values()))


def _new_record(folder: Path, out: Path) -> EvaluationRecord:
    before = read_settings(folder)
    starts = (*before.starts, describe_start())
    settings = replace(before, regraded_from=str(folder.resolve()), starts=starts)
    return EvaluationRecord.open(out, settings)


def _result(
    folder: Path, out: Path, replayer: _Replayer, changes: list[Change], failures: list[str]
) -> Regrading:
    before, after = read_result(folder), replace(read_result(out), is_complete=True)
    try:
        write_evaluation_page(after)
        replace_text(out / EVALUATION_FILE, json.dumps(data_of(after), indent=1) + "\n")
    except OSError as error:
        raise StoreError(f"cannot write to {out}: {error}; make room") from error
    graded = len(replayer.attempts) - len(failures) - replayer.kept
    return Regrading(before, after, graded, replayer.kept, tuple(changes), tuple(failures))


def _agent_of(config: EvaluateConfig) -> Agent:
    """A program of its own left its actions: they are replies of text."""
    if config.agent.type == "cli":
        raise ConfigError(
            "got an evaluation with agent=cli, expected one whose actions were recorded: an agent "
            "inside a sandbox acts by itself; evaluate again"
        )
    if config.agent.type != "harness":
        return build_agent(config.agent, config.env)
    from clawrl_gym.agents.text import TextAgent

    return TextAgent()


def _not_replayable(before: Episode, why: str) -> Episode:
    return replace(before, stop_reason=StopReason.ENV_ERROR, reward=None, scores={}, error=why)


def _difference(before: Episode, after: Episode) -> str | None:
    """Why the replay is not the same episode; None when it is. The end may differ: it is graded."""
    assert before.transcript is not None
    assert after.transcript is not None
    then, now = before.transcript, after.transcript
    if len(now.answers) != len(then.answers):
        return f"it ended after {len(now.answers)} replies, and after {len(then.answers)} then"
    n = len(then.answers)
    seen = zip(then.observations[:n], now.observations[:n], strict=False)
    for number, (old, new) in enumerate(seen, 1):
        if old != new:
            same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
            where = len(list(same))
            return (
                f"what the policy saw before reply {number} is not the same: {old[where:][:60]!r} "
                f"then, {new[where:][:60]!r} now"
            )
    return None


def _as_paid(before: Episode, after: Episode) -> Transcript | None:
    """The replay, with what the replies took when they were made."""
    assert before.transcript is not None
    assert after.transcript is not None
    answers = [
        replace(old, action=new.action)
        for old, new in zip(before.transcript.answers, after.transcript.answers, strict=True)
    ]
    return replace(after.transcript, answers=answers)
