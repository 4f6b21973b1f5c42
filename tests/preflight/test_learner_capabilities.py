"""What a learner declares that it can do, and what is refused for want of it before a start."""

import subprocess
import sys

import pytest

from clawrl_gym import serve, sft, train
from clawrl_gym.config import RunConfig, ServeConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import LEARNERS
from clawrl_gym.preflight.adapters import served_adapter, serving_problems
from clawrl_gym.preflight.learner_demands import unmet_by_learner, unseen_by_learner
from clawrl_gym.preflight.requirements import learns
from clawrl_gym.trainers.capabilities import LearnerCapabilities, capabilities_of
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Review, guard_of
from tests.support.own_learners import Reads

BARE = "tests.support.own_learners:Bare"
READS = "tests.support.own_learners:Reads"
ONE_ADAPTER = "tests.support.own_learners:WithAdapters"


def training(backend: str, **learner: object) -> RunConfig:
    return RunConfig.of({"learner": {"backend": backend, **learner}})


def serving(backend: str, serve: str = "auto", **learner: object) -> ServeConfig:
    parts = {"learner": {"backend": backend, **learner}, "policy": {"serve": serve}}
    return ServeConfig.of(parts)


def test_what_the_shipped_learners_declare_is_known_without_importing_torch() -> None:
    code = (
        "import sys\nfrom clawrl_gym.core.plugins import LEARNERS\n"
        "names = [name for name in LEARNERS.builtin if LEARNERS.capabilities_of(name).review]\n"
        "print(names, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['torch'] False\n"


@pytest.mark.parametrize("name", LEARNERS.builtin)
def test_a_shipped_class_says_what_is_declared_for_it(name: str) -> None:
    assert LEARNERS.resolve(name).capabilities == LEARNERS.capabilities_of(name)


def test_a_class_that_declares_nothing_can_do_nothing_more() -> None:
    assert capabilities_of(training(BARE).learner) == LearnerCapabilities()
    assert capabilities_of(training(READS).learner) == Reads.capabilities
    with pytest.raises(ConfigError, match="declares the capability review without the method"):
        training("tests.support.own_learners:Boasting")


def test_updates_that_are_looked_at_need_a_learner_that_reads() -> None:
    looked_at = {"publish": "if_not_worse"}
    for config in (training(BARE, **looked_at), serving(BARE, **looked_at)):
        (line,) = unmet_by_learner(config)
        assert f"learner.backend={BARE}, expected a learner with weights to look at" in line
    assert not list(unmet_by_learner(training(READS, **looked_at)))
    assert guard_of(training(READS, **looked_at).learner, _NobodyReads()) is not None
    assert not list(unmet_by_learner(serving(BARE)))
    assert not list(unmet_by_learner(serving("simulated", **looked_at))), "it rehearses"
    assert guard_of(serving("simulated", **looked_at).learner, _NobodyReads()) is None


class _NobodyReads:
    async def review(self, batch: SampleBatch) -> Review:
        raise AssertionError("nothing was asked")


def test_an_adapter_needs_a_learner_that_has_one() -> None:
    (line,) = unmet_by_learner(training(BARE, adapter={}))
    assert line == (
        f"got learner.backend={BARE}, which has no adapters (learner.adapter is set; learner=full "
        "has none), expected a learner that has: torch, or a class of your own that declares it"
    )
    assert not list(unmet_by_learner(training(ONE_ADAPTER, adapter={})))
    assert served_adapter(training(BARE, adapter={}), "cuda") is None
    assert served_adapter(training(ONE_ADAPTER, adapter={}), "cuda") is not None


def test_adapters_that_are_served_to_users_need_a_learner_that_changes_users() -> None:
    assert served_adapter(serving(ONE_ADAPTER, adapter={}), "cuda") is None
    (line,) = serving_problems(serving(ONE_ADAPTER, "adapters", adapter={}))
    assert "expected a learner with the capability `users`" in line
    assert not list(serving_problems(serving("torch", "adapters", adapter={})))


def test_a_model_that_sees_needs_a_learner_that_does() -> None:
    (line,) = unseen_by_learner(training(BARE), sees=True)
    assert f"learner.backend={BARE}, which has no pictures (policy.model='tiny' sees)" in line
    for name, sees in ((BARE, False), ("torch", True), ("simulated", True)):
        assert not list(unseen_by_learner(training(name), sees=sees))


def test_a_version_that_no_engine_takes_is_refused() -> None:
    (line,) = unmet_by_learner(training("tests.support.own_learners:Unreachable"))
    assert "whose versions travel by name, nccl" in line
    assert line.endswith("expected one of the ways that engines take: folder")


def test_only_a_learner_with_a_model_takes_memory() -> None:
    assert learns(training("torch"))
    assert learns(training(BARE))
    assert not learns(training("simulated"))
    assert not learns(ServeConfig(learn=False))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trainer=opd", "judge=rule"], "cannot run distillation"),
        (["learner.publish=if_not_worse"], "expected a learner with weights to look at"),
    ],
)
def test_a_dry_run_refuses_them(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main([f"learner={BARE}", *arguments, "dry_run=true"]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_serving_and_supervised_learning_refuse_them_too(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.main([f"learner.backend={BARE}", f"run.dir={tmp_path}/s", "dry_run=true"]) == 2
    assert "expected a learner with weights to look at" in capsys.readouterr().err
    assert sft.main(["x.jsonl", f"learner.backend={BARE}", "dry_run=true"]) == 2
    assert "learns from supervision" in capsys.readouterr().err
