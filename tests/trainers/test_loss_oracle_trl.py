"""Advantages, loss and gradient equal those of trl's GRPOTrainer on fixed completions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from clawrl_gym.core.types import Episode, Group, Sample, StopReason, TaskRef
from clawrl_gym.dialogue.merging import Segment
from clawrl_gym.trainers.algorithms.grpo import Grpo
from clawrl_gym.trainers.losses.loss import LossSettings, policy_loss
from clawrl_gym.trainers.models.model import PackedModel
from clawrl_gym.trainers.models.packing import make_packs
from tests.reference.tiny_model import VOCAB, write_tiny_qwen3
from tests.trainers.loss_settings import loss_settings, settings_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of trl and of what it imports

PROMPT = [5, 6, 7, 8]
REWARDS = [1.0, 0.0, 0.25, 1.0]
BETA = 0.05
TAUS = (0.8, 1.3)
"""Temperatures of sapo, apart from each other and from 1."""
DRAW = random.Random(0)
COMPLETIONS = [[DRAW.randrange(3, VOCAB) for _ in range(n)] for n in (7, 12, 3, 9)]
OLD_SHIFTS = [[DRAW.gauss(0, 0.3) for _ in completion] for completion in COMPLETIONS]
REF_SHIFTS = [[DRAW.gauss(0, 0.3) for _ in completion] for completion in COMPLETIONS]
TIS_WEIGHTS = [[DRAW.uniform(0.5, 2.0) for _ in completion] for completion in COMPLETIONS]


def padded(rows: list[list[float]]) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([row + [0.0] * (width - len(row)) for row in rows])


def word_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{i}": i for i in range(3, VOCAB)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def trl_trainer(model_dir: str, folder: Path, scale_rewards: str) -> Any:
    """A GRPOTrainer whose rollouts and rewards are the fixed ones above."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        assert len(prompts) == len(COMPLETIONS)
        return {
            "prompt_ids": [PROMPT] * len(prompts),
            "completion_ids": COMPLETIONS,
            "logprobs": [[0.0] * len(completion) for completion in COMPLETIONS],
        }

    config = GRPOConfig(
        output_dir=str(folder),
        loss_type="dapo",
        epsilon=0.2,
        epsilon_high=0.28,
        scale_rewards=scale_rewards,
        beta=0.0,
        use_bias_correction_kl=False,
        num_generations=len(REWARDS),
        per_device_train_batch_size=len(REWARDS),
        max_completion_length=16,
        temperature=0.8,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        model_init_kwargs={"dtype": "float32"},
    )
    return GRPOTrainer(
        model=model_dir,
        reward_funcs=lambda completions, **_: REWARDS,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "w5 w6 w7 w8"}] * 4),
        processing_class=word_tokenizer(),
        rollout_func=rollout,
    )


def trl_results(
    model_dir: str, folder: Path, scale_rewards: str, kl_correction: bool, loss_type: str = "dapo"
) -> tuple[list[float], float, Any]:
    """trl's advantages, loss and gradient at a policy that has moved away from the old one."""
    trainer = trl_trainer(model_dir, folder, scale_rewards)
    trainer.model.train()
    inputs = trainer._generate_and_score_completions([{"prompt": "w5 w6 w7 w8"}] * 4)
    assert inputs["completion_mask"].sum() == sum(map(len, COMPLETIONS))
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    with torch.no_grad():
        logprobs = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, attention, inputs["completion_ids"].size(1)
        )[0]
    inputs["old_per_token_logps"] = logprobs + padded(OLD_SHIFTS)
    inputs["ref_per_token_logps"] = logprobs + padded(REF_SHIFTS)
    inputs["importance_sampling_ratio"] = padded(weights(kl_correction))
    inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
    trainer.loss_type = loss_type
    trainer.args.sapo_temperature_pos, trainer.args.sapo_temperature_neg = TAUS
    trainer.beta = BETA
    trainer.args.use_bias_correction_kl = kl_correction
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    trainer.current_gradient_accumulation_steps = 1
    trainer._compute_metrics = False
    try:
        loss = trainer._compute_loss(trainer.model, inputs)
    finally:
        trainer.use_vllm = False
    loss.backward()
    gradient = {name: p.grad for name, p in trainer.model.named_parameters()}
    return inputs["advantages"].tolist(), loss.item(), gradient


def weights(kl_correction: bool) -> list[list[float]]:
    """Importance weights: trl leaves them out of the KL term, also of a corrected one."""
    return [[1.0] * len(row) for row in TIS_WEIGHTS] if kl_correction else TIS_WEIGHTS


