"""What a run is refused for, it is refused for before it starts; a dry run refuses the same."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawrl_gym import bench, evaluate, rejudge, serve, sft, train
from clawrl_gym.inference.vllm.build import vllm_build
from tests.project.misuse import TABLE, Misuse, places

MAINS = {"train": train.main, "sft": sft.main, "serve": serve.main, "evaluate": evaluate.main,
         "rejudge": rejudge.main, "bench": bench.main}  # fmt: skip


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What stands for the table's placeholders."""
    other = "cpu" if vllm_build() == "cuda" else "cuda"
    with places(tmp_path_factory.mktemp("misuse") / "place") as found:
        yield {**found, "other_device": other}


@pytest.fixture(autouse=True)
def _a_machine_of_its_own(
    without_engine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No hub, no engine, and a folder without runs."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


def refusal(misuse: Misuse, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Each error on standard error; fails unless the command is refused as a configuration."""
    code = MAINS[misuse.command](arguments)
    printed = capsys.readouterr()
    assert code == 2, (code, printed)
    assert printed.out == ""
    return [line for line in printed.err.splitlines() if line.startswith("error: ")]


def test_there_are_at_least_forty_kinds() -> None:
    assert len({(misuse.command, misuse.arguments) for misuse in TABLE}) >= 40


def name_of(misuse: Misuse) -> str:
    return f"{misuse.command} {misuse.arguments}"


@pytest.mark.sandbox
@pytest.mark.parametrize("misuse", TABLE, ids=name_of)
def test_a_dry_run_refuses_it_in_words(
    misuse: Misuse, words: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = misuse.arguments.format(**words).split(" ")
    lines = refusal(misuse, [*arguments, "dry_run=true"], capsys)
    assert any(re.search(misuse.says, line) for line in lines), lines
    assert list(tmp_path.rglob("*")) == [], "nothing is left"


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "misuse",
    [
        pytest.param(misuse, marks=() if number % 7 == 0 else pytest.mark.nightly)
        for number, misuse in enumerate(TABLE)
    ],
    ids=name_of,
)
def test_the_run_itself_refuses_the_same_before_anything_starts(
    misuse: Misuse, words: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = misuse.arguments.format(**words).split(" ")
    expected = refusal(misuse, [*arguments, "dry_run=true"], capsys)
    lines = refusal(misuse, arguments, capsys)
    assert list(map(without_times, lines)) == list(map(without_times, expected))
    assert list(tmp_path.rglob("*")) == [], "nothing is left"


def without_times(text: str) -> str:
    """Names of runs have the time in them, and free memory comes and goes."""
    return re.sub(r"\d{8}-\d{6}|\d+\.\d GiB", "", text)


@pytest.mark.sandbox
def test_all_that_is_wrong_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["trainer=opd", "gateway.host=0.0.0.0", "env.families=[nope]", "policy.model=nobody"]
    assert train.main([*wrong, "dry_run=true"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4
