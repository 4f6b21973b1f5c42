"""The one registry: every seam takes a name of ours, an entry point and an import path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.agents.text import TextAgent
from clawrl_gym.config import AgentConfig, EvaluateConfig, RunConfig, SandboxConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.core.loggers import make_logger
from clawrl_gym.core.plugins import (
    ENVIRONMENTS,
    SEAMS,
    Seam,
    check_fingerprints,
    fingerprints,
)
from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.rollout.collection.worker import build_agent, plugins_of
from clawrl_gym.rollout.episodes.stage import one_stage
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.trainers.algorithms.algorithm import build_algorithm
from clawrl_gym.trainers.objectives import POLICY_GRADIENT, objectives
from tests.core import outside

CLASSES = {
    "agent": "Shouting",
    "algorithm": "Weighing",
    "hint source": "Teaching",
    "judge": "Grumpy",
    "learner": "Sleeping",
    "logger": "Printing",
    "loss": "weighed",
    "sandbox": "Cardboard",
}
COMMANDS = {
    "agent": ("agent={}", "agent.options.size={}"),
    "algorithm": ("trainer.algorithm={}", "trainer.options.size={}"),
    "hint source": ("judge.hints.source={}", "judge.hints.options.size={}"),
    "judge": ("judge={}", "judge.options.size={}"),
    "learner": ("learner={}", "learner.options.size={}"),
    "logger": ("logger={}", "logger_options.size={}"),
    "loss": ("loss={}", "trainer.loss.options.size={}"),
    "sandbox": ("sandbox={}", "env.sandbox.options.size={}"),
}
FORMS = ("mine", "outside_seams:{}")
"""By entry point, by import path."""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    points = {SEAMS[seam].group: f"mine = outside_seams:{name}" for seam, name in CLASSES.items()}
    points[ENVIRONMENTS.group] = "echo = outside_kind:EchoConfig\nEcho-v0 = outside_kind:EchoEnv"
    with outside.installed(tmp_path, monkeypatch, points) as folder:
        yield folder
    for name in ("outside_seams", "outside_kind"):
        sys.modules.pop(name, None)


def configured(*overrides: str) -> RunConfig:
    """With rules, which take long to compose, only where hints want a judge."""
    judge = "rule" if any("hints" in override for override in overrides) else "feedback"
    return compose("train", [f"judge={judge}", *overrides], RunConfig)


@pytest.mark.parametrize("seam", SEAMS.values(), ids=SEAMS)
def test_every_name_of_ours_fits_its_seam(seam: Seam) -> None:
    for name in seam.builtin:
        assert seam.resolve(name).target.__module__.startswith("clawrl_gym.")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seam", CLASSES)
def test_every_seam_takes_an_entry_point_and_an_import_path(seam: str, form: str) -> None:
    name = form.format(CLASSES[seam])
    assert SEAMS[seam].resolve(name).target.__name__ == CLASSES[seam]
    choice, option = COMMANDS[seam]
    config = configured(choice.format(name), option.format(5))
    again = RunConfig.of(config.model_dump())
    assert again == config
    assert "5" in str(config.model_dump())
    with pytest.raises(ConfigError, match=r"unknown .* key .*sise'; did you mean .*size"):
        configured(choice.format(name), option.replace("size", "sise").format(5))
    with pytest.raises(ConfigError, match=r"size: got 'much'.*integer"):
        configured(choice.format(name), option.format("much"))


@pytest.mark.parametrize("seam", CLASSES)
def test_a_wrong_class_is_told_before_anything_starts(seam: str) -> None:
    choice, _ = COMMANDS[seam]
    for name, message in (
        ("nowhere_at_all:X", r"cannot import 'nowhere_at_all'.*PYTHONPATH"),
        ("outside_seams:Nobody", r"module 'outside_seams' has no 'Nobody'"),
        ("outside_seams:not_a_class", "of type int, expected a (class|function)"),
        ("json:JSONDecoder", rf"expected (one|a function) .*the seam '{seam}'"),
    ):
        with pytest.raises(ConfigError, match=message):
            configured(choice.format(name))


def test_an_unknown_name_tells_the_nearest_and_all_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'grppo' \(did you mean 'grpo'\?\).*binary.*mine"):
        configured("trainer.algorithm=grppo")


def test_a_class_of_ours_takes_no_options() -> None:
    with pytest.raises(ConfigError, match=r"'trainer.options.x': .*grpo takes no options"):
        configured("trainer.options.x=1")


def test_a_module_that_raises_is_told(package: Path) -> None:
    (package / "broken_one.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"its code raised ZeroDivisionError"):
        configured("judge=broken_one:X")


def test_an_agent_is_built_by_its_constructor_or_as_what_it_extends() -> None:
    shouting = AgentConfig(type="mine", options={"size": 3})
    env = configured().env
    assert build_agent(shouting, env).messages(["hi"], [])[0]["content"] == "SSS"
    plain = build_agent(AgentConfig(type="outside_seams:Plain"), env)
    assert plain.messages(["hi"], [])[0]["content"] == "plain"
    echo = build_agent(AgentConfig(type="outside_kind:EchoAgent", system="Echo."), env)
    assert echo.messages(["hi"], [])[0]["content"] == "Echo."


def test_an_algorithm_weighs_single_tokens_down_to_the_sample() -> None:
    from tests.trainers.test_opd import group, segment

    config = configured("trainer=mine", "trainer.options.size=2").trainer
    assert objectives(config) == {POLICY_GRADIENT}
    algorithm = build_algorithm(config, 2)
    (sample,) = algorithm.make_samples(group(1.0), [[segment()]])
    assert sample.mask_T == [False, False, False, True, True, False, True, True]
    assert sample.advantages_T == [0, 0, 0, 0.0, 2.0, 0, 0.0, 2.0]


def test_a_list_of_the_wrong_length_is_an_error_that_says_both() -> None:
    from clawrl_gym.trainers.algorithms.algorithm import TurnWeights, make_sample
    from tests.trainers.test_opd import READ, group, segment

    (episode,) = group(1.0).episodes_G
    with pytest.raises(TrainerError, match=r"gave 3 numbers as advantage of turn 1, .* 2 sam"):
        make_sample(group(1.0), episode, segment(), {1: TurnWeights(advantage=[0.5] * 3)})
    with pytest.raises(TrainerError, match="gave 1 numbers as distill of turn 1"):
        make_sample(group(1.0), episode, segment(), {1: TurnWeights(distill=[0.5])}, READ)
    sample = make_sample(
        group(1.0), episode, segment(), {1: TurnWeights(distill=[0.5, 0.25])}, READ
    )
    assert sample.distill_T[-2:] == [0.5, 0.25]


def test_hints_without_a_judge_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"judge.hints.source=mine and judge.type=none"):
        compose("train", ["judge.hints.source=mine"], RunConfig)


def test_a_logger_gets_folder_configuration_and_options(tmp_path: Path) -> None:
    logger: Any = make_logger("mine", {"size": 2}, tmp_path, {"seed": 3})
    logger.log(1, {"a": 1.0})
    assert (logger.folder, logger.config, logger.size) == (tmp_path, {"seed": 3}, 2)
    assert make_logger("none", {}, tmp_path, {}) is None


def test_a_sandbox_of_ones_own_is_opened() -> None:
    config = SandboxConfig(type="mine", options={"size": 7})
    sandbox: Any = Sandboxes.of(config).open(SandboxSpec("/work"))
    assert (sandbox.exec("ls", 1.0).output, sandbox.size, sandbox.workdir) == ("LS", 7, "/work")


def test_a_kind_of_environments_from_a_package_is_composed_drawn_and_played() -> None:
    from clawrl_gym.rollout.collection.task_sampler import TaskSampler

    for choice in ("env=echo", "env=outside_kind:EchoConfig", "env.type=echo"):
        config = compose("train", ["env=gym", choice] if "type" in choice else [choice], RunConfig)
        assert type(config.env).__name__ == "EchoConfig"
    config = compose("train", ["env=echo", "env.word=ho", "env.max_turns=1"], RunConfig)
    assert RunConfig.of(config.model_dump()).env == config.env
    assert str(TaskSampler.of(config.env, 0).train(0).id).startswith("echo-train-")
    assert type(build_agent(AgentConfig(), config.env)).__name__ == "EchoAgent"
    env = config.env.make()
    env.reset(options={"task": "echo-heldout-1"})
    assert env.step("ho")[1] == 1.0
    with pytest.raises(ConfigError, match=r"'env.wrod'; did you mean 'env.word'"):
        compose("train", ["env=echo", "env.wrod=x"], RunConfig)
    assert compose("evaluate", ["env=echo"], EvaluateConfig).env.type == "echo"


def test_a_gymnasium_class_without_a_configuration_is_an_environment_too() -> None:
    for choice in ("env=outside_kind:EchoEnv", "env=Echo-v0"):
        env = compose("train", [choice, "env.kwargs={word: hi}"], RunConfig).env
        assert env.type == "gym"
        made = env.make()
        assert made.reset(seed=1)[0] == "Say hi."


def test_a_plug_in_that_differs_between_processes_is_told(package: Path) -> None:
    config = configured("agent=mine", "env=echo")
    driver = plugins_of(one_stage(config.env, config.agent))
    assert sorted(driver) == ["outside_kind:EchoConfig", "outside_seams:Shouting"]
    check_fingerprints(driver)
    (package / "outside_seams.py").write_text(outside.SEAMS + "# another\n")
    with pytest.raises(ConfigError, match=r"'outside_seams:Shouting' differs.*PYTHONPATH"):
        check_fingerprints(driver)
    assert "nothing (cannot import" in fingerprints(["nowhere_at_all:X"])["nowhere_at_all:X"]
    assert plugins_of(one_stage(configured().env)) == {}


async def test_a_worker_with_another_plug_in_does_not_start(package: Path) -> None:
    from clawrl_gym.rollout.collection.worker import RolloutWorker
    from clawrl_gym.rollout.episodes.chat import PolicyAddress

    config = configured("agent=mine")
    driver = plugins_of(one_stage(config.env, config.agent))
    (package / "outside_seams.py").write_text(outside.SEAMS + "# another\n")
    address = PolicyAddress("http://127.0.0.1:1", "key", "tiny")
    worker = RolloutWorker(one_stage(config.env, config.agent), 1, address, 1.0, driver)
    with pytest.raises(ConfigError, match="differs between processes"):
        await worker.ready()


def test_a_subclass_of_ours_is_built_as_ours() -> None:
    agent = build_agent(AgentConfig(type="outside_kind:EchoAgent"), configured().env)
    assert isinstance(agent, TextAgent)


async def test_a_kind_of_another_package_is_played_by_a_worker() -> None:
    from aiohttp import web
    from aiohttp.test_utils import TestServer

    from clawrl_gym.rollout.collection.task_sampler import TaskSampler
    from clawrl_gym.rollout.collection.worker import RolloutWorker
    from clawrl_gym.rollout.episodes.chat import PolicyAddress
    from clawrl_gym.rollout.episodes.episode import EpisodeSpec

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        assert body["messages"][-1]["content"] == "Say hello."
        message = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        address = PolicyAddress(f"{server.make_url('/v1')}", "key", "m", is_gateway=False)
        config = compose("train", ["env=outside_kind:EchoConfig"], RunConfig)
        plugins = plugins_of(one_stage(config.env, config.agent))
        worker = RolloutWorker(one_stage(config.env, config.agent), 1, address, 5.0, plugins)
        task = TaskSampler.of(config.env, 0).train(3)
        episode = await worker.run(EpisodeSpec("s", None, task, config.env.max_turns, 10.0))
        await worker.close()
    assert (episode.reward, episode.family) == (1.0, "echo")


@pytest.mark.ray
async def test_a_ray_worker_that_has_another_plug_in_is_one_clear_line(package: Path) -> None:
    from clawrl_gym.cluster.cluster import Cluster
    from clawrl_gym.cluster.ray_worker import RayWorker
    from clawrl_gym.rollout.episodes.chat import PolicyAddress

    config = configured("agent=mine")
    ray = Cluster()
    await ray.start()
    try:
        address = PolicyAddress("http://127.0.0.1:1", "key", "tiny")
        worker = RayWorker(one_stage(config.env, config.agent), 1, address, 1.0)
        await worker.ready()
        await worker.close()
        (package / "outside_seams.py").write_text(outside.SEAMS + "# another\n")
        stale = RayWorker(one_stage(config.env, config.agent), 1, address, 1.0)
        (package / "outside_seams.py").write_text(outside.SEAMS)
        with pytest.raises(ConfigError, match="differs between processes"):
            await stale.ready()
    finally:
        ray.stop()


def test_a_kinds_fields_of_any_type_reach_config_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pathy.py").write_text(
        "from pathlib import Path\n"
        "from clawrl_gym.envs.gym.config import GymEnvConfig\n"
        "class Pathy(GymEnvConfig):\n"
        "    type: str = 'pathy:Pathy'\n"
        "    target: str | None = 'tests.e2e.guess_env:SayEnv'\n"
        "    where: Path = Path('tasks')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = load_config(["env=pathy:Pathy"])
    folder = RunFolder(tmp_path / "run")
    folder.make(config)
    assert folder.read_config(RunConfig) == config
