"""Defaults are said once: in clawrl_gym/config/. Files of conf/ say what differs from them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import clawrl_gym as cg
from clawrl_gym import bench, evaluate, rejudge, serve, sft, train
from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import conf_dir, groups_of
from clawrl_gym.core.plugins import ENVIRONMENTS
from clawrl_gym.recipe.configure import Command
from clawrl_gym.run.help import keys_of, short

COMMANDS = {
    "train": train.main,
    "sft": sft.main,
    "serve": serve.main,
    "evaluate": evaluate.main,
    "rejudge": rejudge.main,
    "bench": bench.main,
}
NAMES_THE_OPTION = re.compile(
    r"(policy\.model|\w+\.type|trainer\.loss\.type|rollout\.mode|trainer\.algorithm|learner\.backend)"
)
"""Keys that make an option what it is, the usual one too."""


def leaves(values: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def printed_values(
    capsys: pytest.CaptureFixture[str], command: str, *arguments: str
) -> dict[str, str]:
    """By key, what `--help` prints."""
    assert COMMANDS[command]([*arguments, "--help"]) == 0
    lines = capsys.readouterr().out.partition("Keys (")[2].splitlines()[1:]
    rows = [line for line in lines if line.startswith("  ")]
    return {row.split()[0]: row[37:] for row in rows}


def test_a_configuration_made_in_python_is_the_run_of_single_commands() -> None:
    """The commands' own default environment brings weights that suit it alone."""
    assert cg.load_config(["env=terminal"], "train") == cg.RunConfig()
    assert cg.load_config(["env=terminal"], "evaluate") == cg.EvaluateConfig()
    assert cg.load_config([], "bench") == cg.BenchConfig()


def test_the_default_of_serving_is_that_of_training_but_for_what_its_file_says() -> None:
    """The judge's rules and those of OpenClaw are files of their own, which serving takes."""
    composed = dict(leaves(cg.load_config([], "serve").model_dump(mode="json")))
    plain = dict(leaves(ServeConfig().model_dump(mode="json")))
    differing = {
        key for key in composed.keys() | plain.keys() if composed.get(key) != plain.get(key)
    }
    said = set(dict(leaves(yaml.safe_load((conf_dir() / "serve.yaml").read_text()))))
    rest = {key for key in differing - said if not key.startswith(("judge.", "live."))}
    hybrid = ("algorithm", "distillation.form", "distillation.teacher")
    assert rest == {f"trainer.{key}" for key in hybrid}


def file_name(path: Path) -> str:
    return str(path.relative_to(conf_dir()))


@pytest.mark.parametrize("path", sorted(conf_dir().glob("*/*.yaml")), ids=file_name)
def test_no_option_repeats_a_default(path: Path) -> None:
    group = path.parent.name
    if group == "experiment":  # says what a recipe is, whatever policy stands before it
        return
    text = path.read_text()
    values = {key: value for key, value in yaml.safe_load(text).items() if key != "defaults"}
    package = re.search(r"@package (\S+)", text)
    prefix = "" if package and package[1] == "_global_" else f"{package[1] if package else group}."
    kind = next((word for word in path.stem.split("_") if word in ENVIRONMENTS.builtin), "terminal")
    env = ENVIRONMENTS.resolve(kind).target()
    defaults = dict(leaves(cg.RunConfig(env=env).model_dump(mode="json")))
    between = set() if group == "size" else keys_of_sizes()
    repeated = {
        key: value
        for key, value in leaves(values, prefix)
        if defaults.get(key) == value and key not in between and not NAMES_THE_OPTION.fullmatch(key)
    }
    assert not repeated


def keys_of_sizes() -> set[str]:
    """What an option of conf/size/ says, which one composed later may take back to the default."""
    files = (conf_dir() / "size").glob("*.yaml")
    return {key for file in files for key, _ in leaves(yaml.safe_load(file.read_text()) or {})}


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("train", []),
        ("train", ["env=gui", "trainer=opd", "judge=model"]),
        ("train", ["env=swe", "policy=qwen3_4b"]),
        ("serve", []),
        ("serve", ["policy=qwen3_0_6b", "judge=none"]),
        ("evaluate", ["env=toolcall"]),
        ("rejudge", ["runs/NAME", "judge=none"]),
        ("sft", ["chats.jsonl", "policy=qwen3_4b", "learner=lora"]),
        ("sft", ["demonstrations=3", "env=toolcall"]),
        ("bench", ["seeds=5"]),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else part,
)
def test_help_prints_the_run_that_was_composed(
    command: Command, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = printed_values(capsys, command, *arguments)
    composed = {key: short(value) for key, value, _ in keys_of(cg.load_config(arguments, command))}
    assert printed.keys() == composed.keys()
    assert [key for key in composed if not printed[key].startswith(composed[key])] == []
    assert "PydanticUndefined" not in str(printed)


def test_help_lists_the_keys_of_the_environment_at_hand_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = printed_values(capsys, "train", "env=gui")
    assert "env.browser.contexts_per_browser" in printed
    assert "env.sandbox.pids" not in printed
    assert printed["trainer.steps"].startswith("10")


def test_help_with_a_mistake_says_the_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--help", "env=gu"]) == 2
    assert "did you mean 'gui'?" in capsys.readouterr().err


def test_every_group_of_a_command_stands_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    train.main(["-h"])
    printed = capsys.readouterr().out
    assert all(f"  {group} " in printed for group in groups_of("train"))


@pytest.mark.parametrize("env", ["terminal", "toolcall", "gui", "swe", "conversation"])
def test_every_environment_can_be_evaluated(env: str) -> None:
    assert cg.load_config([f"env={env}"], "evaluate").env.type == env
