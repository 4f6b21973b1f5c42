"""Plug-ins that are wrong: each is one clear line, before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawrl_gym.cluster.envs import check_agent, check_env
from clawrl_gym.config import RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.core.plugins import JUDGES
from clawrl_gym.judge.verdicts import VerdictMaker
from clawrl_gym.preflight.judge import check_judge
from clawrl_gym.trainers.algorithms.algorithm import build_algorithm
from tests.support.fakes_judge import a_turn

CLASSES = """
import enum, pathlib, time
from pydantic import BaseModel, ConfigDict, Field, SecretStr
import clawrl_gym as cg
from clawrl_gym.config import EnvConfig


class Judge:
    kind = "rule"
    async def judge(self, case): return None

class Plain(Judge):
    def judge(self, case): return None

class Number(Judge):
    judge = 3

class OwnKind(Judge):
    kind = "mine"

class Two(Judge):
    def __init__(self, first, second): pass

class Raising(Judge):
    def __init__(self): raise RuntimeError("no\\nluck")

class NoModel(Judge):
    class Options:
        size: int = 1

class Needing(Judge):
    class Options(BaseModel):
        size: int
    def __init__(self, options): pass

class Aliased(Judge):
    class Options(BaseModel):
        size: int = Field(1, alias="largest")
    def __init__(self, options): self.size = options.size

class Colour(enum.Enum):
    RED = "red"

class Rich(Judge):
    class Options(BaseModel):
        colour: Colour = Colour.RED
        folder: pathlib.Path = pathlib.Path("/tmp")
        sizes: tuple[int, ...] = (1, 2)
    def __init__(self, options): self.options = options

class Secret(Judge):
    class Options(BaseModel):
        key: SecretStr = SecretStr("sk-1")
    def __init__(self, options): pass

class Unwritable(Judge):
    class Options(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        place: object = object()
    def __init__(self, options): pass

class Open(cg.Algorithm):
    pass

class NoLuck(cg.Algorithm):
    def __init__(self): raise RuntimeError("no luck")
    def weights(self, *parts): return []

class Agent:
    def __init__(self, size): pass
    def messages(self, observations, replies): return []
    def tools(self, env_tools): return []
    def instructions(self, env_tools): return ""
    def action(self, reply): return None

class RaisingAgent(Agent):
    def __init__(self): raise OSError("no file")

class Learner:
    def step(self, samples, version): ...
    def save_weights(self, folder): ...
    def save_checkpoint(self, folder): ...
    def load_checkpoint(self, folder): ...

class Env(EnvConfig):
    def make(self): raise RuntimeError("no screen")
    def task_ids(self, split): return 1 // 0

class Empty(Env):
    def task_ids(self, split): return []

class Numbers(Env):
    def task_ids(self, split): return [1, 2]

class NotMade(Env):
    def make(self): return None
    def task_ids(self, split): return None

class NoMake(EnvConfig):
    pass
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "wrong_seams.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("wrong_seams", None)


def configured(*overrides: str) -> RunConfig:
    return compose("train", overrides, RunConfig)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["judge=wrong_seams:Plain"], r"judge is a plain method, expected `async def judge`"),
        (["judge=wrong_seams:Number"], r"judge is 3, expected a method"),
        (["judge=wrong_seams:Two"], r"constructor takes \(first, second\).*called with \(\)"),
        (["judge=wrong_seams:NoModel"], r"Options is .*extends pydantic.BaseModel"),
        (["judge=wrong_seams:Needing"], r"judge.options.size: got nothing, expected a value"),
        (["judge=wrong_seams:Secret"], r"cannot be written to config.yaml"),
        (["judge=wrong_seams:Unwritable"], r"cannot be written to config.yaml"),
        (
            ["judge=wrong_seams:Aliased", "judge.options.largest=2"],
            r"'judge.options.largest'; did you mean",
        ),
        (["judge=chain", "judge.chain=[rule,wrong_seams:Nobody]"], r"has no 'Nobody'"),
        (["trainer=wrong_seams:Open"], r"a class that leaves weights open"),
        (["agent=wrong_seams:Agent"], r"constructor takes \(size\).*called with \(\)"),
        (["learner=wrong_seams:Learner"], r"takes \(\).*called with \(trainer, learner, model_dir"),
        (["env=wrong_seams:NoMake"], r"leaves make open"),
        (["sandbox=wrong_seams:Judge"], r"env.sandbox.type=wrong_seams:Judge, a class without"),
        (["judge=mine"], r"judge='mine'.*one of chain.*'clawrl_gym.judges', or package.module:Na"),
        (["judge=modle"], r"did you mean 'model'"),
        (["judge=[rule,model]"], r"judge=\['rule', 'model'\], expected one of"),
        (["judge=a:b,c:d"], r"several values of 'judge'"),
        (["judge=3"], r"judge='3', expected one of"),
    ],
)
def test_a_wrong_class_is_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        configured(*overrides)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere_at_all", r"ModuleNotFoundError: .*nowhere_at_all.*broken.py, line 1\)"),
        ("x = (", r"its code raised SyntaxError.*broken.py, line 1"),
        ("import sys\nsys.exit(3)", r"its code raised SystemExit: 3 \(.*broken.py, line 2\)"),
    ],
)
def test_a_module_that_fails_says_where(package: Path, source: str, message: str) -> None:
    (package / "broken.py").write_text(source)
    with pytest.raises(ConfigError, match=message):
        configured("judge=broken:X")
    sys.modules.pop("broken", None)


