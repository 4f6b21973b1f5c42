"""Canaries: what new weights must still find likely, against the weights before and the anchor."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from clawrl_gym.config import GuardsConfig
from clawrl_gym.core.errors import ConfigError, PolicyError
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.run.canary_prompts import CanaryPrompts, read_canaries
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.canaries import PROMPTS, Canaries, Exchange
from clawrl_gym.trainers.updates.guard import Decision, Guard, Review
from clawrl_gym.trainers.user_share import UserShare
from clawrl_gym.trainers.versions.retention import pin, read_pins
from tests.support.fakes import FakePolicy

STATS = StepStats({"learner/grad_norm": 1.0, "logprob_gap/mean": 0.01}, 1, 0.1)
GREETING = Exchange("hello", [1, 2], [3, 4])
QUESTION = Exchange("why", [5], [6, 7, 8])


def praised(turn: int, user: str = "", signal: str = "feedback", reward: float = 1.0) -> Sample:
    return Sample(
        f"{user}/s" if user else "s", turn, [1, 100 + turn], [False, True], [0.0, -1.0], [-1, 0],
        [0.0, 1.0], reward, turn_id=turn, signal=signal,
    )  # fmt: skip


class Weights:
    """A learner that finds each last id as likely as it is told; others alike."""

    def __init__(self) -> None:
        self.of_id: dict[int, float] = {}
        self.general = -1.0
        self.read: list[list[Sample]] = []

    async def review(self, batch: SampleBatch) -> Review:
        samples = batch.samples()
        self.read.append(samples)
        values = [self.of_id.get(sample.ids_T[-1], self.general) for sample in samples]
        return Review(0.5, [[v] * sum(s.mask_T) for v, s in zip(values, samples, strict=True)])


async def both(known: Collection[str]) -> list[Exchange]:
    return [one for one in (GREETING, QUESTION) if one.key not in known]


class Service:
    """Updates one after the other, each with what it does to the weights."""

    def __init__(self, folder: Path | None = None, people: int = 5, **guards: object) -> None:
        self.weights = Weights()
        self.folder = folder
        self.checkpoints = None if folder is None else folder / "checkpoints"
        if self.checkpoints is not None:
            self.checkpoints.mkdir(exist_ok=True)
        config = GuardsConfig.model_validate({"canary": 0.1, "drift": 0.5, "replay": None} | guards)
        self.canaries = Canaries(
            self.weights.review,
            both,
            None if folder is None else folder / "canaries.json",
            lambda: () if self.checkpoints is None else read_pins(self.checkpoints).values(),
            UserShare(0.25, lambda: people),
        )
        self.guard = Guard(config, self.weights, self.canaries)
        self.version = 0

    async def update(self, change: float = 0.0, *samples: Sample, **of_id: float) -> Decision:
        batch = list(samples) or [praised(99, signal="rule")]
        await self.guard.serving(self.version)
        await self.guard.before(batch)
        was, of_all = self.weights.general, dict(self.weights.of_id)
        self.weights.general += change
        for name, value in of_id.items():
            self.weights.of_id[int(name.removeprefix("id"))] = value
        decision = await self.guard.decide(batch, STATS)
        if decision.refusals:
            self.weights.general, self.weights.of_id = was, of_all
        else:
            self.version += 1
            await self.guard.serves(self.version, samples)
            if self.checkpoints is not None:
                (self.checkpoints / f"{self.version:06d}").mkdir(exist_ok=True)
        return decision


def guards_of(decision: Decision) -> list[str]:
    return [why.rpartition("learner.guards.")[2].rstrip(")") for why in decision.refusals]


@pytest.mark.parametrize(
    ("change", "refused"),
    [(0.5, []), (0.0, []), (-0.05, []), (-0.09, []), (-0.11, ["canary"]), (-0.3, ["canary"]),
     (-0.6, ["canary", "drift"]), (-50.0, ["canary", "drift"])],
)  # fmt: skip
async def test_an_update_that_takes_too_much_from_canaries_does_not_serve(
    change: float, refused: list[str]
) -> None:
    decision = await Service().update(change)
    assert guards_of(decision) == refused
    assert decision.metrics["guard/canary"] == pytest.approx(min(-change, 2.0))


@pytest.mark.parametrize("step", [-0.02, -0.05, -0.099])
async def test_many_small_updates_add_up_to_no_more_than_the_bound(step: float) -> None:
    service = Service()
    decisions = [await service.update(step) for _ in range(100)]
    assert service.weights.general >= -1.5 - 1e-9
    assert guards_of(decisions[-1]) == ["drift"]
    assert not decisions[0].refusals


async def test_a_restart_moves_no_anchor(tmp_path: Path) -> None:
    service = Service(tmp_path)
    for _ in range(5):
        await service.update(-0.08)
    again = Service(tmp_path)
    again.version, again.weights.general = service.version, service.weights.general
    for _ in range(5):
        await again.update(-0.08)
    assert again.weights.general >= -1.5 - 1e-9
    assert guards_of(await again.update(-0.08)) == ["drift"]


async def test_pinning_a_version_makes_it_the_anchor(tmp_path: Path) -> None:
    service = Service(tmp_path)
    for _ in range(10):
        await service.update(-0.08)
    assert guards_of(await service.update(-0.08)) == ["drift"]
    assert service.checkpoints is not None
    pin(service.checkpoints, "fine", service.version)
    assert not (await service.update(-0.08)).refusals
    pin(service.checkpoints, "better", 1)
    assert guards_of(await service.update(-0.08)) == ["drift"]


async def test_one_canary_alone_counts_by_its_part_of_the_set() -> None:
    service = Service()
    assert not (await service.update(id4=-1.19)).refusals
    assert guards_of(await service.update(id4=-1.5)) == ["canary"]


async def test_what_the_owner_praised_is_a_canary_from_then_on() -> None:
    service = Service()
    await service.update(0.0, praised(1), praised(2, signal="rule"), praised(3, reward=-1.0))
    decision = await service.update(id101=-2.5)
    assert guards_of(decision) == ["canary"], "though the fixed ones are as they were"
    assert not (await service.update(id102=-9.0, id103=-9.0)).refusals, "nobody praised these"


@pytest.mark.parametrize(
    ("count", "lost", "refused"),
    [(1, 0.5, False), (1, 1.5, True), (2, 0.35, False), (4, 0.15, False), (4, 0.25, True),
     (8, 0.09, False), (8, 0.15, True), (16, 0.09, False), (16, 0.15, True)],
)  # fmt: skip
async def test_few_praised_turns_weigh_as_a_part_of_eight(
    count: int, lost: float, refused: bool
) -> None:
    service = Service()
    turns = range(1, 1 + count)
    await service.update(0.0, *[praised(turn) for turn in turns])
    decision = await service.update(**{f"id{100 + turn}": -1.0 - lost for turn in turns})
    assert guards_of(decision) == (["canary"] if refused else [])


async def test_praise_of_ones_own_nonsense_keeps_no_update_back() -> None:
    service = Service()
    await service.update(0.0, *[praised(turn, "eve") for turn in range(1, 40)])
    gone = {f"id{100 + turn}": -9.0 for turn in range(1, 40)}
    assert not (await service.update(**gone)).refusals
    beside = Service()
    nonsense = [praised(turn, "eve") for turn in range(1, 40)]
    await beside.update(0.0, *[praised(turn) for turn in range(50, 53)], *nonsense)
    await beside.update()
    read = beside.weights.read[-1]
    assert sum(sample.session_id == "eve/s" for sample in read) == 1, "one of four"


async def test_deleted_turns_are_no_canaries_and_leave_no_figure(tmp_path: Path) -> None:
    service = Service(tmp_path)
    await service.update(0.0, praised(1))
    await service.update()
    assert "turn 1" in (tmp_path / "canaries.json").read_text()
    service.guard.forget(lambda sample: sample.turn_id == 1)
    await service.update(id101=-9.0)
    assert "turn 1" not in (tmp_path / "canaries.json").read_text()


async def test_weights_that_give_no_number_do_not_serve() -> None:
    assert "canary" in guards_of(await Service().update(float("nan")))


async def test_guards_can_be_switched_off_and_still_tell_what_they_see() -> None:
    decision = await Service(canary=None, drift=None).update(-5.0)
    assert not decision.refusals
    assert decision.metrics["guard/canary"] == decision.metrics["guard/drift"] == 2.0


async def test_a_policy_that_does_not_answer_is_asked_again() -> None:
    service = Service()
    tries = 0

    async def late(known: Collection[str]) -> list[Exchange]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise PolicyError("it starts")
        return await both(known)

    service.canaries._make = late
    assert "guard/canary" not in (await service.update(-5.0)).metrics
    assert guards_of(await service.update(-5.0)) == ["canary", "drift"]


async def test_the_shipped_prompts_are_answered_by_the_policy_itself_once() -> None:
    class One:
        def of(self, session_id: str) -> FakePolicy:
            return FakePolicy()

    make = CanaryPrompts(One(), lambda: 3)  # type: ignore[arg-type]
    made = await make(())
    assert len({one.key for one in made}) == len(PROMPTS) >= 16
    assert all(one.prompt_ids_T and one.reply_ids_T for one in made)
    assert await make([one.key for one in made]) == []


GOOD = {"messages": [{"role": "user", "content": "hi"}], "reply": "hello"}
WRONG = [
    "", "\n \n", "{", "[]", "1", '"hi"', "null", "{}", '{"messages": []}', '{"messages": "hi"}',
    '{"messages": [1]}', '{"messages": [{}]}', '{"messages": [{"role": 1}]}',
    '{"messages": [{"role": "user", "content": "a"}], "reply": 1}',
    '{"messages": [{"role": "user", "content": "a"}], "reply": ""}',
    '{"messages": [{"role": "user", "content": "a"}], "reply": ["a"]}',
    '{"messages": {"role": "user"}}', '{"messages": null}', "messages: hi", '{"message": []}',
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_file_of_canaries_that_cannot_be_used_is_refused_by_its_line(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "canaries.jsonl"
    file.write_text((json.dumps(GOOD) + "\n" if text.strip() else "") + text)
    with pytest.raises(ConfigError, match=r"learner\.guards\.canary_file: got (no line|.* line 2)"):
        read_canaries(file)


def test_a_file_of_canaries_is_read(tmp_path: Path) -> None:
    file = tmp_path / "canaries.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n\n{json.dumps({'messages': GOOD['messages']})}\n")
    assert [reply for _, reply in read_canaries(file)] == ["hello", None]
    with pytest.raises(ConfigError, match="cannot read"):
        read_canaries(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize(("people", "refusals"), [(1, []), (2, ["drift"])])
async def test_who_is_alone_may_change_everything(people: int, refusals: list[str]) -> None:
    service = Service(people=people, canary=None)
    for _ in range(20):
        decision = await service.update(-0.08)
    assert decision.metrics["guard/drift"] > 0.5
    assert guards_of(decision) == refusals
