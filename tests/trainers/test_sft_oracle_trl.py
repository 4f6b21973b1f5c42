"""Supervised learning takes the steps of trl's SFTTrainer: the same tokens, losses and weights."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import clawrl_gym as cg
from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.weights.checkpoints import last_checkpoint
from clawrl_gym.run.sft_data import SftReader
from clawrl_gym.trainers.models.adapter import trained
from clawrl_gym.trainers.updates.learner import Learner
from clawrl_gym.trainers.updates.supervised import BatchOrder
from tests.support.tiny_models import make_random_model

pytestmark = pytest.mark.filterwarnings("ignore")  # of trl and of what it imports

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}"
    "{%- for message in messages %}{% if message.role == 'assistant' %}<|im_start|>assistant\n"
    "{% generation %}{{ message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>{% endgeneration %}"
    "{% else %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>{% endif %}\n"
    "{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Says itself which tokens are the assistant's, as trl needs it."""
BATCH, EPOCHS, SEED = 4, 2, 3
WORDS = ("copy", "the", "file", "a.txt", "to", "b.csv", "print", "its", "first", "lines")


def said(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(2, 9)))


def conversations() -> list[dict[str, Any]]:
    """Conversations of one to three replies, one of them with a tool."""
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    for _ in range(9):
        messages = [{"role": "system", "content": said(draw)}]
        for _ in range(draw.randint(1, 3)):
            messages.append({"role": "user", "content": said(draw)})
            messages.append({"role": "assistant", "content": said(draw)})
        rows.append({"messages": messages})
    return rows


def prompts_with_chats() -> list[dict[str, Any]]:
    return [
        {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]}
        for row in conversations()
    ]


def plain_texts() -> list[dict[str, Any]]:
    draw = random.Random(1)
    return [{"prompt": said(draw), "completion": " " + said(draw)} for _ in range(9)]


def with_tools() -> list[dict[str, Any]]:
    look = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    call = {"type": "function", "function": {"name": "look", "arguments": {"path": "a.txt"}}}
    messages = [
        {"role": "user", "content": "copy the file"},
        {"role": "assistant", "content": "first", "tool_calls": [call]},
        {"role": "tool", "content": "its lines"},
        {"role": "assistant", "content": "print them"},
    ]
    return [{"messages": messages, "tools": [{"type": "function", "function": look}]}] * 5


def write(rows: list[dict[str, Any]], folder: Path) -> Path:
    file = folder / "chats.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def arguments(model: Path, file: Path, steps: int, *more: str) -> list[str]:
    return [
        str(file), f"policy.model={model}", f"run.dir={file.parent / 'run'}", "heldout=0",
        f"batch={BATCH}", f"epochs={EPOCHS}", f"seed={SEED}", "learner.lr=2e-3",
        "learner.warmup_steps=0", "learner.weight_decay=0", f"learner.min_lr_ratio={1 / steps}",
        *more,
    ]  # fmt: skip


def samples_of(config: cg.SftConfig, model: Path) -> list[Sample]:
    return SftReader(config, model).read([]).train


def trl_trainer(
    model: Path, rows: list[dict[str, Any]], steps: int, folder: Path, peft_config: Any = None
) -> Any:
    """Takes the rows in their order, `BATCH` at a time, at the rates of a linear schedule."""
    from datasets import Dataset
    from torch.utils.data import SequentialSampler
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    class InOrder(SFTTrainer):  # type: ignore[misc]
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return SequentialSampler(self.train_dataset)

    config = SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        max_steps=steps,
        learning_rate=2e-3,
        lr_scheduler_type="linear",
        warmup_steps=0,
        adam_beta1=0.9,
        adam_beta2=0.98,
        weight_decay=0.0,
        max_grad_norm=1.0,
        max_length=None,
        assistant_only_loss="messages" in rows[0],
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
    )
    return InOrder(
        model=str(model),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(model),
        peft_config=peft_config,
    )


