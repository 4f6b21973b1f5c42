"""A loss of somebody else's package: found, checked, tried before a run, and watched in it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

import clawrl_gym as cg
from clawrl_gym.cluster.modules import foreign_modules
from clawrl_gym.config import LearnerConfig, LossConfig, RunConfig, TrainerConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.core.plugins import LOSSES
from clawrl_gym.preflight.preflight import preflight_training
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.trainers.losses.loss_function import LossFunction, build_loss
from clawrl_gym.trainers.losses.loss_trial import try_loss
from clawrl_gym.trainers.losses.token_loss import LossInputs, TokenLoss
from clawrl_gym.trainers.updates.learner import Learner
from examples.own_loss import Options, tapered
from tests.reference.tiny_model import make_samples, write_tiny_qwen3
from tests.trainers.loss_settings import inputs

OURS = tuple(LOSSES.builtin)
LP = torch.tensor([-1.0, -0.5, -2.0, -0.1])
PACKAGE = '''
from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

import clawrl_gym as cg

if TYPE_CHECKING:
    from nowhere_at_all import Known


class Scale(BaseModel):
    size: float = Field(1.0, gt=0)
    names: tuple[str, ...] = ()


def clipped(tokens: Known, options: Scale) -> Known:
    """PPO once more."""
    free = -tokens.ratio_M * tokens.advantages_M
    bound = -tokens.ratio_M.clamp(0.8, 1.28) * tokens.advantages_M
    loss = free.maximum(bound) * tokens.importance_M * options.size
    return cg.TokenLoss(loss, (bound > free).detach())


class Callable:
    def __call__(self, tokens, options: Scale):
        return clipped(tokens, options)


instance = Callable()


def plain(tokens):
    return cg.TokenLoss(-tokens.advantages_M * tokens.ratio_M)


def unannotated(tokens, options):
    return None


def no_model(tokens, options: dict):
    return None


def unknown_model(tokens, options: Nobody):
    return None


def two(first, second):
    return None


def alone():
    return None


async def late(tokens):
    return None


class AClass:
    pass


def a_number(tokens):
    return tokens.logprobs_M.sum()


def mean(tokens):
    return cg.TokenLoss(tokens.logprobs_M.mean())


def clip_of_another_shape(tokens):
    return cg.TokenLoss(tokens.logprobs_M, (tokens.logprobs_M > 0)[:2])


def a_list(tokens):
    return cg.TokenLoss(tokens.logprobs_M.tolist())


def detached(tokens):
    return cg.TokenLoss(-tokens.advantages_M * tokens.logprobs_M.detach())


def endless(tokens):
    return cg.TokenLoss(tokens.logprobs_M / (tokens.logprobs_M - tokens.old_M))


def root(tokens):
    return cg.TokenLoss((tokens.logprobs_M - tokens.old_M).abs().sqrt())


def raising(tokens):
    raise KeyError("nothing")


def in_place(tokens):
    return cg.TokenLoss(tokens.logprobs_M.mul_(2))


def changing(tokens):
    return cg.TokenLoss(-tokens.ratio_M * tokens.advantages_M.clamp_(max=0.5))
'''


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_losses.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("own_losses", None)


def own(name: str, **options: object) -> LossFunction:
    return build_loss(LossConfig(type=f"own_losses:{name}", options=options))


def configured(*overrides: str) -> RunConfig:
    return compose("train", ["env=terminal", *overrides], RunConfig)


def tokens(lp: Tensor = LP, advantages: Tensor | None = None) -> LossInputs:
    lp = lp.clone().requires_grad_()
    return inputs(lp, LP, LP, torch.ones(4) if advantages is None else advantages)


def test_options_are_the_model_that_the_function_is_annotated_with() -> None:
    """Other annotations may be known to type checkers alone."""
    for name in ("clipped", "instance"):
        config = configured(
            f"loss=own_losses:{name}", "trainer.loss.options.size=2",
            "trainer.loss.options.names=[a]",
        )  # fmt: skip
        assert config.trainer.loss.options == {"size": 2.0, "names": ["a"]}
        assert RunConfig.of(config.model_dump()) == config
        assert RunConfig.of(yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json"))))
        loss_M, _ = build_loss(config.trainer.loss)(tokens())
        assert loss_M.tolist() == [-2.0] * 4
    assert configured("loss=own_losses:plain").trainer.loss.options == {}


@pytest.mark.parametrize("loss", OURS)
def test_a_configuration_says_all_options_of_ours(loss: str) -> None:
    options = configured(f"loss={loss}").trainer.loss.options
    model = LOSSES.resolve(loss).options_model
    assert model is not None
    assert options == model().model_dump(mode="json")
    assert options


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loss=own_losses:clipped", "trainer.loss.options.sise=1"],
         r"'trainer.loss.options.sise'; did you mean '.*size'.*clipped takes names, size\)"),
        (["loss=own_losses:clipped", "trainer.loss.options.size=0"], r"options.size: got 0: .*gre"),
        (["loss=own_losses:plain", "trainer.loss.options.size=1"],
         r"takes no options, which it would where its parameter `options` is annotated"),
        (["loss=own_losses:unannotated"], r"whose parameter options is without an annotation"),
        (["loss=own_losses:no_model"], r"whose parameter options is <class 'dict'>, expected a cl"),
        (["loss=own_losses:unknown_model"], r"whose parameter options is Nobody, expected a class"),
        (["loss=own_losses:two"], r"whose call takes \(first, second\).*called with \(tokens\); o"),
        (["loss=own_losses:alone"], r"whose call takes \(\).*expected one that is called with"),
        (["loss=own_losses:late"], r"an async function, expected a function \(the seam 'loss'\)"),
        (["loss=own_losses:AClass"], r"a class, expected a function"),
        (["loss=own_losses:cliped"], r"has no 'cliped' .*did you mean 'clipped'"),
        (["loss=own_losses"], r"got loss='own_losses', expected one of cispo, dppo, .*package.mo"),
        (["loss=nowhere_at_all:x"], r"cannot import 'nowhere_at_all' of trainer.loss.type=nowhere"),
    ],
)  # fmt: skip
def test_what_is_no_loss_is_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        configured(*overrides)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a_number", r"got a Tensor of the loss own_losses:a_number \(trainer.loss.type\), expect"),
        (
            "mean",
            r"got loss_M of shape \(\) of the loss own_losses:mean .*number for each token, s",
        ),
        ("clip_of_another_shape", r"got clipped_M of shape \(2,\) of the loss"),
        ("a_list", r"got loss_M of type list of the loss"),
        ("detached", r"got loss_M without a gradient of the loss own_losses:detached"),
        ("endless", r"got (nan|inf|-inf) at 4 of 4 tokens, such as one of logprobs_M -1, old_M -1"),
        (
            "raising",
            r"the loss own_losses:raising \(trainer.loss.type\) raised KeyError: 'nothing'",
        ),
    ],
)
def test_what_a_loss_gives_is_looked_at_in_every_pack(name: str, message: str) -> None:
    with pytest.raises(TrainerError, match=message):
        own(name)(tokens())
    with pytest.raises(ConfigError, match=rf"own_losses:{name}.*made-up tokens before the start"):
        try_loss(own(name))


def test_a_gradient_without_numbers_is_found_before_a_run() -> None:
    with pytest.raises(ConfigError, match=r"not finite of the loss own_losses:root .*by about 0, "):
        try_loss(own("root"))
    with pytest.raises(ConfigError, match="made-up tokens before the start"):
        try_loss(own("in_place"))
    with pytest.raises(ConfigError, match="own_losses:changing changed what it was given, expect"):
        try_loss(own("changing"))


@pytest.mark.parametrize("loss", [*OURS, "own_losses:clipped", "examples.own_loss:tapered"])
def test_a_loss_that_works_passes_its_trial(loss: str) -> None:
    try_loss(build_loss(LossConfig(type=loss)))


def test_numbers_that_came_in_wrong_are_not_the_losss() -> None:
    """A step whose gradient is not finite is left out and counted, whatever the loss."""
    loss_M, _ = own("plain")(tokens(advantages=torch.tensor([1.0, math.inf, 1.0, 1.0])))
    assert not loss_M.isfinite().all()
    build_loss(LossConfig(type="gspo"))(
        replace(tokens(torch.tensor([-1.0, math.nan, -1.0, -1.0])), rows_M=torch.zeros(4).long())
    )


def test_no_memory_is_not_the_losss(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tokens: LossInputs) -> TokenLoss:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(RuntimeError, match="allocate"):
        LossFunction("own_losses:plain", full)(tokens())


def test_a_run_with_a_loss_that_fails_is_refused_before_it_starts(tmp_path: Path) -> None:
    arguments = ["env=terminal", f"run.dir={tmp_path / 'run'}", "loss=own_losses:mean"]
    with pytest.raises(ConfigError, match=r"loss_M of shape \(\) .*made-up tokens before the sta"):
        preflight_training(cg.load_config(arguments))


def test_a_loss_of_ones_own_travels_to_other_machines() -> None:
    config = configured("loss=own_losses:clipped")
    assert foreign_modules(config, [config.env]) == {"own_losses"}
    assert foreign_modules(configured("loss=dppo"), [config.env]) == set()


def updated(model_dir: str, **trainer: object) -> tuple[Tensor, dict[str, float]]:
    """Weights after two updates of two optimizer steps each, and the last one's metrics."""
    settings = {"steps": 10, "max_tokens_per_pack": 128, "minibatches": 2, **trainer}
    learner = Learner(
        TrainerConfig.model_validate(settings), LearnerConfig(lr=1e-2), model_dir, 0, "cpu"
    )
    for version in range(2):
        metrics = learner.step(make_samples([20, 30, 17, 9, 26, 14], version=version), version)
    weights = [p.detach().flatten() for p in learner.model.net.parameters()]
    return torch.cat(weights), dict(metrics.metrics)


