"""Threads of engine and learner follow the cores of the machine."""

from __future__ import annotations

import os

import pytest

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.provenance import threads_of
from clawrl_gym.inference.vllm import launch


@pytest.fixture
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


@pytest.mark.usefixtures("sixteen_cores")
def test_auto_takes_half_of_the_cores_and_shares_them_among_processes() -> None:
    assert [threads_of("auto"), threads_of("auto", 4), threads_of("auto", 32)] == [8, 2, 1]
    assert [threads_of("all"), threads_of("all", 4)] == [16, 4]
    assert threads_of(3, 4) == 3


@pytest.mark.usefixtures("sixteen_cores")
@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({"threads": "auto"}, "8"),
        ({"threads": "auto", "servers": 4}, "2"),
        ({"threads": "auto", "servers": 4, "placement": "nodes"}, "8"),
        ({"threads": 2, "servers": 4}, "2"),
        ({}, "1"),
    ],
)
def test_servers_of_one_machine_share_its_cores(settings: dict[str, object], threads: str) -> None:
    config = PolicyConfig.model_validate(settings)
    assert launch.environment(config, "k", "cpu", {})["OMP_NUM_THREADS"] == threads
