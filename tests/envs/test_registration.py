"""Environments are found by id, by plug-in and by import path, always from strings."""

import subprocess
import sys

import gymnasium
import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import load
from clawrl_gym.envs.registration import builtin_specs, make_env


def test_importing_the_package_loads_no_heavy_module() -> None:
    heavy = "{'torch', 'ray', 'vllm', 'transformers', 'aiohttp', 'rich', 'pydantic'}"
    code = f"import clawrl_gym, sys; print(sorted({heavy} & set(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert output.stdout.strip() == "[]"


def test_our_ids_are_registered_as_strings() -> None:
    for spec in builtin_specs():
        assert isinstance(spec.entry_point, str)
        assert spec.id.startswith("ClawRL/")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_colon", "expected 'package.module:Name'"),
        ("no_such_module_at_all:X", "cannot import 'no_such_module_at_all'"),
        ("json:Nothing", "module 'json' has no 'Nothing'"),
    ],
)
def test_a_wrong_target_says_what_is_missing(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(target, f"env.target={target!r}")


def test_a_target_that_is_no_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"made a Fraction, expected a gymnasium\.Env"):
        make_env(None, "fractions:Fraction", {})


def test_an_unknown_id_says_what_there_is() -> None:
    with pytest.raises(
        ConfigError, match=r"no environment is registered as 'Nope-v0'.*env\.target"
    ):
        make_env("Nope-v0", None, {})


def test_a_registered_id_of_somebody_else_is_made() -> None:
    env = make_env("CartPole-v1", None, {})
    assert isinstance(env, gymnasium.Env)
    env.close()
