"""vLLM's scheduler (`--scheduler-cls`) with seats for probes: what verifies a publication is read
in the next step, however many requests run and wait.

A probe is a request with the priority PROBE_PRIORITY. It stands before all others in the queue, and
where all seats are taken it gets one of PROBE_SEATS more, which nobody else ever has.
Loaded by vLLM only.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from clawrl_gym.inference.vllm.launch import PROBE_PRIORITY, PROBE_SEATS

if TYPE_CHECKING:
    from clawrl_gym.inference.vllm.objects import EngineRequest, SchedulerOutput, VllmConfig


def make(vllm_config: VllmConfig, **parts: object) -> Scheduler:
    """The one for the engine's way of scheduling, which vLLM decides on while it starts."""
    is_async = vllm_config.scheduler_config.async_scheduling
    return (AsyncProbesFirst if is_async else ProbesFirst)(vllm_config, **parts)


class ProbesFirst(Scheduler):  # type: ignore[misc]
    """For an engine that waits for each step."""

    def schedule(self, *arguments: object, **named: object) -> SchedulerOutput:
        seats = self.max_num_running_reqs - PROBE_SEATS
        needed = len(self.running) + self._waiting_probes()
        self.max_num_active_reqs = max(seats, min(needed, self.max_num_running_reqs))
        return super().schedule(*arguments, **named)

    def _waiting_probes(self) -> int:
        """They stand at the head of the queue."""
        if not self.waiting or not _is_probe(self.waiting.peek_request()):
            return 0
        return sum(1 for _ in itertools.takewhile(_is_probe, self.waiting))


def _is_probe(request: EngineRequest) -> bool:
    return bool(request.priority <= PROBE_PRIORITY)


class AsyncProbesFirst(ProbesFirst, AsyncScheduler):  # type: ignore[misc]
    """For one that prepares a step while the last one runs."""
