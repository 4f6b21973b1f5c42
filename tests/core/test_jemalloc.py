"""The allocator that a learner on the CPU is started with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clawrl_gym.core.processes.jemalloc import jemalloc_variables

_MAPS = "print(open('/proc/self/maps').read())"


def test_a_process_started_with_it_allocates_by_jemalloc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    environment = os.environ | jemalloc_variables()
    done = subprocess.run(
        [sys.executable, "-c", _MAPS], env=environment, capture_output=True, text=True, check=True
    )
    assert "jemalloc" in done.stdout
    assert not done.stderr


def test_an_allocator_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libtcmalloc_minimal.so.4")
    assert jemalloc_variables() == {}
