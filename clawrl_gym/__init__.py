"""clawrl_gym: the gym where agents learn from what happens next.

    import clawrl_gym as cg

    run = cg.run_training(["env=terminal", "trainer.steps=10"])
    print(run.evaluations[10].success, run.report)

**Commands as functions** (each with a twin that ends in `_async`): `run_training`, `run_sft`,
`run_serving`, `run_evaluation`, `run_comparison`, `run_episode`; `load_config` makes their
configurations as the command line does; `write_report` draws a run again, `export_run` writes its
model to hand on.

**Parts for a loop of one's own**: `ServedPolicy` (engines behind the gateway, new weights swapped
in while they serve), `Environments` (episodes, groups, evaluations), `Learner` (samples in, weights
out), `Store` (what was recorded), `TaskSampler`, `merge_turns`, `group_advantages`, `make_sample`.

**Seams to fill** with classes of one's own, by name, entry point or import path: `TaskEnv`,
`Agent`, `Judge`, `Algorithm`, `AsyncLearner`, `Engine`, `Sandbox`, `Logger`; and with a function
from `LossInputs` to `TokenLoss`. `core.plugins` resolves them.

**Words**: `TaskRef`, `Episode`, `Group`, `Message`, `Turn`, `Verdict`, `Sample`, `StopReason`.

Names are resolved when first used: importing this package registers the environments' ids and does
nothing else; no torch, no ray, no vllm, no file, no network.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from clawrl_gym.core.processes.interrupt import catch_from_the_start

catch_from_the_start()

from clawrl_gym.envs.registration import register_builtin_envs  # noqa: E402

if TYPE_CHECKING:
    from clawrl_gym.agents.agent import Action as Action
    from clawrl_gym.agents.agent import Agent as Agent
    from clawrl_gym.agents.agent import ParseFailure as ParseFailure
    from clawrl_gym.cluster.environments import Environments as Environments
    from clawrl_gym.comparison.pipeline import run_comparison as run_comparison
    from clawrl_gym.comparison.pipeline import run_comparison_async as run_comparison_async
    from clawrl_gym.config import BenchConfig as BenchConfig
    from clawrl_gym.config import EvaluateConfig as EvaluateConfig
    from clawrl_gym.config import RunConfig as RunConfig
    from clawrl_gym.config import ServeConfig as ServeConfig
    from clawrl_gym.config import SftConfig as SftConfig
    from clawrl_gym.core.errors import AgentFault as AgentFault
    from clawrl_gym.core.errors import ClawError as ClawError
    from clawrl_gym.core.errors import ConfigError as ConfigError
    from clawrl_gym.core.errors import EnvError as EnvError
    from clawrl_gym.core.errors import NoVerdict as NoVerdict
    from clawrl_gym.core.errors import PolicyError as PolicyError
    from clawrl_gym.core.errors import TaskError as TaskError
    from clawrl_gym.core.loggers import Logger as Logger
    from clawrl_gym.core.types import Episode as Episode
    from clawrl_gym.core.types import Group as Group
    from clawrl_gym.core.types import Message as Message
    from clawrl_gym.core.types import Sample as Sample
    from clawrl_gym.core.types import Split as Split
    from clawrl_gym.core.types import StopReason as StopReason
    from clawrl_gym.core.types import TaskRef as TaskRef
    from clawrl_gym.core.types import Turn as Turn
    from clawrl_gym.core.types import Verdict as Verdict
    from clawrl_gym.dialogue.merging import Segment as Segment
    from clawrl_gym.dialogue.merging import merge_turns as merge_turns
    from clawrl_gym.envs.registration import make_env as make_env
    from clawrl_gym.envs.sandbox.interface import Sandbox as Sandbox
    from clawrl_gym.envs.sandbox.interface import SandboxCapabilities as SandboxCapabilities
    from clawrl_gym.envs.task_env import TaskEnv as TaskEnv
    from clawrl_gym.inference.capabilities import EngineCapabilities as EngineCapabilities
    from clawrl_gym.inference.engine import Engine as Engine
    from clawrl_gym.inference.engine import EngineSetup as EngineSetup
    from clawrl_gym.inference.interface import EngineClient as EngineClient
    from clawrl_gym.judge.interface import Case as Case
    from clawrl_gym.judge.interface import Judge as Judge
    from clawrl_gym.recipe.configure import load_config as load_config
    from clawrl_gym.rollout.collection.task_sampler import TaskSampler as TaskSampler
    from clawrl_gym.rollout.episodes.chat import PolicyAddress as PolicyAddress
    from clawrl_gym.rollout.evaluation import Evaluation as Evaluation
    from clawrl_gym.run.episode import run_episode_async as run_episode_async
    from clawrl_gym.run.export import Exported as Exported
    from clawrl_gym.run.export import export_run as export_run
    from clawrl_gym.run.library import run_episode as run_episode
    from clawrl_gym.run.library import run_evaluation as run_evaluation
    from clawrl_gym.run.library import run_evaluation_async as run_evaluation_async
    from clawrl_gym.run.library import run_serving as run_serving
    from clawrl_gym.run.library import run_serving_async as run_serving_async
    from clawrl_gym.run.library import run_sft as run_sft
    from clawrl_gym.run.library import run_sft_async as run_sft_async
    from clawrl_gym.run.library import run_training as run_training
    from clawrl_gym.run.library import run_training_async as run_training_async
    from clawrl_gym.run.policy import ServedPolicy as ServedPolicy
    from clawrl_gym.run.train import TrainingRun as TrainingRun
    from clawrl_gym.store import Store as Store
    from clawrl_gym.trainers.algorithms.advantage import group_advantages as group_advantages
    from clawrl_gym.trainers.algorithms.algorithm import Algorithm as Algorithm
    from clawrl_gym.trainers.algorithms.algorithm import Prompts as Prompts
    from clawrl_gym.trainers.algorithms.algorithm import TurnWeights as TurnWeights
    from clawrl_gym.trainers.algorithms.algorithm import Verdicts as Verdicts
    from clawrl_gym.trainers.algorithms.algorithm import WeightsByTurn as WeightsByTurn
    from clawrl_gym.trainers.algorithms.algorithm import make_sample as make_sample
    from clawrl_gym.trainers.capabilities import LearnerCapabilities as LearnerCapabilities
    from clawrl_gym.trainers.interface import AsyncLearner as AsyncLearner
    from clawrl_gym.trainers.losses.token_loss import LossInputs as LossInputs
    from clawrl_gym.trainers.losses.token_loss import TokenLoss as TokenLoss
    from clawrl_gym.trainers.sample_batch import SampleBatch as SampleBatch
    from clawrl_gym.trainers.updates.learner import Learner as Learner
    from clawrl_gym.ui.report import write_report as write_report

__version__ = "0.1.0"

_HOMES = {
    "agents.agent": ("Action", "Agent", "ParseFailure"),
    "comparison.pipeline": ("run_comparison", "run_comparison_async"),
    "config": ("BenchConfig", "EvaluateConfig", "RunConfig", "ServeConfig", "SftConfig"),
    "core.errors": (
        "AgentFault", "ClawError", "ConfigError", "EnvError", "NoVerdict", "PolicyError",
        "TaskError",
    ),
    "core.loggers": ("Logger",),
    "core.types": (
        "Episode", "Group", "Message", "Sample", "Split", "StopReason", "TaskRef", "Turn",
        "Verdict",
    ),
    "dialogue.merging": ("Segment", "merge_turns"),
    "envs.sandbox.interface": ("Sandbox", "SandboxCapabilities"),
    "envs.task_env": ("TaskEnv",),
    "envs.registration": ("make_env",),
    "judge.interface": ("Case", "Judge"),
    "inference.capabilities": ("EngineCapabilities",),
    "inference.engine": ("Engine", "EngineSetup"),
    "inference.interface": ("EngineClient",),
    "rollout.episodes.chat": ("PolicyAddress",),
    "rollout.evaluation": ("Evaluation",),
    "rollout.collection.task_sampler": ("TaskSampler",),
    "recipe.configure": ("load_config",),
    "cluster.environments": ("Environments",),
    "run.episode": ("run_episode_async",),
    "run.export": ("Exported", "export_run"),
    "run.library": (
        "run_episode", "run_evaluation", "run_evaluation_async", "run_serving",
        "run_serving_async", "run_sft", "run_sft_async", "run_training", "run_training_async",
    ),
    "run.policy": ("ServedPolicy",),
    "run.train": ("TrainingRun",),
    "store": ("Store",),
    "trainers.algorithms.advantage": ("group_advantages",),
    "trainers.algorithms.algorithm": (
        "Algorithm", "Prompts", "TurnWeights", "Verdicts", "WeightsByTurn", "make_sample",
    ),
    "trainers.capabilities": ("LearnerCapabilities",),
    "trainers.interface": ("AsyncLearner",),
    "trainers.updates.learner": ("Learner",),
    "trainers.sample_batch": ("SampleBatch",),
    "trainers.losses.token_loss": ("LossInputs", "TokenLoss"),
    "ui.report": ("write_report",),
}  # fmt: skip
"""Module of each name."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_builtin_envs()
