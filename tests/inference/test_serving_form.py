"""Which runs serve adapters, and which merged weights."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.config import RunConfig
from clawrl_gym.inference.device import Device
from clawrl_gym.preflight.adapters import served_adapter, serving_problems


def make_config(serve: str = "auto", rank: int = 8, **changes: Any) -> RunConfig:
    learner = {"adapter": {"rank": rank}} | changes.pop("learner", {})
    policy = {"serve": serve} | changes.pop("policy", {})
    return RunConfig.model_validate({"learner": learner, "policy": policy, **changes})


@pytest.mark.parametrize(
    ("config", "device", "has_users", "expected"),
    [
        (make_config(), "cpu", False, False),
        (make_config(), "cuda", False, True),
        (make_config(), "cpu", True, True),
        (make_config("adapters"), "cpu", False, True),
        (make_config("weights"), "cuda", True, False),
        (make_config(learner={"adapter": None}), "cuda", True, False),
        (make_config(learner={"backend": "simulated"}), "cuda", False, False),
        (make_config(policy={"placement": "nodes"}), "cuda", False, False),
        (make_config(rank=600), "cuda", False, False),
    ],
)
def test_adapters_are_served_where_they_are_wanted_and_can_be(
    config: RunConfig, device: Device, has_users: bool, expected: bool
) -> None:
    form = served_adapter(config, device, has_users=has_users)
    assert (form is not None) is expected
    assert served_adapter(config, device, sees=True, has_users=has_users) is None


def test_what_cannot_be_served_is_refused_only_where_it_was_asked_for() -> None:
    assert list(serving_problems(make_config(rank=600, policy={"placement": "nodes"}))) == []
    both = make_config("adapters", rank=600, policy={"placement": "nodes"})
    lines = list(serving_problems(both, sees=True))
    assert len(lines) == 3
    assert all("expected" in line and "policy.serve=weights" in line for line in lines)
