"""The kinds of runs that are hit, and what each has beside what all have."""

from __future__ import annotations

from dataclasses import dataclass

MAX_STALENESS = 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of run."""

    overrides: tuple[str, ...]
    agent: str = ""
    """Whose replies are noted down."""
    parts: tuple[str, ...] = ()
    """Processes that runs of other kinds do not have."""
    serves: bool = False
    """It is `serve`, with clients that talk to it; it has no target."""
    judged: bool = False
    """By a server of its own process."""
    in_cluster: bool = False
    """The run is on a cluster of two machines."""
    in_docker: bool = False
    """On an engine of the harness's own."""


_MANY_DEATHS = "policy.max_restarts=1000"
"""Engines die in a row here, as they do nowhere else."""
_TRAINS = (
    "rollout.groups=4", "rollout.group_size=4", "rollout.workers=2", "rollout.envs_per_worker=8",
    f"rollout.max_staleness={MAX_STALENESS}", "eval.tasks=8", "eval.every=30",
    _MANY_DEATHS,
)  # fmt: skip
SCENARIOS = {
    "terminal": Scenario((*_TRAINS, "env=terminal"), "terminal", ("launcher", "sandbox")),
    "toolcall": Scenario(
        (*_TRAINS, "env=toolcall", "trainer=binary", "judge=model", "judge.votes=1",
         "judge.quorum=1", "judge.timeout_s=10"),
        "toolcall",
        judged=True,
    ),
    "serve": Scenario(
        ("live.batch_turns=4", "live.train_truncated=true", "live.flush_s=5", "learner.lr=1e-6",
         _MANY_DEATHS,
         f"live.max_staleness={MAX_STALENESS}"),
        parts=("gateway",),
        serves=True,
    ),
    "cluster": Scenario((*_TRAINS, "env=terminal"), "terminal", in_cluster=True),
    "docker": Scenario(
        (*_TRAINS, "env=terminal", "sandbox=docker", "rollout.envs_per_worker=2"),
        "terminal",
        in_docker=True,
    ),
    "gui": Scenario((*_TRAINS, "env=gui", "rollout.envs_per_worker=2"), "gui", ("chromium",)),
}  # fmt: skip
