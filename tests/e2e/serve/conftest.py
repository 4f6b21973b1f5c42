"""The one `serve` that the tests of several files talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.serving import Serving

# Learning is what is tested, not its effect: the policy stays able to read a file.
LEARNS = ("trainer=hybrid", "live.batch_turns=4", "live.train_truncated=true", "learner.lr=1e-6")


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """It learns from rules and hints while it answers; who kills a part waits for its return."""
    one = Serving(
        tmp_path_factory.mktemp("serve") / "run", *LEARNS, "policy.sampling.temperature=0.3"
    )
    try:
        one.wait_for("ready: talk to")
        one.wait_for("learner: ready")
        yield one
    finally:
        one.stop()