def test_what_a_constructor_raises_is_told_before_a_run() -> None:
    with pytest.raises(ConfigError, match=r"RuntimeError: no luck \(.*wrong_seams.py, line"):
        build_algorithm(configured("trainer=wrong_seams:NoLuck").trainer, 2)
    config = configured("agent=wrong_seams:RaisingAgent")
    with pytest.raises(ConfigError, match=r"agent.type=.*RaisingAgent cannot be made.*no file"):
        check_agent(config.agent, config.env)
    judge = configured("judge=wrong_seams:Raising").judge
    with pytest.raises(ConfigError, match=r"its code raised RuntimeError: no luck"):
        JUDGES.resolve(judge.type).build(judge, None)
    with pytest.raises(ConfigError, match=r"whose kind is 'mine', expected one of rule, model"):
        check_judge(configured("judge=wrong_seams:OwnKind").judge)


def test_options_come_back_from_plain_values() -> None:
    config = configured("judge=wrong_seams:Rich", "judge.options.sizes=[3]")
    assert config.judge.options == {"colour": "red", "folder": "/tmp", "sizes": [3]}
    again = RunConfig.of(config.model_dump())
    judge = JUDGES.resolve(again.judge.type).build(again.judge)
    assert judge.options.colour.value == "red"
    assert judge.options.sizes == (3,)
    aliased = configured("judge=wrong_seams:Aliased", "judge.options.size=4").judge
    assert JUDGES.resolve(aliased.type).build(aliased).size == 4


def test_a_kind_of_environments_without_tasks_or_screen_is_told() -> None:
    from clawrl_gym.rollout.collection.task_sampler import TaskSampler

    with pytest.raises(ConfigError, match="holds no task with these options"):
        TaskSampler.of(configured("env=wrong_seams:Empty").env, 0)
    with pytest.raises(ConfigError, match="has the task id 1, expected a text"):
        TaskSampler.of(configured("env=wrong_seams:Numbers").env, 0)
    with pytest.raises(ConfigError, match="cannot list its train tasks: ZeroDivisionError"):
        TaskSampler.of(configured("env=wrong_seams:Env").env, 0)
    with pytest.raises(ConfigError, match=r"cannot be made: RuntimeError: no screen"):
        check_env(configured("env=wrong_seams:Empty").env, print)
    with pytest.raises(ConfigError, match=r"made a NoneType, expected a gymnasium.Env"):
        check_env(configured("env=wrong_seams:NotMade").env, print)


def test_entry_points_that_are_broken_or_given_twice_name_their_package(package: Path) -> None:
    for name, lines in (("one", "colonless = wrong_seams\ntwice = wrong_seams:Judge"),
                        ("two", "twice = wrong_seams:Rich\nrule = wrong_seams:Judge")):  # fmt: skip
        info = package / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[clawrl_gym.judges]\n{lines}\n")
    with pytest.raises(
        ConfigError, match=r"'one' \(.*Judge\) and .*'two' \(.*Rich\), expected one"
    ):
        configured("judge.type=twice")
    (package / "two-1.0.dist-info" / "entry_points.txt").write_text("")
    with pytest.raises(ConfigError, match=r"entry point colonless = 'wrong_seams' of the packa"):
        configured("judge=colonless")
    assert configured("judge=twice").judge.type == "twice"


