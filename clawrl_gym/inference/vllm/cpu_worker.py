"""vLLM's worker for the CPU (`--worker-cls`): seeded requests survive a prompt read in parts, and
requests without an adapter are answered without one.

A part of a prompt ends with a sample that is thrown away, and vLLM then turns the request's random
generator back by an offset. Generators of the CPU have none: the engine would die of it. So has a
reply that is read again after a swap, in the middle of its random numbers.

In a batch in which some requests have adapters (LoRA), -1 stands for those that have none; vLLM's
kernels for the CPU take it for the last slot, and so would answer with somebody else's adapter.
Loaded by vLLM only.
"""

from __future__ import annotations

import torch
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from clawrl_gym.inference.vllm.objects import SchedulerOutput


class Rewindable(torch.Generator):
    """Turned back, it goes to where the reading began: its samples alone are thrown away."""

    def begin_reading(self) -> None:
        """The next samples belong to parts of what is read, but for the last."""
        self._before_reading = self.get_state()

    def get_offset(self) -> int:
        return 0

    def set_offset(self, offset: int) -> torch.Generator:
        return self.set_state(self._before_reading)


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
                state.generator.begin_reading()
                at = self.input_batch.req_id_to_index[new.req_id]
                self.input_batch.generators[at] = state.generator
        for again in scheduler_output.scheduled_cached_reqs.resumed_req_ids:
            generator = self.requests[again].generator
            if generator is not None:
                generator.begin_reading()
        return updated


_shrink = lora_ops.bgmv_shrink


def shrink(
    inputs: torch.Tensor,
    lora_a: torch.Tensor,
    output: torch.Tensor,
    slots: torch.Tensor,
    scaling: float = 1.0,
) -> None:
    """vLLM's `bgmv_shrink`, x A^T by each token's slot; nothing where there is none, so that what
    the other matrix makes of it is nothing, too."""
    _shrink(inputs, lora_a, output, slots, scaling)
    output[slots < 0] = 0


class CpuWorker(CPUWorker):  # type: ignore[misc]
    """vLLM's own, with that runner and that kernel."""

    def init_device(self) -> None:
        lora_ops.bgmv_shrink = punica_cpu.bgmv_shrink = shrink
        super().init_device()
        if type(self.model_runner) is CPUModelRunner:
            self.model_runner.__class__ = SeededRunner
