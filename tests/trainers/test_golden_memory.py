"""Bytes of a learner's memory for one small model in every form: nothing moves them unseen.

That they are what PyTorch keeps is tested in test_fit.py.
`python -m tests.trainers.test_golden_memory` writes them anew.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import astuple, replace
from pathlib import Path
from typing import Literal

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.inference.models.shape import ModelShape
from clawrl_gym.trainers.models.memory import GIB, learner_memory, offloaded_gib

FILE = Path(__file__).parents[1] / "fixtures" / "golden" / "learner_memory.json"
SHAPE = ModelShape(
    parameters=40_000, layers=3, hidden=64, queries=96, keys=32, inner=160, vocab=500,
    caching_layers=3, linear={"q_proj": [[64, 96]] * 3, "up_proj": [[64, 160]] * 2},
    dtype="bfloat16",
)  # fmt: skip
DEVICES: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")
LORA = AdapterConfig(rank=4)
LEARNERS = {
    "all": LearnerConfig(),
    "offloaded": LearnerConfig(offload=True),
    "adapter": LearnerConfig(adapter=LORA),
    "adapter of q_proj": LearnerConfig(adapter=AdapterConfig(rank=8, modules=("q_proj", "none"))),
    "adapter, float32": LearnerConfig(adapter=LORA, base="float32"),
    "adapter, nf4": LearnerConfig(adapter=LORA, base="nf4"),
}
TRAINERS: dict[str, dict[str, object]] = {
    "grpo": {},
    "kl": {"kl_coef": 0.1},
    "frozen": {"algorithm": "opd", "distillation": {"teacher": "frozen"}},
    "average": {"algorithm": "opd", "distillation": {"teacher": "average"}},
    "another": {"algorithm": "opd", "distillation": {"teacher": "org/model"}},
    "another, kl": {
        "algorithm": "opd", "kl_coef": 0.1, "distillation": {"teacher": "org/model"},
    },
}  # fmt: skip


def in_bytes() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for (name, learner), device, layers in itertools.product(
        LEARNERS.items(), DEVICES, (False, True)
    ):
        form = learner.model_copy(update={"checkpoint_layers": layers})
        memory = learner_memory(TrainerConfig(max_tokens_per_pack=200), form, SHAPE, device)
        parts = [*astuple(memory), memory.resident, memory.of_pack, memory.total]
        offloaded = offloaded_gib(form, SHAPE)
        found[f"{name}, {device}, {layers}"] = [round(part * GIB) for part in (*parts, offloaded)]
    for (name, given), base in itertools.product(TRAINERS.items(), ("all", "adapter")):
        trainer = TrainerConfig.model_validate({"max_tokens_per_pack": 130, **given})
        memory = learner_memory(trainer, LEARNERS[base], SHAPE, "cpu", 170)
        found[f"{name}, {base}"] = [round(part * GIB) for part in astuple(memory)]
    long = learner_memory(TrainerConfig(), LEARNERS["all"], SHAPE, "cpu", 1_000_000)
    wide = learner_memory(TrainerConfig(), LEARNERS["adapter"], replace(SHAPE, vocab=2**26), "cpu")
    found["at most"] = [round(long.logits * GIB), round(wide.logits * GIB)]
    return found


def test_the_memory_of_a_learner_is_what_it_was() -> None:
    assert in_bytes() == json.loads(FILE.read_text())


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {parts}" for name, parts in in_bytes().items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
