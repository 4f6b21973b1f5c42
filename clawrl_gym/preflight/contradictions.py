"""Settings that are right one by one and cannot work together: a run would wait for ever, or fail
in the middle."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from clawrl_gym.config import (
    AgentConfig,
    CommandConfig,
    EvaluateConfig,
    JudgeConfig,
    RunConfig,
    ServeConfig,
    TrainerConfig,
)
from clawrl_gym.core.plugins import HINT_SOURCES
from clawrl_gym.core.processes.controls import ON_HINTS
from clawrl_gym.preflight.engine_demands import engine_problems
from clawrl_gym.trainers.algorithms.algorithm import Algorithm
from clawrl_gym.trainers.objectives import objectives

_WITHOUT_HINTS = frozenset({"reward_model"})
"""Judges that say how good a reply was, and never what would have been better."""
_LIKE_PPO = frozenset({"gspo", "cispo", "sapo"})
"""Losses that have ppo's gradient as long as no ratio to the learner before the update is off 1."""


def contradictions(config: CommandConfig | EvaluateConfig) -> Iterator[str]:
    """All of a command's configuration, a line each."""
    yield from engine_problems(config)
    if isinstance(config, CommandConfig):
        if not objectives(config.trainer):
            yield (
                f"got trainer.algorithm={config.trainer.algorithm} with weights of 0, expected a "
                "loss with at least one term: trainer.rl_weight or trainer.opd_weight above 0"
            )
        yield from _without_effect(config.trainer)
        yield from _ports(config)
        yield from _placements(config)
        yield from _forms(config)
    if isinstance(config, RunConfig):
        yield from _of_training(config)
    if isinstance(config, EvaluateConfig) and config.eval.also:
        yield (
            f"got eval.also={list(config.eval.also)}, expected one environment, env=NAME: call "
            "evaluate once for each"
        )
    if isinstance(config, RunConfig):
        for domain in config.domains.values():
            yield from _program(domain.agent)
    elif isinstance(config, EvaluateConfig):
        yield from _program(config.agent)


def missing_hints(config: CommandConfig, algorithm: Algorithm) -> Iterator[str]:
    """An algorithm that follows hints learns nothing where nobody gives any.

    In `serve`, people give them through /v1/feedback too.
    """
    silent = [judge.type for judge in config.judges if not _gives_hints(judge)]
    if not algorithm.needs_hints or isinstance(config, ServeConfig) or not silent:
        return
    trainer = config.trainer
    some_give_hints = len(silent) < len(config.judges)
    if some_give_hints and algorithm.has_rewards(trainer):
        return  # a mixture: the others bring rewards
    none_learned = "from that environment nothing would be learned"
    yield (
        f"got trainer.algorithm={trainer.algorithm}, which follows hints, with judge.type="
        f"{silent[0]}, which gives none: "
        f"{none_learned if some_give_hints else 'no update would ever be made'}; choose judge=rule "
        "or judge=model, or trainer=binary or trainer=grpo for rewards alone"
    )


def idle_control(config: CommandConfig, algorithm: Algorithm) -> Iterator[str]:
    """A control of what is not learned from would be a run like any other."""
    if not isinstance(config, RunConfig) or config.control == "none":
        return
    trainer = config.trainer
    if config.control in ON_HINTS and not algorithm.distils(trainer):
        yield (
            f"got control={config.control} with trainer.algorithm={trainer.algorithm}, which "
            "follows no hints, expected trainer=opd or trainer=hybrid; for rewards take "
            "control=shuffled_rewards"
        )
    if config.control not in ON_HINTS and not algorithm.has_rewards(trainer):
        yield (
            f"got control={config.control} with trainer.algorithm={trainer.algorithm}, which uses "
            "no reward, expected one that does, or control=irrelevant_hints"
        )


def _gives_hints(judge: JudgeConfig) -> bool:
    if judge.hints.source not in HINT_SOURCES.words:
        return True
    return any(name not in _WITHOUT_HINTS for name in judge.judges)


