"""Metrics of a run: metrics.jsonl, the timeline of the four loops, and optional loggers.

Owns the two files, and the names that more than one part reads. Both are append-only logs whose
full files get a number: a resumed run continues in the same log, and a reader takes the last line
of a step. Nothing here draws anything.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from clawrl_gym.core import redact
from clawrl_gym.core.files.jsonl import JsonLines, RotatedLines, read_json_lines
from clawrl_gym.core.files.log_files import FULL_BYTES
from clawrl_gym.core.loggers import make_logger
from clawrl_gym.core.provenance import record_start
from clawrl_gym.core.types import Json, JsonObject

METRICS_FILE = "metrics.jsonl"
HELDOUT_FILE = "heldout.jsonl"
"""Tasks that each held-out evaluation solved, and their rewards; reports compare them."""
TIMELINE_FILE = "timeline.jsonl"
TEACHER_PROBE_FILE = "teacher_probe.json"
"""How the policy at the run's start responds to hints, where that was measured."""

Loop = Literal["serve", "collect", "judge", "train"]
LOOPS: tuple[Loop, ...] = ("serve", "collect", "judge", "train")

HELDOUT_SUCCESS = "heldout/success"
HELDOUT_N = "heldout/n"
HELDOUT_LOST = "heldout/lost"
HELDOUT_LOW = "heldout/low"
HELDOUT_HIGH = "heldout/high"
HELDOUT_DEADLINES = "heldout/deadlines"
"""Tasks that the agent did not end in time; failures, and part of n."""
HELDOUT_LAST_VERSION = "heldout/last_version"
"""Policy version at the end of an evaluation that began at the version of its step."""
HELDOUT_REWARD = "heldout/reward"
"""Mean reward of the held-out episodes."""
HELDOUT_REWARD_LOW = "heldout/reward_low"
HELDOUT_REWARD_HIGH = "heldout/reward_high"
SAMPLED_SUCCESS = "heldout/sampled_success"
"""`heldout/success` for replies at the policy's own temperature."""
SAMPLED_SUCCESS_LOW = "heldout/sampled_success_low"
SAMPLED_SUCCESS_HIGH = "heldout/sampled_success_high"
SAMPLED_REWARD = "heldout/sampled_reward"
SAMPLED_REWARD_LOW = "heldout/sampled_reward_low"
SAMPLED_REWARD_HIGH = "heldout/sampled_reward_high"
HELDOUT_SAMPLES = "heldout/samples"
"""Episodes of each task that pass@k was estimated from."""
HELDOUT_SAMPLES_LOST = "heldout/samples_lost"
PASS_PREFIX = "heldout/pass@"
HELDOUT_OWN = (
    HELDOUT_SUCCESS, HELDOUT_N, HELDOUT_LOST, HELDOUT_LOW, HELDOUT_HIGH, HELDOUT_DEADLINES,
    HELDOUT_LAST_VERSION, HELDOUT_SAMPLES, HELDOUT_SAMPLES_LOST,
    HELDOUT_REWARD, HELDOUT_REWARD_LOW, HELDOUT_REWARD_HIGH,
    SAMPLED_SUCCESS, SAMPLED_SUCCESS_LOW, SAMPLED_SUCCESS_HIGH,
    SAMPLED_REWARD, SAMPLED_REWARD_LOW, SAMPLED_REWARD_HIGH,
)  # fmt: skip
"""Measured for every environment; others under `heldout/` are an environment's own scores."""
ALSO_PREFIX = "also/"
"""Prefix of held-out results in another environment than the run's own: `also/NAME/success`."""
FAMILY_PREFIX = "train/success/"
ENV_PREFIX = "env/"
"""Prefix of one environment of a mixture: `env/NAME/train/success`, `env/NAME/heldout/success`."""
ERRORS_PREFIX = "errors/"
"""Episodes that infrastructure ended, by kind: run again, never rewarded."""
FAILURES_PREFIX = "failures/"
"""Episodes that the agent itself kept from being graded, by kind: a deadline, a spoilt grade."""
RETURNED_TO = "learner/returned_to"
"""The version whose weights were restored, of an update without a batch."""
REFUSED = "guard/refused"
"""1 for an update that the guards refused; `guard/refused/NAME` stands beside it for each guard
that refused."""
NO_GRADIENT = "learner/no_gradient"
"""1 for an update that had no gradient; `no_gradient/CAUSE` stands beside it."""
NO_GRADIENT_PREFIX = "no_gradient/"
REFERENCE_LOGPROB = "language/reference_logprob"
"""Mean log-prob per token of the policy's replies to held-out tasks before the first update."""
REPLY_TOKENS = "language/reply_tokens"
"""Mean sampled tokens per reply in a batch."""
STEP_S = "learner/step_s"
"""Seconds that the learner's step took."""
LOWEST_STEP = "rewards/lowest_step"
"""The lowest step reward that the environment has given, where it is below 0."""
LOWEST_RETURN = "rewards/lowest_return"
"""The lowest reward of a whole episode."""
REQUESTS_PREFIX = "requests/"
"""Counts of invalid Unicode texts, untrainable turns and fields without effect, since the process
began."""
ELAPSED_S = "time/elapsed_s"
LEFT_S = "time/left_s"

