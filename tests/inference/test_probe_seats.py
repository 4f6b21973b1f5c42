"""vLLM's own scheduler with seats for probes: who is admitted to the next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.inference.vllm.launch import PROBE_PRIORITY, PROBE_SEATS
from tests.support.tiny_models import make_random_model

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]  # of vLLM's imports
SEATS, BLOCKS, BLOCK = 2, 100, 16


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    folder: Path = make_random_model(tmp_path_factory.mktemp("model") / "m", max_len=256)
    made = EngineArgs(
        model=str(folder),
        dtype="float32",
        max_num_seqs=SEATS + PROBE_SEATS,
        scheduling_policy="priority",
        scheduler_cls="clawrl_gym.inference.vllm.scheduler.make",
        enforce_eager=True,
        kv_cache_memory_bytes=2**24,
    ).create_engine_config()
    made.cache_config.num_gpu_blocks = BLOCKS
    return made


@pytest.fixture(params=[False, True])
def scheduler(configuration: Any, request: pytest.FixtureRequest) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    configuration.scheduler_config.async_scheduling = request.param
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return configuration.scheduler_config.get_scheduler_cls()(
        vllm_config=configuration,
        kv_cache_config=KVCacheConfig(
            num_blocks=BLOCKS,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(configuration),
        block_size=BLOCK,
    )


def add(scheduler: Any, *names: str, priority: int = 0) -> None:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    for name in names:
        sampling = SamplingParams(max_tokens=50)
        scheduler.add_request(Request(name, [1, 2, 3], sampling, None, priority=priority))


def admitted(scheduler: Any) -> set[str]:
    return {new.req_id for new in scheduler.schedule().scheduled_new_reqs}


def end(scheduler: Any, *names: str) -> None:
    from vllm.v1.request import RequestStatus

    scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)


def test_probes_are_admitted_before_all_that_waits_and_beside_all_that_runs(
    scheduler: Any,
) -> None:
    add(scheduler, "a", "b", "c", "d")
    assert admitted(scheduler) == {"a", "b"}
    add(scheduler, "p", "q", priority=PROBE_PRIORITY)
    add(scheduler, "e")
    assert admitted(scheduler) == {"p", "q"}
    end(scheduler, "p", "q")
    assert admitted(scheduler) == set(), "nobody else has a probe's seat"
    end(scheduler, "a")
    assert admitted(scheduler) == {"c"}


def test_there_are_only_so_many_seats_for_probes(scheduler: Any) -> None:
    add(scheduler, "a", "b", "c")
    assert admitted(scheduler) == {"a", "b"}
    probes = [f"p{number}" for number in range(PROBE_SEATS + 1)]
    add(scheduler, *probes, priority=PROBE_PRIORITY)
    assert admitted(scheduler) == set(probes[:-1])
    end(scheduler, "p0")
    assert admitted(scheduler) == {probes[-1]}
    end(scheduler, *probes)
    assert admitted(scheduler) == set()


def test_where_seats_are_free_a_probe_takes_one_of_them(scheduler: Any) -> None:
    add(scheduler, "a")
    add(scheduler, "p", priority=PROBE_PRIORITY)
    assert admitted(scheduler) == {"a", "p"}
    add(scheduler, "b")
    assert admitted(scheduler) == set()
    end(scheduler, "p")
    assert admitted(scheduler) == {"b"}