def _without_effect(trainer: TrainerConfig) -> Iterator[str]:
    """Settings that would silently change nothing."""
    if trainer.loss.type in _LIKE_PPO and trainer.minibatches == 1:
        yield (
            f"got trainer.loss.type={trainer.loss.type} with trainer.minibatches=1, expected at "
            "least 2: with one, old and current policy are the same at each step, and so are ppo, "
            "gspo, cispo and sapo; take trainer.minibatches=2, or trainer.loss.type=ppo or dppo"
        )
    if trainer.kl_correction and not trainer.kl_coef:
        yield (
            "got trainer.kl_correction=true with trainer.kl_coef=0, expected a KL term to correct: "
            "trainer.kl_coef above 0, or trainer.kl_correction=false"
        )


def _of_training(config: RunConfig) -> Iterator[str]:
    compared = [domain.env for domain in config.domains.values() if domain.env.comparisons]
    if compared and config.rollout.group_size < 2:
        yield (
            f"got env={compared[0].type} with a judge that compares the replies of a group, and "
            f"rollout.group_size={config.rollout.group_size}, expected at least 2"
        )
    if config.eval.also and not config.eval.tasks:
        yield (
            f"got eval.also={list(config.eval.also)} and eval.tasks=0, expected eval.tasks of at "
            "least 1: other environments are measured on as many tasks"
        )
    if config.eval.also and not config.eval.ends:
        yield (
            f"got eval.also={list(config.eval.also)} and eval.ends=false, expected eval.ends=true: "
            "other environments are measured before the first update and after the last"
        )
    rollout = config.rollout
    most = rollout.workers * rollout.slots
    if rollout.fixed_in_flight is not None and rollout.fixed_in_flight > most:
        yield (
            f"got rollout.in_flight={rollout.in_flight}, expected at most the {most} episodes that "
            f"rollout.workers={rollout.workers} with {rollout.slots} environments each hold: raise "
            "rollout.envs_per_worker or rollout.workers"
        )
    episodes = rollout.groups * rollout.group_size
    if config.trainer.minibatches > episodes:
        yield (
            f"got trainer.minibatches={config.trainer.minibatches} of batches of {episodes} "
            "episodes (rollout.groups times rollout.group_size), expected at most as many"
        )


def _ports(config: CommandConfig) -> Iterator[str]:
    gateway, policy = config.gateway.port, config.policy.port
    if gateway and policy <= gateway < policy + config.policy.servers:
        yield (
            f"got gateway.port={gateway} among the engines' own ports (policy.port={policy} and "
            f"the next, {config.policy.servers} in all), expected different ones"
        )


def _placements(config: CommandConfig) -> Iterator[str]:
    policy, learner = config.policy.placement, config.learner.placement
    needs_nodes = policy == "nodes" or learner == "beside"
    if needs_nodes and not config.ray.is_joined:
        yield (
            f"got policy.placement={policy} and learner.placement={learner} with ray.address="
            f"{config.ray.address}, expected the address of a cluster, which has other nodes: "
            "ray.address=auto or HOST:PORT"
        )
    if config.learner.placement == "beside" and config.policy.placement != "nodes":
        yield (
            "got learner.placement=beside with policy.placement="
            f"{config.policy.placement}, expected policy.placement=nodes: there is no engine on a "
            "node that the learner could be beside"
        )


def _forms(config: CommandConfig) -> Iterator[str]:
    if config.learner.offload and config.learner.adapter is not None:
        yield (
            "got learner.offload=true with an adapter (learner=lora), expected one of them: an "
            "adapter's optimizer is small, and stays on the device; take learner.offload=false, or "
            "learner=full for all weights"
        )
    if config.learner.offload and config.trainer.distillation.teacher == "average":
        yield (
            "got trainer.distillation.teacher=average with learner.offload=true, expected weights "
            "in float32 on the device: their average would be lost in rounding; take "
            "learner=adamw, learner=lora or another teacher"
        )


def _program(agent: AgentConfig) -> Iterator[str]:
    """Problems of type=harness; a placeholder such as {agents} is filled in by each episode."""
    if agent.command and "{" not in agent.command[0] and shutil.which(agent.command[0]) is None:
        yield (
            f"got agent.command={agent.command}, expected a program that is there: "
            f"{agent.command[0]!r} is neither on PATH nor a file that can be run"
        )
