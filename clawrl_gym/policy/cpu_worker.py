"""vLLM's worker for the CPU (`--worker-cls`): seeded requests survive a prompt read in parts.

A part of a prompt ends with a sample that is thrown away, and vLLM then turns the request's random
generator back by an offset. Generators of the CPU have none: the engine would die of it. Loaded by
vLLM only.
"""

from __future__ import annotations

import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from clawrl_gym.policy.vllm_objects import SchedulerOutput


class Rewindable(torch.Generator):
    """Turned back, it begins anew: samples are thrown away before the first one that counts."""

    def get_offset(self) -> int:
        return 0

    def set_offset(self, offset: int) -> torch.Generator:
        return self.manual_seed(self.initial_seed())


class SeededRunner(CPUModelRunner):  # type: ignore[misc]
    """Gives each new request with a seed a generator that can be turned back."""

    def _update_states(self, scheduler_output: SchedulerOutput) -> object:
        updated = super()._update_states(scheduler_output)
        for new in scheduler_output.scheduled_new_reqs:
            state = self.requests[new.req_id]
            if state.generator is not None:
                seed = state.generator.initial_seed()
                state.generator = Rewindable(device="cpu")
                state.generator.manual_seed(seed)
                at = self.input_batch.req_id_to_index[new.req_id]
                self.input_batch.generators[at] = state.generator
        return updated


class CpuWorker(CPUWorker):  # type: ignore[misc]
    """vLLM's own, with that runner."""

    def init_device(self) -> None:
        super().init_device()
        if type(self.model_runner) is CPUModelRunner:
            self.model_runner.__class__ = SeededRunner