def losses_of_trl(trainer: Any) -> list[float]:
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def as_ours(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """The rows in the order in which our run takes them; and its updates. Batches that the end of
    an epoch cuts short would be filled by trl with the next epoch's: there is none here."""
    order = BatchOrder(len(rows), BATCH, SEED)
    steps = EPOCHS * order.updates_per_epoch
    return [rows[i] for update in range(steps) for i in order.indices(update)], steps


@pytest.mark.parametrize("make", [conversations, prompts_with_chats, plain_texts, with_tools])
def test_the_tokens_that_count_are_trls(tmp_path: Path, make: Any) -> None:
    model = make_random_model(tmp_path / "model", template=TEMPLATE)
    rows = make()
    ours = samples_of(cg.load_config(arguments(model, write(rows, tmp_path), 1), "sft"), model)
    trainer = trl_trainer(model, rows, 1, tmp_path / "trl")
    theirs = list(trainer.train_dataset)
    assert len(ours) == len(theirs) == len(rows)
    for sample, row in zip(ours, theirs, strict=True):
        length = len(sample.ids_T)
        after = trainer.processing_class.decode(row["input_ids"][length:])
        assert sample.ids_T == list(row["input_ids"])[:length]
        assert after in ("", "\n"), "what the template writes behind the end of a reply"
        labels = list(row["labels"])[:length]
        assert [
            t if m else -100 for t, m in zip(sample.ids_T, sample.mask_T, strict=True)
        ] == labels
        assert any(sample.mask_T)


def test_all_weights_take_the_same_steps(tmp_path: Path) -> None:
    model = make_random_model(tmp_path / "model", template=TEMPLATE)
    rows = conversations()[:8]
    ordered, steps = as_ours(rows)
    run = cg.run_sft(arguments(model, write(rows, tmp_path), steps))
    assert run.updates == steps == 4
    trainer = trl_trainer(model, ordered, steps, tmp_path / "trl")
    assert losses_in(run.folder) == pytest.approx(losses_of_trl(trainer), abs=1e-4)
    from transformers import AutoModelForCausalLM

    learned = AutoModelForCausalLM.from_pretrained(last_checkpoint(run.folder), dtype=torch.float32)
    first = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    moved = False
    for (name, own), theirs, begun in zip(
        learned.named_parameters(), trainer.model.parameters(), first.parameters(), strict=True
    ):
        torch.testing.assert_close(own, theirs, atol=1e-4, rtol=0, msg=name)
        moved |= bool((own - begun).abs().max() > 1e-3)
    assert moved


def test_an_adapter_takes_the_same_steps(tmp_path: Path) -> None:
    from peft import LoraConfig
    from safetensors.torch import load_file

    model = make_random_model(tmp_path / "model", template=TEMPLATE)
    rows = conversations()[:8]
    ordered, steps = as_ours(rows)
    adapter = ("learner=lora", "learner.adapter.rank=4", "learner.adapter.alpha=8")
    run = cg.run_sft(arguments(model, write(rows, tmp_path), steps, *adapter))
    settings = AdapterConfig(rank=4, alpha=8)
    learner = LearnerConfig(adapter=settings)
    first = trained(Learner(TrainerConfig(), learner, str(model), SEED, "cpu").model.net)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = trl_trainer(model, ordered, steps, tmp_path / "trl", lora)
    theirs = {
        name.replace(".default.", "."): tensor
        for name, tensor in trainer.model.state_dict().items()
        if ".lora_" in name
    }
    assert theirs.keys() == first.keys()
    with torch.no_grad():
        for name, tensor in first.items():
            theirs[name].copy_(tensor)
    assert losses_in(run.folder) == pytest.approx(losses_of_trl(trainer), abs=1e-4)
    own = load_file(last_checkpoint(run.folder) / "adapter" / "adapter_model.safetensors")
    for name, tensor in own.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-4, rtol=0, msg=name)
    assert any(tensor.abs().max() > 1e-3 for name, tensor in own.items() if ".lora_B." in name)


def losses_in(run: Path) -> list[float]:
    rows = [row for row in read_json_lines(run / "metrics.jsonl") if "learner/loss" in row]
    return [float(str(row["learner/loss"])) for row in rows]
