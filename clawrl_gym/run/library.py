"""The commands as functions: each with a blocking and an asynchronous form.

The blocking ones work in scripts and in notebooks, where a loop runs already. Configurations may
be given as the command line has them: `run_training(["env=gui", "trainer.steps=3"])`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawrl_gym.config import EvaluateConfig, RunConfig, ServeConfig, SftConfig
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.run.blocking import run_blocking

if TYPE_CHECKING:
    from clawrl_gym.rollout.episodes.chat import PolicyAddress
    from clawrl_gym.run.episode import PlayedEpisode, PolicyFunction
    from clawrl_gym.run.evaluate import EvaluationRun
    from clawrl_gym.run.policy import OnPhase
    from clawrl_gym.run.sft import SftRun
    from clawrl_gym.run.train import TrainingRun


async def run_training_async(config: RunConfig | Sequence[str] = ()) -> TrainingRun:
    """Train; returns where the run lies and what was measured. Raises ClawError."""
    from clawrl_gym.run.train import train

    return await train(config if isinstance(config, RunConfig) else load_config(config, "train"))


def run_training(config: RunConfig | Sequence[str] = ()) -> TrainingRun:
    """`run_training_async`, blocking."""
    return run_blocking(run_training_async(config))


async def run_sft_async(
    config: SftConfig | Sequence[str] = (), *, on_phase: OnPhase | None = None
) -> SftRun:
    """Learn from chats, episodes or demonstrations by supervision. Raises ClawError.

    `on_phase` is told what a part is doing: its name, and what.
    """
    from clawrl_gym.run.policy import quiet
    from clawrl_gym.run.sft import sft

    config = config if isinstance(config, SftConfig) else load_config(config, "sft")
    return await sft(config, on_phase=on_phase or quiet)


def run_sft(config: SftConfig | Sequence[str] = ()) -> SftRun:
    """`run_sft_async`, blocking."""
    return run_blocking(run_sft_async(config))


async def run_serving_async(
    config: ServeConfig | Sequence[str] = (), sock: socket.socket | None = None
) -> None:
    """Serve a policy that learns from its conversations, until cancelled. Raises ClawError.

    `sock` listens already, and its owner has looked whether serving can begin; None listens where
    `gateway` says. Who calls it starts it again when it fails, as the command does.
    """
    from clawrl_gym.preflight.preflight import preflight_of_run, preflight_serving
    from clawrl_gym.run.serve import serve
    from clawrl_gym.serving.supervisor import listen

    if not isinstance(config, ServeConfig):
        config = load_config(config, "serve")
    if sock is None:
        await asyncio.to_thread(preflight_of_run, preflight_serving, config)
    with sock or listen(config.gateway) as listening:
        await serve(config, listening)


def run_serving(config: ServeConfig | Sequence[str] = ()) -> None:
    """`run_serving_async`, blocking."""
    run_blocking(run_serving_async(config))


async def run_evaluation_async(
    config: EvaluateConfig | Sequence[str] = (), *, on_phase: OnPhase | None = None
) -> EvaluationRun:
    """Measure a policy of ours, or any server of the OpenAI API, on tasks. Raises ClawError.

    `on_phase` is told what a part is doing: its name, and what.
    """
    from clawrl_gym.run.evaluate import evaluate_policy
    from clawrl_gym.run.policy import quiet

    if not isinstance(config, EvaluateConfig):
        config = load_config(config, "evaluate")
    return await evaluate_policy(config, on_phase=on_phase or quiet)


def run_evaluation(config: EvaluateConfig | Sequence[str] = ()) -> EvaluationRun:
    """`run_evaluation_async`, blocking."""
    return run_blocking(run_evaluation_async(config))


def run_episode(
    env: str | Sequence[str],
    policy: PolicyAddress | PolicyFunction,
    *,
    task: str | None = None,
    temperature: float | None = None,
    timeout_s: float = 600.0,
) -> PlayedEpisode:
    """`run_episode_async`, blocking."""
    from clawrl_gym.run.episode import run_episode_async

    return run_blocking(
        run_episode_async(env, policy, task=task, temperature=temperature, timeout_s=timeout_s)
    )
