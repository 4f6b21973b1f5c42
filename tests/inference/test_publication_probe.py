"""Whether what is served is what was trained: the arithmetic, and who asks whom."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from clawrl_gym.config import AdapterConfig, LearnerConfig, PolicyConfig
from clawrl_gym.core.errors import NotServed, PolicyError, PolicyUnavailable
from clawrl_gym.inference.weights.probe import Probe, Reading
from clawrl_gym.run.weight_checks import WeightChecks, computes_exactly
from clawrl_gym.trainers.updates.learner import Learner
from tests.reference.tiny_model import make_samples, write_tiny_qwen3
from tests.trainers.test_adapter import make_learner, rewarded

N = 64
START = [-3.0 - 0.1 * (n % 7) for n in range(N)]


def shifted(logprobs: list[float], size: float, seed: int) -> list[float]:
    """By normal steps of this size."""
    draw = random.Random(seed)
    return [x + draw.gauss(0, size) for x in logprobs]


def measured(noise: float, *, is_exact: bool) -> Probe:
    """A probe of an engine that is apart from the learner, and from itself, by so much."""
    probe = Probe(is_exact=is_exact)
    probe.measure(START, [shifted(START, noise, seed) for seed in (1, 2, 3)])
    return probe


@pytest.mark.parametrize(("noise", "is_exact"), [(1e-6, True), (0.02, False)])
def test_what_arrived_passes_and_old_weights_do_not(noise: float, is_exact: bool) -> None:
    probe = measured(noise, is_exact=is_exact)
    learner = shifted(START, 20 * noise, 4)
    arrived = probe.compare("", learner, shifted(learner, noise, 5))
    assert arrived.refusal is None, arrived
    assert arrived.arrived == pytest.approx(1, abs=0.1)
    old = probe.compare("", learner, shifted(START, noise, 5))
    assert old.refusal is not None
    assert old.arrived == pytest.approx(0, abs=0.1)
    assert old.metrics["learner/refused"] == 1


@pytest.mark.parametrize("is_exact", [True, False])
def test_old_weights_are_seen_even_where_the_gap_allows_them(is_exact: bool) -> None:
    """A gap alone would let pass what never arrived: each step moves the learner by less."""
    noise = 1e-6 if is_exact else 0.02
    probe = measured(noise, is_exact=is_exact)
    learner = shifted(START, 12 * noise, 4)
    stuck = probe.compare("", learner, shifted(START, noise, 5))
    assert stuck.refusal is not None
    assert "show" in stuck.refusal


def test_what_numbers_do_under_load_refuses_nothing() -> None:
    """Beside many requests the engine is several times as far from the learner as alone, and a
    model that has learned says less likely things, which are rounded more."""
    for seed in range(200):
        probe = measured(0.0001, is_exact=False)
        learner, told = START, 0
        for version in range(1, 6):
            learner = shifted(learner, 0.0004 * version, 1000 * seed + version)
            engine = shifted(learner, 0.0003, 2000 * seed + version)
            finding = probe.compare("", learner, engine)
            assert finding.refusal is None, (seed, version, finding)
            probe.mark_verified("", finding, learner, engine)
            told += finding.arrived is not None
        assert told


@pytest.mark.parametrize("size", [14, 40, 1000])
@pytest.mark.parametrize("load", [1, 2])
def test_half_of_an_update_and_another_adapter_are_refused(size: int, load: int) -> None:
    """Whatever the learner moved, as soon as it moved by more than numbers do."""
    noise = 0.0001
    for seed in range(200):
        probe = measured(noise, is_exact=False)
        learner = shifted(START, size * noise, seed)
        half = [(new + old) / 2 for new, old in zip(learner, START, strict=True)]
        other = shifted(START, size * noise, -1 - seed)
        for served in (half, other, START):
            finding = probe.compare("", learner, shifted(served, load * noise, 10_000 + seed))
            assert finding.refusal is not None, (seed, served is half, finding)


def test_a_gap_beyond_all_noise_is_refused_however_little_the_learner_moved() -> None:
    probe = measured(0.0001, is_exact=False)
    learner = shifted(START, 0.0003, 4)
    refusal = probe.compare("", learner, shifted(START, 0.05, 5)).refusal
    assert refusal is not None
    assert "8 times what numbers do" in refusal
    assert probe.compare("", learner, [*learner[:-1], float("nan")]).refusal is not None


def test_small_steps_that_never_arrive_add_up_until_they_are_seen() -> None:
    probe = measured(0.02, is_exact=False)
    direction = shifted([0.0] * N, 1.0, 9)
    findings = []
    for step in range(1, 20):
        learner = [x + 0.01 * step * d for x, d in zip(START, direction, strict=True)]
        engine = shifted(START, 0.02, 20 + step)
        findings.append(probe.compare("", learner, engine))
        if findings[-1].refusal is not None:
            break
        probe.mark_verified("", findings[-1], learner, engine)
    assert findings[0].arrived is None, "one step is less than numbers do"
    assert findings[-1].refusal is not None


def test_small_steps_that_arrive_pass_however_many_there_are() -> None:
    probe = measured(0.02, is_exact=False)
    direction = shifted([0.0] * N, 1.0, 9)
    told = 0
    for step in range(1, 60):
        learner = [x + 0.01 * step * d for x, d in zip(START, direction, strict=True)]
        engine = shifted(learner, 0.02, 20 + step)
        finding = probe.compare("", learner, engine)
        assert finding.refusal is None, (step, finding)
        told += finding.arrived is not None
        probe.mark_verified("", finding, learner, engine)
    assert told >= 3


def test_a_gap_in_float32_is_refused_whatever_has_moved() -> None:
    probe = measured(1e-6, is_exact=True)
    assert probe.tolerance == 1e-4
    learner = shifted(START, 0.1, 4)
    engine = [*learner[:-1], learner[-1] * (1 + 2e-4)]
    refusal = probe.compare("", learner, engine).refusal
    assert refusal is not None
    assert "by up to 0.0002, expected at most 0.0001" in refusal
    assert probe.compare("", learner, [*learner[:-1], float("nan")]).refusal is not None


def test_each_user_is_compared_with_their_own_versions() -> None:
    probe = measured(1e-6, is_exact=True)
    ada, bob = shifted(START, 0.1, 4), shifted(START, 0.1, 5)
    for user, learner in (("ada", ada), ("bob", bob)):
        probe.mark_verified(user, probe.compare(user, learner, learner), learner, learner)
    again = shifted(ada, 0.1, 6)
    assert probe.compare("ada", again, again).refusal is None
    assert probe.compare("ada", again, bob).refusal is not None


@pytest.mark.parametrize(("noise", "is_exact"), [(0.1, True), (5.0, False)])
def test_other_weights_at_the_start_end_the_run_with_one_line(noise: float, is_exact: bool) -> None:
    with pytest.raises(PolicyError, match="the engine serves other weights than the learner has"):
        measured(noise, is_exact=is_exact)


class Engine:
    """Stands for servers and for the client of one: it answers with what was put in."""

    def __init__(self, logprobs: list[float]) -> None:
        self.answer = logprobs
        self.error: PolicyError | None = None

    async def measure(self, ask):
        return await ask(self)

    async def logprobs(self, ids: list[int], *, version: int, user: str = "") -> list[float]:
        if self.error is not None:
            raise self.error
        return self.answer


def weight_checks(engine: Engine, said: list[str]) -> WeightChecks:
    made = WeightChecks(engine, said.append, is_exact=True)  # type: ignore[arg-type]
    made.begin(Reading([1] * (N + 1), START))
    return made


async def test_a_publication_is_proved_and_one_that_did_not_arrive_is_not_served() -> None:
    engine = Engine(START)
    made = weight_checks(engine, [])
    newer = Reading([1] * (N + 1), shifted(START, 0.1, 1))
    weight_check = await made.of(newer, "", 1, 0)
    assert weight_check is not None
    with pytest.raises(NotServed, match=r"by up to .* expected at most 0\.0001"):
        await weight_check(engine)  # type: ignore[arg-type]
    assert weight_check.metrics["learner/refused"] == 1
    engine.answer = newer.logprobs_T
    again = await made.of(newer, "", 2, 0)
    assert again is not None
    await again(engine)  # type: ignore[arg-type]
    again.mark_verified()
    assert again.metrics == {
        "learner/probe_gap": 0.0, "learner/probe_arrived": pytest.approx(1), "learner/refused": 0.0,
    }  # fmt: skip


async def test_one_of_several_engines_that_kept_the_old_weights_is_seen() -> None:
    """Where a step is too small for the gap, too: no engine is compared with what another has."""
    new, old = Engine(shifted(START, 5e-5, 1)), Engine(START)
    made = weight_checks(new, [])
    new.answer, reading = START, Reading([1] * (N + 1), shifted(START, 5e-6, 1))
    weight_check = await made.of(reading, "", 1, 0)
    assert weight_check is not None
    new.answer = reading.logprobs_T
    await weight_check(new)  # type: ignore[arg-type]
    with pytest.raises(NotServed, match="show 0% of what"):
        await weight_check(old)  # type: ignore[arg-type]


async def test_an_engine_that_is_away_refuses_nothing() -> None:
    said: list[str] = []
    engine = Engine(START)
    made = weight_checks(engine, said)
    weight_check = await made.of(Reading([1] * (N + 1), START), "", 1, 0)
    assert weight_check is not None
    engine.error = PolicyUnavailable("it died")
    await weight_check(engine)  # type: ignore[arg-type]
    assert said == ["version 1 could not be verified: it died"]


async def test_what_cannot_be_probed_is_told_once_and_published_without() -> None:
    said: list[str] = []
    engine = Engine(START)
    engine.error = PolicyError("no prompt_logprobs here")
    made = weight_checks(engine, said)
    for version in (1, 2):
        assert await made.of(Reading([1], START), "", version, 0) is None
    assert len(said) == 1
    made = WeightChecks(engine, said.append, is_exact=True)  # type: ignore[arg-type]
    made.begin(None)
    assert await made.of(None, "", 1, 0) is None
    assert said[-1].startswith("the learner has no probe")


ADAPTER = AdapterConfig()


@pytest.mark.parametrize(
    ("dtype", "own", "learner", "is_exact"),
    [
        ("float32", "bfloat16", {}, True),  # all weights are learned in float32
        ("auto", "float32", {}, True),
        ("auto", "bfloat16", {}, False),
        ("bfloat16", "float32", {}, False),
        ("float32", "float32", {"offload": True}, False),
        ("float32", "float32", {"adapter": ADAPTER}, True),  # beside a base as the files have it
        ("float32", "bfloat16", {"adapter": ADAPTER}, False),
        ("float32", "bfloat16", {"adapter": ADAPTER, "base": "float32"}, True),
        ("float32", "float32", {"adapter": ADAPTER, "base": "nf4"}, False),
        ("bfloat16", "bfloat16", {"adapter": ADAPTER}, False),
    ],
)
def test_engine_and_learner_are_held_to_exact_numbers_where_both_compute_in_float32(
    dtype: str, own: str, learner: dict[str, object], is_exact: bool
) -> None:
    policy = PolicyConfig.model_validate({"dtype": dtype})
    learning = LearnerConfig.model_validate(learner)
    assert computes_exactly(policy, learning, own, "cpu") is is_exact
    assert computes_exactly(policy, learning, own, "cuda") is False


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Learner:
    return make_learner(write_tiny_qwen3(tmp_path_factory.mktemp("model")))


def test_the_learners_reading_is_the_same_until_it_learns(learner: Learner) -> None:
    reading = learner.probe()
    assert len(reading.logprobs_T) == len(reading.ids_T) - 1 > 50
    assert learner.probe() == reading
    learner.step(rewarded(make_samples([30, 17]), learner), 0)
    after = learner.probe()
    assert after.ids_T == reading.ids_T
    moved = max(abs(x - y) for x, y in zip(after.logprobs_T, reading.logprobs_T, strict=True))
    assert moved > 1e-3


def test_a_probe_reads_no_setting_of_the_sampling(learner: Learner, tmp_path: Path) -> None:
    own = learner.probe()
    learner.model.temperature = 0.5
    try:
        assert learner.probe() == own
    finally:
        learner.model.temperature = 1.0
