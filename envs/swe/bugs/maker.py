"""Makes bugs in a repository: tries mutations until enough of them are noticed, and writes rows.

What is tried, in which order, and what becomes of it follows from commit, command and seed alone,
however often it is stopped and resumed, and however many run at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.types import Split
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.swe.bugs.attempts import Attempt, Attempts
from clawrl_gym.envs.swe.bugs.candidates import ENOUGH_UNNOTICED, Candidates
from clawrl_gym.envs.swe.bugs.head import Head
from clawrl_gym.envs.swe.bugs.issue import issue_text
from clawrl_gym.envs.swe.bugs.mutations import Mutation
from clawrl_gym.envs.swe.bugs.suite import LOG_PARSER, Baseline, Suite, TestsHang, script_of
from clawrl_gym.envs.swe.diff import git_diff
from clawrl_gym.envs.swe.evaluation import PatchFails
from clawrl_gym.envs.swe.patch_reader import parse_patch
from clawrl_gym.envs.swe.rows.archive import open_archive

ARCHIVE = "repository.tar.gz"
_HELDOUT_SHARE = 5
"""One function in about this many is held out."""
_UNNOTICED = "no test fails with it"
_MOST_BROKEN = 5
"""Sandboxes that fail one after another, after which it is the machine that is broken."""

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Bugs:
    """The bugs that were made."""

    rows: dict[Split, list[Row]]
    selection: Selection
    """Number of bugs, and why the other mutations are none."""


@dataclass(frozen=True, slots=True)
class BugMaker:
    """Makes the bugs of one repository into one folder."""

    head: Head
    folder: Path
    suite: Suite
    candidates: Candidates
    attempts: Attempts
    baseline: Baseline
    say: Callable[[int, int], None]
    """Hears how many bugs there are, and how many mutations were tried."""

    def make(self, count: int, jobs: int) -> None:
        """Try until there are enough bugs or no more mutations. Raises EnvError when it breaks.

        What runs when it ends early is not waited for.
        """
        bugs = tried = broken = 0
        pool = ThreadPoolExecutor(jobs)
        try:
            for batch in self._batches(jobs):
                for attempt in pool.map(self._attempt, batch):
                    tried += 1
                    broken = broken + 1 if attempt.name not in self.attempts.by_name else 0
                    bugs += not attempt.reason
                    self.say(bugs, tried)
                    if broken >= _MOST_BROKEN:
                        raise EnvError(attempt.reason)
                if bugs >= count:
                    return
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def write(self, count: int) -> Bugs:
        """Write the rows of the first bugs, in the order of their mutations."""
        ordered = [
            mutation
            for batch in self.candidates.rounds(self._is_done)
            for mutation in batch
            if mutation.name in self.attempts.by_name
        ]
        tried = [(mutation, self.attempts.by_name[mutation.name]) for mutation in ordered]
        bugs = [(mutation, attempt) for mutation, attempt in tried if not attempt.reason][:count]
        left_out = [
            *self.candidates.left_out,
            *(LeftOut(_told(one), attempt.reason) for one, attempt in tried if attempt.reason),
        ]
        splits = split_by_place(mutation.place for mutation, _ in bugs)
        rows: dict[Split, list[Row]] = {"train": [], "heldout": []}
        issues = dict[str, Split]()
        for mutation, attempt in bugs:
            split = splits[mutation.place]
            if issues.setdefault("".join(attempt.issue.split()), split) != split:
                reason = "its issue reads as that of a bug in the other split"
                left_out.append(LeftOut(_told(mutation), reason))
                continue
            rows[split].append(self._row(mutation, attempt))
        for split, split_rows in rows.items():
            text = "".join(f"{json.dumps(row)}\n" for row in split_rows)
            replace_text(self.folder / f"{split}.jsonl", text)
        return Bugs(rows, Selection(sum(map(len, rows.values())), tuple(left_out)))

    def _batches(self, jobs: int) -> Iterable[Sequence[Mutation]]:
        """Small enough that little is tried for nothing once there are enough."""
        for mutations in self.candidates.rounds(self._is_done):
            for start in range(0, len(mutations), jobs):
                yield mutations[start : start + jobs]

    def _is_done(self, mutations: Sequence[Mutation]) -> bool:
        """Whether tests have shown that they do not look at a function."""
        attempts = self.attempts.by_name
        tried = [attempts[one.name] for one in mutations if one.name in attempts]
        return len(tried) >= ENOUGH_UNNOTICED and not any(one.is_noticed for one in tried)

    def _attempt(self, mutation: Mutation) -> Attempt:
        """The known result of a mutation, or that of its tests now."""
        if mutation.name in self.attempts.by_name:
            return self.attempts.by_name[mutation.name]
        try:
            attempt = self._try(mutation)
        except EnvError as error:  # not kept: it is tried again
            return Attempt(mutation.name, f"its sandbox failed: {error}")
        self.attempts.add(attempt)
        return attempt

    def _try(self, mutation: Mutation) -> Attempt:
        text = self.candidates.texts[mutation.path]
        changed = mutation.applied(text)
        if changed is None:
            return Attempt(mutation.name, "it means the same, or is no Python", is_noticed=False)
        patch = parse_patch(git_diff({mutation.path: text}, {mutation.path: changed}))
        try:
            run = self.suite.run(patch, self.baseline.limit_s)
        except TestsHang:
            return Attempt(mutation.name, f"the tests run past {self.baseline.limit_s} s with it")
        except PatchFails as failure:
            return Attempt(mutation.name, f"its tests cannot be judged: {failure}")
        failing = [test for test in self.baseline.passing if test not in run.passing]
        if not failing:
            return Attempt(mutation.name, _UNNOTICED, is_noticed=False)
        if len(failing) == len(self.baseline.passing):
            return Attempt(mutation.name, "every test fails with it")
        if run.exit_code == 0:
            return Attempt(mutation.name, "tests fail with it, but the test command ends with 0")
        issue = issue_text(run.log, failing, mutation.path, int(mutation.name, 16))
        return Attempt(mutation.name, "", tuple(failing), issue)

    def _row(self, mutation: Mutation, attempt: Attempt) -> Row:
        """The row in SWE-bench's fields, and where the repository lies."""
        text = self.candidates.texts[mutation.path]
        changed = mutation.applied(text) or text
        broken = frozenset(attempt.fail_to_pass)
        return {
            "instance_id": f"{self.head.name}-{mutation.name}",
            "repo": self.head.name,
            "base_commit": self.head.commit,
            "problem_statement": attempt.issue,
            "patch": git_diff({mutation.path: changed}, {mutation.path: text}),
            "FAIL_TO_PASS": list(attempt.fail_to_pass),
            "PASS_TO_PASS": [test for test in self.baseline.passing if test not in broken],
            "log_parser": LOG_PARSER,
            "eval_script": script_of(self.suite.command, self.baseline.limit_s),
            "repository": ARCHIVE,
            "repository_sha256": open_archive(str(self.folder / ARCHIVE)).sha256,
            "python": self.suite.instance.python,
            "function": mutation.place,
            "mutation": mutation.kind,
        }


def split_by_place(places: Iterable[str]) -> dict[str, Split]:
    """A function belongs to one split by its name, so that a held-out bug is in none of training's;
    where that leaves one of them empty, one function of two or more goes there."""
    order = sorted(set(places), key=_digest)
    held_out = {place for place in order if int(_digest(place)[:8], 16) % _HELDOUT_SHARE == 0}
    if len(order) > 1:
        held_out = held_out or {order[0]}
        held_out -= {order[-1]} if len(held_out) == len(order) else set()
    return {
        place: "heldout" if place in held_out and len(order) > 1 else "train" for place in order
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _told(mutation: Mutation) -> str:
    return f"{mutation.place} ({mutation.kind})"
