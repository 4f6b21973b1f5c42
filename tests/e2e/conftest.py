"""What several files of this folder share: they run in one worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import runs


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run that is long enough to learn something."""
    folder = tmp_path_factory.mktemp("main") / "run"
    runs.train(
        folder,
        "env=terminal",
        f"trainer.steps={runs.TRAINED_STEPS}",
        "eval.tasks=44",
        "rollout.groups=8",
        "seed=1",
        f"learner.remote_checkpoints={folder.parent / 'there'}",
    )
    return folder