_log = logging.getLogger(__name__)

MetricRow = dict[str, float]
"""The numbers of one step by metric name, with `step` and, in Unix seconds, `time_s`."""


def wilson(successes: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval of a share, 95 % by default; (0, 1) when nothing was tried."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    scale = 1 + z * z / n
    middle = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (middle - spread) / scale, (middle + spread) / scale
    return (low if successes else 0.0), (high if successes < n else 1.0)  # exact at the ends


def in_env(env: str, values: Mapping[str, float]) -> dict[str, float]:
    """Metrics of one environment of a mixture, under their names there."""
    return {f"{ENV_PREFIX}{env}/{name}": value for name, value in values.items()}


def envs_of(values: Mapping[str, float], names: Collection[str]) -> dict[str, dict[str, float]]:
    """Metrics of these names by environment; a run of one environment has the empty name."""
    found: dict[str, dict[str, float]] = {}
    for metric, value in values.items():
        for name in names:
            env = metric.removeprefix(ENV_PREFIX).removesuffix(f"/{name}")
            if metric == name:
                found.setdefault("", {})[name] = value
            elif metric == f"{ENV_PREFIX}{env}/{name}":
                found.setdefault(env, {})[name] = value
    return found


def mean_scores(scores: Sequence[Mapping[str, float]], prefix: str) -> dict[str, float]:
    """The mean of each score over the episodes that have it, as `prefix/name`."""
    names = sorted({name for own in scores for name in own})
    values = {name: [own[name] for own in scores if name in own] for name in names}
    return {f"{prefix}/{name}": sum(each) / len(each) for name, each in values.items()}


def heldout_values(successes: int, n: int, lost: int = 0) -> dict[str, float]:
    """The metrics of one held-out evaluation that measured n tasks and lost some.

    The outcome of lost tasks is unknown: the interval goes from all of them failed to all of them
    solved.
    """
    low, high = wilson(successes, n + lost)[0], wilson(successes + lost, n + lost)[1]
    share = successes / n if n else 0.0
    return {
        HELDOUT_SUCCESS: share,
        HELDOUT_N: n,
        HELDOUT_LOST: lost,
        HELDOUT_LOW: low,
        HELDOUT_HIGH: high,
    }


def pass_at_k(n: int, solved: int, k: int) -> float:
    """The probability that one of k attempts solves a task, of whose n attempts `solved` did.

    Unbiased for n of at least k: 1 - C(n - c, k) / C(n, k); Chen et al. 2021, equation 1.
    """
    if not 0 <= solved <= n or not 0 < k <= n:
        raise ValueError(f"got n={n}, solved={solved}, k={k}, expected 0 <= solved <= n >= k > 0")
    return 1.0 - math.comb(n - solved, k) / math.comb(n, k)


def best_heldout(rows: Iterable[MetricRow], steps: Collection[int]) -> int | None:
    """The last of the `steps` that did best on held-out tasks; None when none was tried."""
    tried = [row for row in rows if HELDOUT_SUCCESS in row and row["step"] in steps]
    best = max(tried, key=lambda row: (row[HELDOUT_SUCCESS], row["step"]), default=None)
    return None if best is None else int(best["step"])


_VALUES = {"positive": 1.0, "neutral": 0.0, "negative": -1.0}


def judged_shares(counts: Mapping[str, float]) -> dict[str, float]:
    """Shares of verdicts as `judge/NAME`, from a judge's counts over some time.

    A share of nothing is left out: no vote at all is not 0 % of invalid votes.
    """
    clear = {name: counts.get(name, 0) for name in _VALUES}
    judged = sum(clear.values()) + counts.get("abstained", 0)
    compared = counts.get("agree", 0) + counts.get("disagree", 0)
    parts = {
        "abstained": (counts.get("abstained", 0), judged),
        "hinted": (counts.get("hints", 0), judged),
        "mean": (sum(_VALUES[name] * n for name, n in clear.items()), sum(clear.values())),
        "hints_refused": (counts.get("hints_refused", 0), counts.get("hints_asked", 0)),
        "votes_invalid": (counts.get("votes_invalid", 0), counts.get("votes", 0)),
        "agreement": (counts.get("agree", 0), compared),
    }
    return {f"judge/{name}": part / whole for name, (part, whole) in parts.items() if whole}


class RateWindow:
    """Amount per second over the last `window_s` seconds, or a longer time; not thread-safe."""

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._events: deque[tuple[float, float]] = deque()
        self._first_s: float | None = None

    def add(self, amount: float, now_s: float | None = None) -> None:
        """Count `amount` at `now_s` (monotonic; None is now)."""
        now_s = time.monotonic() if now_s is None else now_s
        self._first_s = now_s if self._first_s is None else self._first_s
        self._events.append((now_s, amount))

    def rate(self, now_s: float | None = None, since_s: float | None = None) -> float:
        """Amount per second; a window that is not full yet is divided by its age, at least a
        second.

        `since_s`: a window that would begin later begins there, so that it holds a whole update.
        Amounts older than the window are forgotten.
        """
        now_s = time.monotonic() if now_s is None else now_s
        begin_s = now_s - self._window_s
        begin_s = begin_s if since_s is None else min(begin_s, since_s)
        while self._events and self._events[0][0] <= begin_s:
            self._events.popleft()
        if self._first_s is None:
            return 0.0
        age_s = min(now_s - begin_s, max(1.0, now_s - self._first_s))
        return sum(amount for _, amount in self._events) / age_s


def by_step(rows: Iterable[Json]) -> list[MetricRow]:
    """One row per step, in order; of a value logged twice (a resumed run) the later one counts."""
    merged: dict[int, MetricRow] = {}
    for row in rows:
        step = row.get("step")
        if isinstance(step, int):
            merged.setdefault(step, {}).update(_numbers(row))
    return [merged[step] for step in sorted(merged)]


def _numbers(row: Json) -> MetricRow:
    return {name: value for name, value in row.items() if isinstance(value, int | float)}


def solved_by_step(folder: Path) -> dict[int, dict[str, bool]]:
    """Tasks that each held-out evaluation of a run solved, by the number of updates before it;
    empty for a run of an earlier version."""
    evaluations: dict[int, dict[str, bool]] = {}
    for row in read_json_lines(folder / HELDOUT_FILE):
        step, solved = row.get("step"), row.get("solved")
        if isinstance(step, int) and isinstance(solved, dict):
            evaluations[step] = {str(task): value is True for task, value in solved.items()}
    return evaluations


RewardKind = Literal["reward", "sampled_reward"]
"""Reward of the episode at `eval.temperature`, or of those at the policy's own temperature."""


def rewards_by_step(folder: Path, kind: RewardKind) -> dict[int, dict[str, float]]:
    """Rewards of each held-out evaluation of a run by task, by the number of updates before it;
    evaluations without them are left out."""
    evaluations: dict[int, dict[str, float]] = {}
    for row in read_json_lines(folder / HELDOUT_FILE):
        step, rewards = row.get("step"), row.get(kind)
        if isinstance(step, int) and isinstance(rewards, dict):
            evaluations[step] = {str(task): float(one) for task, one in rewards.items()}
    return evaluations


class Metrics:
    """metrics.jsonl and the optional logger of one run."""

    def __init__(
        self, folder: Path, logger: str, config: dict[str, object], full_bytes: int = FULL_BYTES
    ) -> None:
        """`full_bytes`: size of a file before the next one begins."""
        options = config.get("logger_options")
        self._logger = make_logger(
            logger, options if isinstance(options, Mapping) else {}, folder, redact.hidden(config)
        )
        self._lines = RotatedLines(folder / METRICS_FILE, full_bytes)
        self._folder = folder
        self._rows: list[Json] = list(read_json_lines(folder / METRICS_FILE))
        self.latest: dict[str, float] = {}
        """The last value of every metric."""
        for row in self._rows:
            self.latest.update(_numbers(row))
        record_start(folder)

    @property
    def history(self) -> list[MetricRow]:
        """One row a step, earlier parts of a resumed run included."""
        return by_step(self._rows)

    def log_tasks(
        self,
        step: int,
        solved_by_task: Mapping[str, bool],
        rewards: Mapping[RewardKind, Mapping[str, float]] = MappingProxyType({}),
    ) -> None:
        """Append the tasks that a held-out evaluation after `step` updates solved, and their
        rewards, for each kind of episode that was measured."""
        known: JsonObject = {kind: dict(own) for kind, own in rewards.items() if own}
        with closing(JsonLines(self._folder / HELDOUT_FILE)) as lines:
            lines.append({"step": step, "solved": dict(solved_by_task), **known})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line; a value that is not finite is written as null."""
        finite = {name: float(v) for name, v in values.items() if math.isfinite(v)}
        missing = {name: None for name in values if name not in finite}
        row = {"step": int(step), "time_s": round(time.time(), 3), **finite}
        self._lines.append({**row, **missing})
        self._rows.append(row)
        self.latest.update(finite)
        if self._logger is not None:
            with self._lenient("log"):
                self._logger.log(step, finite)

    def close(self) -> None:
        """Flush and close everything; idempotent."""
        self._lines.close()
        if self._logger is not None:
            with self._lenient("close"):
                self._logger.close()
            self._logger = None

    @contextmanager
    def _lenient(self, method: str) -> Iterator[None]:
        """A logger that fails does not stop the run: metrics.jsonl has every number."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (the border to a logger of anybody's)
            _log.warning("the logger's %s raised %s: %s", method, type(error).__name__, error)


class Timeline:
    """timeline.jsonl: what each of the four loops did when (Unix seconds). Thread-safe."""

    def __init__(self, folder: Path, full_bytes: int = FULL_BYTES) -> None:
        """`full_bytes`: size of a file before the next one begins."""
        self._lines = RotatedLines(folder / TIMELINE_FILE, full_bytes)

    def add(self, loop: Loop, name: str, start_s: float, end_s: float, **details: object) -> None:
        """Record one span that has ended."""
        if loop not in LOOPS:
            raise ValueError(f"got loop {loop!r}, expected one of {LOOPS}")
        times = {"start_s": round(start_s, 4), "end_s": round(end_s, 4)}
        self._lines.append({"loop": loop, "name": name, **times, **details})

    @contextmanager
    def span(self, loop: Loop, name: str, **details: object) -> Iterator[None]:
        """Record the block; one that raised is recorded with `error`."""
        start_s = time.time()
        try:
            yield
        except BaseException as error:
            self.add(loop, name, start_s, time.time(), **details, error=type(error).__name__)
            raise
        self.add(loop, name, start_s, time.time(), **details)

    def close(self) -> None:
        self._lines.close()
