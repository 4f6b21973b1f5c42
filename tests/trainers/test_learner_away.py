"""A learner on another machine, without one: a dictionary carries the chunks."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.files.transfer import manifest_of, receive, send
from clawrl_gym.core.files.whole_folder import begin_folder, end_folder
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.models.source import ModelSource, source_of
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.simulated import SimulatedLearner
from clawrl_gym.trainers.updates.actor import LearnerActor, LearnerAway, LearnerSetup, files_below
from tests.support.tiny_models import write_safetensors


def setup_of(backend: str) -> LearnerSetup:
    learner = LearnerConfig(backend=backend, simulated_step_s=0)
    return LearnerSetup(TrainerConfig(), learner, 0, "cpu", 1.0)


class Whole(SimulatedLearner):
    """With all that a learner may have; says what it was asked."""

    def step(self, samples: object, version: int) -> tuple[object, ...]:  # type: ignore[override]
        return ("step", samples, version)

    def review(self, samples: list[Sample]) -> tuple[object, ...]:
        return ("review", samples)

    def probe(self) -> str:
        return "probe"

    def save_adapter(self, folder: str) -> None:
        Path(folder).mkdir()
        Path(folder, "adapter").write_text(str(self.updates))

    def use(self, user: str, folder: str | None) -> None:
        self.updates = 100 if folder is None else int(Path(folder, "updates").read_text())

    def forget(self, user: str) -> None:
        self.updates = -1


WHOLE = "tests.trainers.test_learner_away:Whole"
SAMPLE = Sample("s", 0, [1, 2], [False, True], [0.0, -1.0], [-1, 0], [0.0, 1.0], 1.0)
BATCH, NOTHING = SampleBatch.of([SAMPLE]), SampleBatch.of([])


class Network(list[bytes]):
    """Carries chunks."""

    def put(self, chunk: bytes) -> int:
        self.append(chunk)
        return len(self) - 1

    def fetch(self, handle: object) -> bytes:
        assert isinstance(handle, int)
        return self[handle]


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    write_safetensors(model / "model.safetensors", 9, 4)
    return source_of(model, str(model))


def begun(
    source: ModelSource, network: Network, cache: Path, backend: str = "simulated"
) -> LearnerAway:
    away = LearnerAway(network.put, network.fetch, str(cache))
    unseen = ModelSource("/not/here", source.manifest)
    if not away.find_model(unseen):
        away.take_model(send(source.manifest, network.put))
    away.begin(setup_of(backend), "auto")
    return away


def test_its_weights_and_checkpoints_arrive_and_another_one_goes_on_from_them(
    source: ModelSource, network: Network, tmp_path: Path
) -> None:
    away = begun(source, network, tmp_path / "cache")
    away.step(NOTHING, 0)
    away.step(NOTHING, 1)
    receive(away.send_weights(), tmp_path / "weights", network.fetch)
    own = Path(source.folder) / "model.safetensors"
    assert (tmp_path / "weights" / "model.safetensors").read_bytes() == own.read_bytes()

    checkpoint = tmp_path / "checkpoints" / "000002"
    receive(away.send_checkpoint(), begin_folder(checkpoint), network.fetch)
    end_folder(checkpoint)
    assert (checkpoint / "updates").read_text() == "2"

    second = begun(source, network, tmp_path / "cache")
    sent = send(manifest_of(files_below(checkpoint)), network.put)
    second.load_checkpoint(sent)
    second.step(NOTHING, 2)
    receive(second.send_checkpoint(), tmp_path / "third", network.fetch)
    assert (tmp_path / "third" / "updates").read_text() == "3"


def test_a_checkpoint_that_breaks_on_its_way_leaves_the_old_one(
    source: ModelSource, network: Network, tmp_path: Path
) -> None:
    away = begun(source, network, tmp_path / "cache")
    folder = tmp_path / "000001"
    receive(away.send_checkpoint(), begin_folder(folder), network.fetch)
    end_folder(folder)
    away.step(NOTHING, 1)
    sent = away.send_checkpoint()
    network[:] = [b"\1" * len(chunk) for chunk in network]
    with pytest.raises(Exception, match="not what was sent"):
        receive(sent, begin_folder(folder), network.fetch)
    assert (folder / "updates").read_text() == "0"
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_an_actor_passes_every_call_on_and_back(tmp_path: Path) -> None:
    before = Path.cwd()
    try:
        actor = LearnerActor(replace(setup_of(WHOLE), model_dir=str(tmp_path)), str(tmp_path))
        assert Path.cwd() == tmp_path, "relative paths are those of who made it"
        said: list[object] = [actor.step(BATCH, 3), actor.review(BATCH), actor.probe()]
        assert said == [("step", [SAMPLE], 3), ("review", [SAMPLE]), "probe"]
        actor.save_checkpoint("third")
        assert Path(tmp_path, "third", "updates").read_text() == "0"
        Path("third", "updates").write_text("7")
        actor.load_checkpoint("third")
        actor.save_adapter("adapter")
        assert Path("adapter", "adapter").read_text() == "7"
        actor.use("ann", None)
        actor.save_checkpoint("of ann")
        assert Path("of ann", "updates").read_text() == "100"
        actor.forget("ann")
        actor.save_checkpoint("nobody's")
        assert Path("nobody's", "updates").read_text() == "-1"
        actor.save_weights("weights")
        assert Path("weights").is_dir()
    finally:
        os.chdir(before)


def test_one_on_another_machine_passes_on_what_needs_no_file_and_sends_the_rest(
    source: ModelSource, network: Network, tmp_path: Path
) -> None:
    away = begun(source, network, tmp_path / "cache", WHOLE)
    said: list[object] = [away.step(BATCH, 3), away.review(BATCH), away.probe()]
    assert said == [("step", [SAMPLE], 3), ("review", [SAMPLE]), "probe"]
    folder = tmp_path / "of ann"
    folder.mkdir()
    (folder / "updates").write_text("41")
    away.use("ann", send(manifest_of(files_below(folder)), network.put))
    receive(away.send_adapter(), tmp_path / "adapter", network.fetch)
    assert (tmp_path / "adapter" / "adapter").read_text() == "41"
    away.use("ben", None)
    receive(away.send_checkpoint(), tmp_path / "of ben", network.fetch)
    assert (tmp_path / "of ben" / "updates").read_text() == "100"
    away.forget("ben")
    receive(away.send_checkpoint(), tmp_path / "nobody's", network.fetch)
    assert (tmp_path / "nobody's" / "updates").read_text() == "-1"


def test_a_model_that_was_received_once_is_found_again(
    source: ModelSource, network: Network, tmp_path: Path
) -> None:
    first = LearnerAway(network.put, network.fetch, str(tmp_path / "cache"))
    unseen = ModelSource("/not/here", source.manifest)
    assert not first.find_model(unseen)
    first.take_model(send(source.manifest, network.put))
    again = LearnerAway(network.put, network.fetch, str(tmp_path / "cache"))
    assert again.find_model(unseen)
    assert LearnerAway(network.put, network.fetch, str(tmp_path)).find_model(source)