FREE: dict[str, Any] = {
    "token_ratio_min": 0, "token_ratio_max": None,
    "sequence_ratio_min": 0, "sequence_ratio_max": None,
}  # fmt: skip


def test_a_loss_by_import_path_learns_bit_by_bit_as_ours_would(tmp_path: Path) -> None:
    model_dir = write_tiny_qwen3(tmp_path / "model")
    mine, watched = updated(model_dir, loss={"type": "own_losses:clipped"}, **FREE)
    ours, expected = updated(model_dir, loss={"type": "ppo"}, **FREE)
    assert torch.equal(mine, ours)
    assert watched["learner/loss"] == expected["learner/loss"]
    assert watched["learner/clip_share"] == expected["learner/clip_share"] > 0


@pytest.mark.parametrize("loss", OURS)
def test_every_loss_of_ours_makes_updates_of_its_own(loss: str, tmp_path: Path) -> None:
    model_dir = write_tiny_qwen3(tmp_path / "model")
    weights, metrics = updated(model_dir, loss={"type": loss}, **FREE)
    usual, _ = updated(model_dir, **FREE)
    assert math.isfinite(metrics["learner/loss"])
    assert metrics["learner/grad_norm"] > 0
    assert torch.equal(weights, usual) == (loss == "ppo")


