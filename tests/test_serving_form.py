"""Which runs serve adapters, and which merged weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import AdapterConfig, RunConfig
from clawrl_gym.policy.models import Device
from clawrl_gym.run.adapters import served_adapter, serving_problems
from clawrl_gym.run.needs import served_adapter_bytes
from tests.reference.tiny_model import write_tiny_qwen3


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


def test_what_adapters_take_of_the_engine_grows_with_their_number_and_rank(tmp_path: Path) -> None:
    model = Path(write_tiny_qwen3(tmp_path))
    policy = make_config().policy
    of_8 = served_adapter_bytes(policy, AdapterConfig(rank=8), model)
    units = sum([32 + 32, 2 * (32 + 16), 32 + 32, 3 * (32 + 48)])  # q, k and v, o, the MLP's
    assert of_8 == policy.max_adapters * 2 * 8 * units * 4
    assert served_adapter_bytes(policy, AdapterConfig(rank=2), model) == of_8, "vLLM's next rank"
    more = policy.model_copy(update={"max_adapters": 2 * policy.max_adapters})
    assert served_adapter_bytes(more, AdapterConfig(rank=16), model) == 4 * of_8