def test_a_group_that_a_command_has_not_is_told() -> None:
    from clawrl_gym.config import EvaluateConfig

    with pytest.raises(ConfigError, match=r"got judge=, which evaluate does not have.*agent, env"):
        compose("evaluate", ["judge=rule"], EvaluateConfig)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("None", "gave a NoneType, expected a Verdict"),
        ("cg.Verdict(case.turn_id, 'rule', 1, 1.0, None, 0.0)", "expected -1 to 1"),
        ("cg.Verdict(case.turn_id, 'rule', 1, 'much', {}, 0.0)", "expected -1 to 1"),
        ("cg.Verdict(case.turn_id, 'feedback', 1, 1.0, {}, 0.0)", "kind 'feedback'"),
        ("cg.Verdict(case.turn_id, 'rule', 1, 1.0, {'why': case}, 0.0)", "and JSON"),
        ("cg.Verdict(case.turn_id, 'rule', 1, 1.0, {}, 0.0, weight=0)", "a weight in (0, 1]"),
        ("cg.Verdict(case.turn_id, 'rule', 1, 1.0, {}, 0.0, weight='x')", "a weight in (0, 1]"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
async def test_a_judge_that_gives_no_verdict_abstains(
    made: str, reason: str, package: Path
) -> None:
    (package / "giving.py").write_text(
        "import clawrl_gym as cg\nclass Giving:\n    kind = 'rule'\n"
        f"    async def judge(self, case): return {made}\n"
    )
    config = configured("judge=giving:Giving").judge
    maker = VerdictMaker(JUDGES.resolve(config.type).build(config), config)
    verdict = await maker.verdict(a_turn(id=1), [{"role": "user", "content": "Thanks."}])
    assert verdict.value is None
    assert reason in verdict.detail["reason"]
    assert maker.counters == {"abstained": 1}
    sys.modules.pop("giving", None)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("None", r"got a NoneType of Mine.weights, expected a list of 1"),
        ("[]", r"got a list of 0 of Mine.weights, expected a list of 1"),
        ("[{1: 0.5}]", r"got \{1: 0.5\} as the weights.*expected a dict of TurnWeights"),
        (
            "[{1: cg.TurnWeights(advantage=float('nan'))}]",
            r"as advantage of its turns, expected finite",
        ),
        ("1 // 0", r"Mine.weights: ZeroDivisionError"),
    ],
)
def test_an_algorithm_that_gives_no_terms_is_an_error_of_the_trainer(
    weights: str, message: str, package: Path
) -> None:
    from tests.trainers.test_opd import group, segment

    (package / "mine_weights.py").write_text(
        "import clawrl_gym as cg\nclass Mine(cg.Algorithm):\n"
        f"    def weights(self, group, segments_G, verdicts_G, prompts_G): return {weights}\n"
    )
    algorithm = build_algorithm(configured("trainer=mine_weights:Mine").trainer, 1)
    with pytest.raises(TrainerError, match=message):
        algorithm.make_samples(group(1.0), [[segment()]])
    sys.modules.pop("mine_weights", None)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("messages", "1 // 0", "the agent's messages: ZeroDivisionError"),
        ("messages", "None", "got None of the agent's messages, expected a list"),
        ("messages", "[]", "got no message"),
        ("tools", "1 // 0", "the agent's tools: ZeroDivisionError"),
        ("instructions", "None", "got None of the agent's instructions"),
        ("action", "'ls'", "got 'ls' of the agent's action, expected Action or ParseFailure"),
    ],
)
async def test_an_agent_that_fails_is_no_reward(
    method: str, given: str, message: str, package: Path
) -> None:
    from clawrl_gym.core.types import StopReason
    from clawrl_gym.run.episode import run_episode_async

    (package / "bad_agent.py").write_text(
        "from clawrl_gym.agents.text import TextAgent\nclass Bad(TextAgent):\n"
        f"    def {method}(self, *parts): return {given}\n"
        "    def __init__(self): super().__init__()\n"
    )
    (package / "saying.py").write_text(
        "import gymnasium\nclass Env(gymnasium.Env):\n"
        "    def reset(self, *, seed=None, options=None): return 'Say red.', {}\n"
        "    def step(self, action): return 'done', 1.0, True, False, {}\n"
    )
    overrides = ["env.target=saying:Env", "agent=bad_agent:Bad"]
    played = await run_episode_async(overrides, lambda messages, tools: "red")
    assert played.episode.stop_reason == StopReason.ENV_ERROR
    assert played.episode.reward is None
    assert message in str(played.episode.error)
    for name in ("bad_agent", "saying"):
        sys.modules.pop(name, None)


def test_a_logger_that_raises_costs_no_run(
    package: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from clawrl_gym.core.metrics import Metrics

    (package / "bad_logger.py").write_text(
        "class Bad:\n    def __init__(self, folder, config): pass\n"
        "    def log(self, step, values): raise OSError('no network')\n"
        "    def close(self): raise OSError('no network')\n"
    )
    metrics = Metrics(tmp_path, "bad_logger:Bad", {})
    metrics.log(1, {"reward": 1.0})
    metrics.close()
    assert '"reward": 1.0' in (tmp_path / "metrics.jsonl").read_text()
    assert "the logger's log raised OSError: no network" in caplog.text
    sys.modules.pop("bad_logger", None)


def test_a_sweep_goes_over_import_paths() -> None:
    from clawrl_gym.run.sweep import plan_sweep

    runs = plan_sweep(["judge=wrong_seams:Judge,wrong_seams:Rich,rule"])
    types = [configured(*run.arguments).judge.type for run in runs]
    assert types == ["wrong_seams:Judge", "wrong_seams:Rich", "rule"]


def test_a_recipe_that_is_no_yaml_is_one_line(tmp_path: Path) -> None:
    from clawrl_gym.run_folder.folder import RunFolder

    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "torn.yaml").write_text("x: [")
    with pytest.raises(ConfigError, match=r"a recipe is not valid YAML.*torn.yaml") as refused:
        configured("--config-dir", str(tmp_path), "experiment=torn")
    assert "\n" not in str(refused.value)
    (tmp_path / "config.yaml").write_text("x: [")
    with pytest.raises(ConfigError, match=r"cannot read .*config.yaml: while parsing"):
        RunFolder(tmp_path).read_config(RunConfig)
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(ConfigError):
        RunFolder(tmp_path).read_config(RunConfig)