def test_dppo_acts_with_one_step_a_batch_and_the_others_do_not(tmp_path: Path) -> None:
    """With one, the learner is its own proximal policy; what sampled is another one."""
    model_dir = write_tiny_qwen3(tmp_path / "model")
    ppo, _ = updated(model_dir, minibatches=1, **FREE)
    for loss in ("gspo", "cispo", "sapo"):
        weights, _ = updated(model_dir, minibatches=1, loss={"type": loss}, **FREE)
        torch.testing.assert_close(weights, ppo, rtol=1e-3, atol=1e-4)
    weights, _ = updated(model_dir, minibatches=1, loss={"type": "dppo"}, **FREE)
    assert float((weights - ppo).abs().max()) > 1e-3


def test_the_example_pushes_down_only_what_is_still_said() -> None:
    lp = torch.tensor([-1.0, -1.0, -3.0, -1.0]).requires_grad_()
    mu = torch.tensor([-3.0, -1.5, -1.0, -1.0])
    advantages = torch.tensor([2.0, -1.0, -1.0, 0.0])
    found = tapered(inputs(lp, lp.detach(), mu, advantages), Options(cap=1.0))
    found.loss_M.sum().backward()
    assert lp.grad is not None
    assert lp.grad.tolist() == pytest.approx([-2.0, 1.0, math.exp(-2), 0.0])
    assert found.clipped_M is not None
    assert found.clipped_M.tolist() == [False, True, False, False]


EARLIER = {"surrogate": "gspo", "clip_low": 3e-4, "clip_high": 4e-4, "minibatches": 2}
"""As configurations of earlier versions said it."""


def test_keys_of_earlier_versions_mean_what_they_meant() -> None:
    now = TrainerConfig.model_validate(EARLIER)
    assert now.loss.type == "gspo"
    assert now.loss.options == {"clip_low": 3e-4, "clip_high": 4e-4}
    assert TrainerConfig.model_validate({"clip_low": 0.1}).loss == LossConfig(
        type="ppo", options={"clip_low": 0.1}
    )
    composed = configured("trainer.surrogate=cispo", "trainer.clip_high=4", "trainer.minibatches=2")
    assert composed.trainer.loss == LossConfig(type="cispo", options={"clip_high": 4.0})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"surrogate": "gspo", "loss": {"type": "sapo"}}, "surrogate=gspo and trainer.loss.type=s"),
        (
            {"clip_low": 0.1, "loss": {"options": {"clip_low": 0.2}}},
            r"expected one .*~trainer.clip",
        ),
        ({"surrogate": "dapo"}, r"got trainer.loss.type='dapo' .*expected one of ppo, gspo"),
    ],
)
def test_a_key_of_earlier_versions_that_contradicts_is_told(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainerConfig.model_validate(values)


def test_a_run_of_an_earlier_version_opens_resumes_and_is_repeated(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    config = cg.load_config(["env=terminal", f"run.dir={folder.path}"])
    folder.make(config)
    values = yaml.safe_load(folder.config_file.read_text())
    del values["trainer"]["loss"]
    values["trainer"] |= EARLIER
    folder.config_file.write_text(yaml.safe_dump(values))
    assert folder.read_config(RunConfig).trainer.loss.type == "gspo"
    resumed = cg.load_config([f"resume={folder.path}"])
    assert resumed.trainer.loss.options == {"clip_low": 3e-4, "clip_high": 4e-4}
    repeated = ["--config", str(folder.config_file)]
    assert cg.load_config(repeated).trainer.loss == resumed.trainer.loss
    other = cg.load_config([*repeated, "trainer.loss.type=sapo", "trainer.loss.options.tau_pos=2"])
    assert other.trainer.loss == LossConfig(type="sapo", options={"tau_pos": 2.0})
    same = cg.load_config([*repeated, "trainer.loss.type=gspo"])
    assert same.trainer.loss == resumed.trainer.loss
