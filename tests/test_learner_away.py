"""A learner on another machine, without one: a dictionary carries the chunks."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.shipment import manifest_of, receive, send
from clawrl_gym.core.whole_folder import begin_folder, end_folder
from clawrl_gym.policy.model_source import ModelSource, source_of
from clawrl_gym.trainers.actor import LearnerAway, LearnerSetup, files_below
from tests.tiny_models import write_safetensors

SETUP = LearnerSetup(
    TrainerConfig(), LearnerConfig(backend="simulated", simulated_step_s=0), 0, "cpu", 1.0
)


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


def begun(source: ModelSource, network: Network, cache: Path) -> LearnerAway:
    away = LearnerAway("simulated", network.put, network.fetch, str(cache))
    unseen = ModelSource("/not/here", source.manifest)
    if not away.find_model(unseen):
        away.take_model(send(source.manifest, network.put))
    away.begin(SETUP, "auto")
    return away


def test_its_weights_and_checkpoints_arrive_and_another_one_goes_on_from_them(
    source: ModelSource, network: Network, tmp_path: Path
) -> None:
    away = begun(source, network, tmp_path / "cache")
    away.step([], 0)
    away.step([], 1)
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
    second.step([], 2)
    receive(second.send_checkpoint(), tmp_path / "third", network.fetch)
    assert (tmp_path / "third" / "updates").read_text() == "3"


def test_a_checkpoint_that_breaks_on_its_way_leaves_the_old_one(
    source: ModelSource, network: Network, tmp_path: Path
) -> None:
    away = begun(source, network, tmp_path / "cache")
    folder = tmp_path / "000001"
    receive(away.send_checkpoint(), begin_folder(folder), network.fetch)
    end_folder(folder)
    away.step([], 1)
    sent = away.send_checkpoint()
    network[:] = [b"\1" * len(chunk) for chunk in network]
    with pytest.raises(Exception, match="not what was sent"):
        receive(sent, begin_folder(folder), network.fetch)
    assert (folder / "updates").read_text() == "0"
    assert [path.name for path in tmp_path.glob(".*")] == []