def our_results(
    model_dir: str, normalize_std: bool, kl_correction: bool, settings: LossSettings | None = None
) -> tuple[list[float], float, Any]:
    task = TaskRef(None, 0, "train")
    episodes = [
        Episode(str(n), 0, task, StopReason.TERMINATED, reward, 1)
        for n, reward in enumerate(REWARDS)
    ]
    segments = [
        [
            Segment(
                PROMPT + completion,
                [False] * len(PROMPT) + [True] * len(completion),
                [0.0] * (len(PROMPT) + len(completion)),
                [-1] * len(PROMPT) + [0] * len(completion),
                [-1] * len(PROMPT) + [0] * len(completion),
                [0],
            )
        ]
        for completion in COMPLETIONS
    ]
    samples = Grpo(normalize_std).make_samples(Group(0, task, episodes, 0), segments)
    (pack,) = make_packs(samples, 1024)
    model = PackedModel(model_dir, "cpu", temperature=0.8)
    lp = model.score(pack).logprobs_M
    order = sorted(range(len(COMPLETIONS)), key=lambda i: -len(COMPLETIONS[i]))
    old, ref, importance = (
        torch.tensor([value for i in order for value in rows[i]])
        for rows in (OLD_SHIFTS, REF_SHIFTS, weights(kl_correction))
    )
    old, ref = lp.detach() + old, lp.detach() + ref
    terms = policy_loss(
        lp,
        old,
        old - importance.log(),
        torch.from_numpy(pack.advantages_M),
        len(lp),
        settings or loss_settings(0.2, 0.28, 2.0, BETA, kl_correction=kl_correction),
        ref,
        rows_M=torch.from_numpy(pack.rows_M),
        sequences=len(samples),
    )
    assert terms.clipped.any() == (settings is None)
    terms.loss.backward()
    gradient = {name: p.grad for name, p in model.net.named_parameters()}
    return [max(s.advantages_T, key=abs) for s in samples], terms.loss.item(), gradient


@pytest.mark.parametrize(
    ("scale_rewards", "normalize_std", "kl_correction"),
    [("group", True, False), ("none", False, False), ("group", True, True)],
)
def test_advantages_loss_and_gradient_equal_trls(
    tmp_path: Path, scale_rewards: str, normalize_std: bool, kl_correction: bool
) -> None:
    model_dir = write_tiny_qwen3(tmp_path / "model")
    theirs = trl_results(model_dir, tmp_path / "out", scale_rewards, kl_correction)
    check_same(our_results(model_dir, normalize_std, kl_correction), theirs)


def test_sapo_equals_trls(tmp_path: Path) -> None:
    """Its mean is over sequences' means, as the paper's."""
    model_dir = write_tiny_qwen3(tmp_path / "model")
    options: dict[str, object] = dict(zip(("tau_pos", "tau_neg"), TAUS, strict=True))
    settings = settings_of("sapo", options, tis_cap=2.0, kl_coef=BETA, reduction="sequence_mean")
    theirs = trl_results(model_dir, tmp_path / "out", "group", False, "sapo")
    check_same(our_results(model_dir, True, False, settings), theirs)


def check_same(
    ours: tuple[list[float], float, Any], theirs: tuple[list[float], float, Any]
) -> None:
    # trl adds 1e-4 to the deviation where we add 1e-6
    assert ours[0] == pytest.approx(theirs[0], rel=5e-4)
    assert ours[1] == pytest.approx(theirs[1], rel=2e-4)
    for name, gradient in theirs[2].items():
        torch.testing.assert_close(ours[2][name], gradient, rtol=2e-3, atol=2e-5)


def test_the_entropy_of_a_batch_is_the_one_that_trl_logs(tmp_path: Path) -> None:
    """trl divides logits by the temperature and averages over completion tokens."""
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import entropy_from_logits

    model_dir = write_tiny_qwen3(tmp_path / "model")
    samples = [
        Sample(
            "s", 0, PROMPT + completion,
            [False] * len(PROMPT) + [True] * len(completion),
            [0.0] * (len(PROMPT) + len(completion)),
            [-1] * len(PROMPT) + [0] * len(completion),
            [0.0] * (len(PROMPT) + len(completion)), 0.0,
        )
        for completion in COMPLETIONS
    ]  # fmt: skip
    (pack,) = make_packs(samples, 1024)
    ours = PackedModel(model_dir, "cpu", temperature=0.8).score(pack).entropies_M.mean()
    net = AutoModelForCausalLM.from_pretrained(model_dir)
    theirs = []
    for completion in COMPLETIONS:
        with torch.no_grad():
            logits = net(torch.tensor([PROMPT + completion])).logits[:, len(PROMPT) - 1 : -1] / 0.8
        theirs.append(entropy_from_logits(logits)[0])
    torch.testing.assert_close(ours, torch.cat(theirs).mean(), rtol=1e-5, atol=1e-6)
