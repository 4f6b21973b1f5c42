"""The `serve` that the tests of several files talk to, and the one whose users have weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawrl_gym.store.users import Users
from tests.e2e.serving import Serving

USERS = ("anna", "ben")
# Learning is what is tested, not its effect: the policy stays able to read a file.
ABLE = ("live.train_truncated=true", "learner.lr=1e-6", "policy.sampling.temperature=0.3")


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """It learns from rules and hints while it answers; who kills a part waits for its return."""
    folder = tmp_path_factory.mktemp("serve") / "run"
    yield from _served(folder, *ABLE, "trainer=hybrid", "live.batch_turns=4")


@pytest.fixture(scope="module")
def serving_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Its two users have weights of their own beside the owner's."""
    folder = tmp_path_factory.mktemp("users") / "run"
    for name in USERS:
        Users(folder).add(name)
    yield from _served(folder, *ABLE, "learner=lora", "live.batch_turns=2")


def _served(folder: Path, *overrides: str) -> Iterator[Serving]:
    one = Serving(folder, *overrides)
    try:
        one.wait_for("ready: talk to")
        one.wait_for("learner: ready")
        yield one
    finally:
        one.stop()
