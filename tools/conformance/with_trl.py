"""trl's GRPOTrainer on the exchange files.

    PYTHONPATH=. python -m tools.conformance.with_trl

Sequences and log-probs come in through `rollout_func`, rewards through a reward function; what is
compared is what `_generate_and_score_completions` and `_compute_loss` make of them. The policy is
the file's table in the place of the trainer's model. trl adds 1e-4 to the deviation where the files
add 1e-6, so advantages are compared within 1e-3, and the rest with the file's own advantages.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tools.conformance.exchange import Case, Result, compare, load_cases

ADVANTAGES_WITHIN = 1e-3
CANNOT = {
    "rloo": "GRPOTrainer has no leave-one-out baseline (RLOOTrainer is another trainer)",
    "dapo": "a group without a difference stays in the mean over tokens",
    "constant_group_dropped": "a group without a difference stays in the mean over tokens",
    "retokenisation": "an episode is one sequence: a reply that returns in other ids does not fit",
    "kept_sampling_mask": "log-probs are over the whole vocabulary",
    "dppo_tv": "trl 1.16 has no DPPO (1.4 had an experimental DPPOTrainer)",
    "dppo_kl": "trl 1.16 has no DPPO (1.4 had an experimental DPPOTrainer)",
}
"""Cases that it has no setting for, and why."""
DIFFERS = {
    "environment_failure": "an episode without a reward is not in its group's mean, and its tokens "
    "stay in the mean over tokens with an advantage of 0",
    "masked_importance": "it masks by token or by sequence (whose weight is the product, not the "
    "geometric mean), not by both",
}
"""Cases that it computes otherwise, and why."""
_LOSSES = {"token_mean": "dapo", "sequence_mean": "grpo", "constant": "dr_grpo"}


class TableModel(nn.Module):
    """A policy with a row of logits for the token before, in the form that the trainer calls."""

    is_gradient_checkpointing = False

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor(table))

    def forward(self, input_ids: Tensor, labels: Tensor, **_: Any) -> Any:
        logprobs = self.table.log_softmax(-1)[input_ids[:, :-1]]
        own = logprobs.gather(-1, input_ids[:, 1:, None]).squeeze(-1)
        first = own.new_zeros(len(own), 1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return SimpleNamespace(
            log_probs=torch.cat([first, own], 1), entropy=torch.cat([first, entropy], 1)
        )


def run(case: Case, trainer: Any) -> Result:
    """trl's results for a case's batch; the trainer is made for this many episodes a group."""
    _configure(trainer, case)
    trainer.model = TableModel(case.weights["current"])
    trainer.model.train()
    trainer.rollout_func = lambda prompts, _: _rollout(case)
    trainer.reward_funcs = [lambda completions, **_: [one.reward for one in case.episodes]]
    trainer.use_vllm = case.settings["importance_cap"] is not None
    trainer._last_loaded_step = trainer.state.global_step
    inputs = trainer._generate_and_score_completions([{"prompt": "w3"}] * len(case.episodes))
    trainer.beta = case.settings["kl"]  # before, it would ask its own reference model
    mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
    advantages = inputs["advantages"].tolist()
    # a trainer that adds another number to the deviation is compared with the file's from here on
    given = [0.0 if one is None else one for one in case.expected["advantages"]]
    inputs["advantages"] = torch.tensor(given, dtype=torch.float64)
    old = _scores(trainer, case, inputs, "proximal")
    if old is not None:
        inputs["old_per_token_logps"] = old
    reference = _scores(trainer, case, inputs, "reference")
    if reference is not None:
        inputs["ref_per_token_logps"] = reference
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    gradient = trainer.model.table.grad
    return Result(
        advantages=[
            None if one.reward is None else value
            for one, value in zip(case.episodes, advantages, strict=True)
        ],
        trained=_by_place(case, mask, mask, False),
        importance=_importance(case, inputs, mask),
        loss=float(loss.detach()),
        gradient_norm=float(gradient.norm()),
    )


def _configure(trainer: Any, case: Case) -> None:
    values = case.settings
    by_name = values["surrogate"] in ("cispo", "sapo")
    trainer.loss_type = values["surrogate"] if by_name else _LOSSES[values["reduction"]]
    trainer.args.sapo_temperature_pos = values.get("tau_pos", 1.0)
    trainer.args.sapo_temperature_neg = values.get("tau_neg", 1.0)
    trainer.importance_sampling_level = "sequence" if values["surrogate"] == "gspo" else "token"
    trainer.epsilon_low = values["clip_low"]
    # cispo's bound is the largest ratio itself, not its distance from 1
    trainer.epsilon_high = values["clip_high"] + (values["surrogate"] == "cispo")
    trainer.scale_rewards = "group" if values["advantage"]["std"] == "sample" else "none"
    trainer.beta = 0.0
    trainer.max_completion_length = values["constant_length"]
    keep = values["keep"]
    trainer.vllm_importance_sampling_mode = "token_truncate" if keep is None else "token_mask"
    bounds = (None, values["importance_cap"]) if keep is None else keep["token"]
    trainer.vllm_importance_sampling_clip_min, trainer.vllm_importance_sampling_clip_max = bounds
    trainer.vllm_importance_sampling_correction = True
    trainer.args.use_bias_correction_kl = False  # its default weighs the KL term by the ratio


def _rollout(case: Case) -> Mapping[str, Any]:
    starts = [one.sampled.index(True) for one in case.sequences]
    return {
        "prompt_ids": [one.ids[:at] for one, at in zip(case.sequences, starts, strict=True)],
        "completion_ids": [one.ids[at:] for one, at in zip(case.sequences, starts, strict=True)],
        "logprobs": [
            [0.0 if value is None else value for value in one.behaviour_logprobs[at:]]
            for one, at in zip(case.sequences, starts, strict=True)
        ],
        "env_mask": [
            [int(here) for here in one.sampled[at:]]
            for one, at in zip(case.sequences, starts, strict=True)
        ],
    }


def _scores(trainer: Any, case: Case, inputs: Mapping[str, Any], name: str) -> Tensor | None:
    """Log-probs of a table of the file, padded as the trainer pads them."""
    if name not in case.weights:
        return None
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        scores: Tensor = trainer._get_per_token_logps_and_entropies(
            TableModel(case.weights[name]), ids, attention, inputs["completion_ids"].size(1)
        )[0]
    return scores


def _importance(
    case: Case, inputs: Mapping[str, Any], mask: Tensor
) -> list[list[float | None]] | None:
    weights = inputs.get("importance_sampling_ratio")
    return None if weights is None else _by_place(case, weights, mask, None)


def _by_place(case: Case, values: Tensor, mask: Tensor, otherwise: Any) -> list[list[Any]]:
    rows = []
    for sequence, own, kept in zip(case.sequences, values.tolist(), mask.tolist(), strict=True):
        start = sequence.sampled.index(True)
        reply = len(sequence.ids) - start
        trained = [
            value if here else otherwise
            for value, here in zip(own[:reply], kept[:reply], strict=True)
        ]
        rows.append([otherwise] * start + trained)
    return rows


def make_trainer(folder: str, group_size: int) -> Any:
    """A GRPOTrainer beside a model of no importance."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{at}": at for at in range(3, 12)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=12, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=1, num_key_value_heads=1, head_dim=8,
        )
    )  # fmt: skip
    return GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=folder, num_generations=group_size,
            per_device_train_batch_size=group_size, max_completion_length=32, use_cpu=True,
            bf16=False, gradient_checkpointing=False, report_to=[], beta=0.0,
        ),
        train_dataset=Dataset.from_list([{"prompt": "w3"}] * group_size),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
        ),
        rollout_func=lambda prompts, _: {},
    )  # fmt: skip


def differences(case: Case, trainer: Any) -> list[str]:
    """Advantages by their own tolerance, all else by the usual one."""
    result = run(case, trainer)
    apart = compare(case, Result(advantages=result.advantages), rtol=ADVANTAGES_WITHIN)
    return apart + compare(case, replace(result, advantages=None))


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder, 4)
        for case in load_cases():
            why = CANNOT.get(case.name)
            lines = [f"cannot express it: {why}"] if why else differences(case, trainer)
            if lines and case.name in DIFFERS:
                lines.append(DIFFERS[case.name])
            print(f"{case.name}: {'; '.join(lines) or 'passes'}", flush=True)


if __name__ == "__main__":
    main()
