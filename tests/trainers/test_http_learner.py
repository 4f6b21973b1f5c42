"""A learner behind HTTP does what the torch learner does by itself, and says when it cannot."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from clawrl_gym import train
from clawrl_gym.config import LearnerConfig, RunConfig, ServeConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, LearnerDied, TrainerError
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.preflight.adapters import serving_problems
from clawrl_gym.preflight.learner_demands import unmet_by_learner, unseen_by_learner
from clawrl_gym.preflight.requirements import learns
from clawrl_gym.trainers.objectives import objectives
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.actor import LearnerSetup
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import write_tiny_qwen3
from tests.support.http_learner import Host, HttpLearner, serve
from tests.trainers.distill_samples import draw_ids, one_turn, two_turns

PATH = "tests.support.http_learner:HttpLearner"
C = TypeVar("C", RunConfig, ServeConfig)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


@contextmanager
def hosting(folder: Path, port: int = 0) -> Iterator[str]:
    """The URL of a host of this process."""
    folder.mkdir(parents=True, exist_ok=True)
    server = serve(Host(folder), port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def setup_of(model_dir: str, url: str, adapter: dict[str, object] | None = None) -> LearnerSetup:
    trainer = TrainerConfig.model_validate(
        {"algorithm": "hybrid", "steps": 10, "distillation": {"form": "topk"}, "kl_coef": 0.1}
    )
    learner = LearnerConfig.model_validate(
        {"lr": 1e-2, "backend": PATH, "options": {"url": url, "timeout_s": 60}, "adapter": adapter}
    )
    return LearnerSetup(
        trainer, learner, 7, "cpu", 0.9, model_dir=model_dir, objectives=objectives(trainer)
    )


@asynccontextmanager
async def connected(setup: LearnerSetup) -> AsyncIterator[HttpLearner]:
    learner = HttpLearner.from_config(setup.learner, setup)
    try:
        await learner.ready()
        yield learner
    finally:
        await learner.close()


def local(setup: LearnerSetup) -> Learner:
    plain = setup.learner.model_copy(update={"backend": "torch", "options": {}})
    return Learner.from_config(plain, replace(setup, learner=plain))


def batch(seed: int) -> list[Sample]:
    hint, reply = (draw_ids(9, 100 + seed),), draw_ids(11, seed)
    return [
        one_turn(draw_ids(6, 10 * seed), advantage=1.0),
        one_turn(draw_ids(8, 10 * seed + 1), advantage=-0.7),
        one_turn(reply, hint, distill=0.8),
        two_turns(),
    ]


def figures(stats: StepStats) -> tuple[dict[str, float], int, list[object]]:
    """All but times."""
    metrics = {name: v for name, v in stats.metrics.items() if not name.endswith("tokens_per_s")}
    return metrics, stats.tokens, list(stats.distilled_turns)


def same_files(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.parametrize("adapter", [None, {"rank": 4}], ids=["weights", "adapter"])
async def test_it_learns_reads_and_gives_out_what_the_torch_learner_does(
    model_dir: str, tmp_path: Path, adapter: dict[str, object] | None
) -> None:
    with hosting(tmp_path / "host") as url:
        setup = setup_of(model_dir, url, adapter)
        alone = local(setup)
        async with connected(setup) as learner:
            for version in range(2):
                stats = await learner.step(SampleBatch.of(batch(version)), version)
                assert figures(stats) == figures(alone.step(batch(version), version))
            assert await learner.review(SampleBatch.of(batch(5))) == alone.review(batch(5))
            assert await learner.probe() == alone.probe()
            given = await learner.publish(as_adapter=adapter is not None)
            assert given.ways == ("name", "folder")
            await given.to_folder(tmp_path / "new")
    if adapter is None:
        alone.save_weights(str(tmp_path / "own"))
    else:
        alone.save_adapter(str(tmp_path / "own"))
    assert same_files(tmp_path / "new", tmp_path / "own")


async def test_another_host_goes_on_from_its_checkpoint_when_one_is_gone(
    model_dir: str, tmp_path: Path
) -> None:
    kept = tmp_path / "000001"
    with hosting(tmp_path / "first") as url:
        setup = setup_of(model_dir, url)
        learner = HttpLearner.from_config(setup.learner, setup)
        await learner.ready()
        await learner.step(SampleBatch.of(batch(0)), 0)
        await learner.save_checkpoint(str(kept))
        expected = figures(await learner.step(SampleBatch.of(batch(1)), 1))
        await learner.close()
    try:
        again = HttpLearner.from_config(setup.learner, setup)
        with pytest.raises(LearnerDied, match="does not answer"):
            await again.step(SampleBatch.of(batch(1)), 1)
        restarting = asyncio.create_task(again.restart(str(kept)))
        with hosting(tmp_path / "second", int(url.rpartition(":")[2])):
            await restarting
            assert figures(await again.step(SampleBatch.of(batch(1)), 1)) == expected
            await again.reset()
            first = figures(await again.step(SampleBatch.of(batch(0)), 0))
            assert first == figures(local(setup).step(batch(0), 0))
            await again.close()
    finally:
        await again.close()


async def test_what_the_host_refuses_is_told_and_no_death(model_dir: str, tmp_path: Path) -> None:
    with hosting(tmp_path / "host") as url:
        async with connected(setup_of(model_dir, url)) as learner:
            (tmp_path / "empty").mkdir()
            with pytest.raises(TrainerError, match=r"failed in load_checkpoint: .* has no "):
                await learner.load_checkpoint(str(tmp_path / "empty"))
            with pytest.raises(TrainerError, match="got the method 'use', expected one of hello"):
                await learner._call("use")


def configured(kind: type[C], serve: str = "auto", **learner: object) -> C:
    own = {"backend": PATH, "options": {"url": "http://127.0.0.1:9"}, **learner}
    return kind.of({"learner": own, "policy": {"serve": serve}})


def test_what_it_lacks_is_refused_before_a_start() -> None:
    able = configured(RunConfig, adapter={}, publish="if_not_worse")
    assert not list(unmet_by_learner(able))
    (line,) = unseen_by_learner(configured(RunConfig), sees=True)
    assert f"got learner.backend={PATH}, which has no pictures" in line
    (line,) = serving_problems(configured(ServeConfig, "adapters", adapter={}))
    assert "expected a learner with the capability `users`" in line
    (line,) = unmet_by_learner(configured(RunConfig, placement="apart"))
    assert "which computes where it is, expected learner.placement=driver" in line
    assert not learns(configured(RunConfig)), "its model takes no memory here"


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        ("tests.support.own_learners:Elsewhere", "without publish, ready, reset, restart, close"),
        (
            "tests.support.own_learners:NoAdapter",
            "without save_adapter, expected one with step, save_w",
        ),
        ("tests.support.own_learners:Waits", "expected plain `def` for step"),
        ("tests.support.own_learners:DoesNotWait", "expected `async def` for step"),
    ],
)
def test_a_class_that_cannot_be_called_is_refused_before_a_start(
    backend: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main([f"learner.backend={backend}", "dry_run=true"]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_its_options_are_checked_like_any() -> None:
    with pytest.raises(ConfigError, match=r"learner.options.url: got nothing"):
        RunConfig.of({"learner": {"backend": PATH}})
    with pytest.raises(ConfigError, match=r"'learner.options.ulr'; did you mean .*url"):
        RunConfig.of({"learner": {"backend": PATH, "options": {"ulr": "x"}}})
