"""Report of `dry_run=true` on a command that may start: processes, work, memory, disk, time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from clawrl_gym.config import CommandConfig, EvaluateConfig, RunConfig, ServeConfig
from clawrl_gym.core import provenance
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.inference.models.shipped import SHIPPED
from clawrl_gym.preflight.demands import demands
from clawrl_gym.preflight.gpu_fit import gpu_fit_lines, gpus_here, memory_lines
from clawrl_gym.preflight.model_plan import ModelPlan
from clawrl_gym.preflight.preflight import Preflight
from clawrl_gym.preflight.requirements import GIB
from clawrl_gym.preflight.workload import measured_episodes, seconds_of, workload_of
from clawrl_gym.run_folder.folder import free_bytes

AnyPreflight = Preflight[RunConfig] | Preflight[ServeConfig] | Preflight[EvaluateConfig]
_EPISODES_PER_S = {"terminal": 30.0, "toolcall": 26.0, "conversation": 20.0, "gui": 3.0, "swe": 1.5}
"""Episodes per second of shipped models on two cores, learning included: docs/measured.md."""
_MEASURED_CORES = 2
_START_S = 40.0
_SMALL_PARAMETERS = 50e6
_READ_BYTES_PER_S = 0.5e9


def plan_lines(plan: AnyPreflight, preparations: Sequence[str] = ()) -> Iterator[str]:
    """A line for each thing that would be started or used, and what was said on the way."""
    config = plan.config
    if plan.is_complete:
        yield "Configuration is valid. Nothing would be started:"
        yield from (f"  note       {note}" for note in plan.notes)
        return
    yield "Configuration is valid. This run would start:"
    yield f"  processes  {', '.join(_processes(config, plan.model))}"
    if plan.model is not None:
        yield f"  model      {_model(config, plan.model)}"
        yield from _abilities(config, plan.model)
    yield from _work(plan)
    if plan.model is not None and plan.model.needs is not None:
        yield from _resources(plan, plan.model)
    yield f"  time       {_time(plan)}"
    for note in (*preparations, *plan.notes):
        yield f"  note       {note}"


def _processes(config: CommandConfig | EvaluateConfig, model: ModelPlan | None) -> Iterator[str]:
    policy, gateway = config.policy, config.gateway
    if model is not None:
        count = f"{policy.servers} {engine_class(policy).label}"
        count += "s" if policy.servers > 1 else ""
        yield f"{count} on the {'CPU' if model.device == 'cpu' else 'GPU'}"
    if model is not None or isinstance(config, ServeConfig):
        yield f"a gateway at {gateway.host}:{gateway.port or '(a free port)'}"
    learns = isinstance(config, RunConfig) or (isinstance(config, ServeConfig) and config.learn)
    if learns:
        yield "Ray with the learner"
    if isinstance(config, RunConfig):
        rollout = config.rollout
        yield f"{rollout.workers} worker(s) with at most {rollout.slots} environments each"
    elif isinstance(config, EvaluateConfig):
        yield f"{config.rollout.measured_slots} environments in this process"


def _model(config: CommandConfig | EvaluateConfig, model: ModelPlan) -> str:
    if model.shape is None:
        return f"{config.policy.model}, to be downloaded"
    where = model.folder or "to be downloaded"
    return f"{config.policy.model}: {model.shape.parameters:,} parameters, {where}"


def _abilities(config: CommandConfig | EvaluateConfig, model: ModelPlan) -> Iterator[str]:
    """The abilities of the model, and the demands of the environments on it."""
    able = model.abilities
    for line in able.words() if able else ():
        yield f"  can        {line}"
    if isinstance(config, RunConfig):
        stages = [(domain.env, domain.agent) for domain in config.domains.values()]
    elif isinstance(config, EvaluateConfig):
        stages = [(config.env, config.agent)]
    else:
        return
    for env, agent in stages:
        asked = "; ".join(demands(env, agent))
        if asked:
            yield f"  needs      env={env.type}: {asked}"


def _work(plan: AnyPreflight) -> Iterator[str]:
    config = plan.config
    if isinstance(config, RunConfig):
        rollout, steps = config.rollout, config.trainer.steps
        episodes = steps * rollout.groups * rollout.group_size
        yield (
            f"  work       env={config.env_name}, {steps} updates of {rollout.groups} groups of "
            f"{rollout.group_size} episodes ({episodes:,}), {_measured(plan):,} episodes on "
            "held-out tasks"
        )
    elif isinstance(config, EvaluateConfig):
        yield f"  work       env={config.env.type}, {len(plan.heldout)} tasks of {config.split}"
    else:
        learns = f"trainer={config.trainer.algorithm}, judge={config.judge.type}"
        yield f"  work       conversations{', ' + learns if config.learn else ', no learning'}"


def _is_large(model: ModelPlan) -> bool:
    """Whether its memory is worth a thought."""
    return model.shape is not None and model.shape.parameters > _SMALL_PARAMETERS


def _resources(plan: AnyPreflight, model: ModelPlan) -> Iterator[str]:
    needs = model.needs
    assert needs is not None
    free_gib = provenance.memory_available_gb()
    more = needs.learner.of_pack
    yield (
        f"  memory     about {needs.host_memory:.1f} GiB of {free_gib:.1f} free"
        + (f", up to {more:.1f} more for a full pack" if more and model.device == "cpu" else "")
    )
    for line in memory_lines(needs):
        yield f"    {line}"
    if isinstance(plan.config, CommandConfig) and model.shape is not None and _is_large(model):
        for line in gpu_fit_lines(plan.config, model.shape, gpus_here()):
            yield f"    {line}"
    folder = plan.folder.path
    free_gib = free_bytes(folder) / GIB
    yield f"  disk       about {needs.disk:.1f} GiB of {free_gib:.0f} free, in {folder}"


def _measured(plan: AnyPreflight) -> int:
    others = sum(len(other.tasks) for other in plan.extra_evaluations)
    return measured_episodes(plan.config, len(plan.heldout), others)


def _time(plan: AnyPreflight) -> str:
    config = plan.config
    if isinstance(config, ServeConfig):
        return f"about {_duration(_START_S)} until it answers, then until it is stopped"
    if plan.model is None:
        return "as long as that server takes"
    trained = 0
    if isinstance(config, RunConfig):
        trained = config.trainer.steps * config.rollout.groups * config.rollout.group_size
    episodes = trained + _measured(plan)
    cores = provenance.usable_cores()
    rate = _episodes_per_s(config)
    if config.policy.model in SHIPPED and rate is not None:
        seconds = _START_S + episodes / rate * _MEASURED_CORES / cores
        return f"about {_duration(seconds)} on {cores} cores with no other load"
    if plan.model.shape is None:
        return "not known before the model is downloaded"
    shape, device = plan.model.shape, plan.model.device
    work = workload_of(config, _measured(plan))
    seconds = _START_S + 4 * shape.parameters / _READ_BYTES_PER_S
    seconds += seconds_of(work, shape, device, config, cores)
    return (
        f"very roughly {_duration(seconds)}, with replies of half of policy.sampling.max_tokens: "
        "this model is not measured here; a run estimates its time left from the first update on"
    )


def _episodes_per_s(config: RunConfig | EvaluateConfig) -> float | None:
    """Episodes per second; None where somebody else's environment is among them."""
    if isinstance(config, EvaluateConfig):
        return _EPISODES_PER_S.get(config.env.type)
    domains = config.domains.values()
    if not {domain.env.type for domain in domains} <= _EPISODES_PER_S.keys():
        return None
    total = sum(domain.weight for domain in domains)
    return total / sum(domain.weight / _EPISODES_PER_S[domain.env.type] for domain in domains)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{math.ceil(seconds / 10) * 10} s"
    if seconds < 5400:
        return f"{math.ceil(seconds / 60)} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.0f} days"
