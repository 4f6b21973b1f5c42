"""The wheel in an environment of its own, outside of the checkout: trains, exports, serves."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.runs import ROOT
from tests.e2e.serving import Serving
from tests.support import packages

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.sandbox,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]
SMALL = ("rollout.groups=4", "rollout.group_size=4", "eval.tasks=8", "rollout.envs_per_worker=16")


@dataclass
class Outside:
    """A folder of nobody's, and the programs of an environment that holds the wheel."""

    folder: Path
    programs: Path

    def run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """With a run of one update, and the wheel made from the source archive."""
    folder = tmp_path_factory.mktemp("outside")
    source = packages.unpack(packages.build("sdist", ROOT, folder), folder)
    python = packages.environment(packages.build("wheel", source, folder), folder / "venv")
    outside = Outside(folder, python.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        outside.run("clawrl-train", "trainer.steps=1", "run.dir=first", "ui=line", *SMALL)
        yield outside


def test_the_code_is_the_wheels(outside: Outside) -> None:
    place = outside.run("python", "-c", "import clawrl_gym.envs; print(clawrl_gym.envs.__file__)")
    assert Path(place).is_relative_to(outside.folder / "venv")


def test_it_trains_and_leaves_a_model_that_it_exports(outside: Outside) -> None:
    assert (outside.folder / "first" / "report.html").is_file()
    outside.run("clawrl-export", "first", "exported")
    assert (outside.folder / "exported" / "config.json").is_file()


@pytest.mark.nightly
def test_it_serves_and_evaluates(outside: Outside) -> None:
    python = str(outside.programs / "python")
    serving = Serving(outside.folder / "live", python=python, cwd=outside.folder)
    try:
        reply = serving.chat("one", [{"role": "user", "content": "hello"}])
    finally:
        assert serving.stop() == 130
    assert reply["role"] == "assistant"
    summary = outside.run("clawrl-evaluate", "env=toolcall", "eval.tasks=4")
    assert " of 4" in summary or "n = 4" in summary, summary
