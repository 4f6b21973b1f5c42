"""vLLM's CUDA build serves adapters beside the tiny policy as they were trained."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from clawrl_gym.config import AdapterConfig, LearnerConfig, PolicyConfig, TrainerConfig
from clawrl_gym.core.errors import NotServed
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.run.weight_checks import WeightChecks
from clawrl_gym.trainers.models.adapter import trained
from clawrl_gym.trainers.updates.learner import Learner

pytestmark = [pytest.mark.gpu, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]
CONFIG = PolicyConfig(gpu_memory_utilization=0.2)
FORM = AdapterConfig(rank=8)


def test_each_publication_is_proved_and_one_that_is_not_trained_is_refused(tmp_path: Path) -> None:
    model = shipped_dir()
    learner = Learner(TrainerConfig(), LearnerConfig(adapter=FORM), str(model), 0, "cuda")
    said: list[str] = []

    def adapter(name: str) -> Path:
        """Other weights than the last, as a step would make them."""
        with torch.no_grad():
            for tensor in trained(learner.model.net).values():
                tensor += 0.02 * torch.randn_like(tensor)
        learner.save_adapter(str(tmp_path / name))
        return tmp_path / name

    async def go() -> None:
        servers = PolicyServers(CONFIG, model, tmp_path / "s", tmp_path, said.append, adapter=FORM)
        weight_checks = WeightChecks(servers, said.append, is_exact=False)
        try:
            await servers.start_adapters()
            weight_checks.begin(learner.probe())
            first = adapter("first")
            for version, folder in ((1, first), (2, adapter("second"))):
                weight_check = await weight_checks.of(learner.probe(), "", version, servers.version)
                assert weight_check is not None
                if version == 1:  # the learner is at the second already
                    with pytest.raises(NotServed):
                        await servers.publish_adapter(version, folder, verify=weight_check)
                    continue
                await servers.publish_adapter(version, folder, verify=weight_check)
                assert weight_check.metrics["learner/probe_arrived"] == pytest.approx(1, abs=0.2)
            assert servers.version == 2
        finally:
            await servers.stop()
            await servers.close_clients()

    asyncio.run(go())
