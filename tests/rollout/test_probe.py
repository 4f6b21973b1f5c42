"""What a foreign environment must keep to, and how it is told what it does not."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawrl_gym.cluster.envs import check_env
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.rollout.probe import Findings, examine, probe

ENVIRONMENTS = '''
import os, sys, time
import gymnasium
from gymnasium.spaces import Discrete, Text
from clawrl_gym.envs.spaces import Unicode


class Fine(gymnasium.Env):
    """Says a colour by its seed."""

    observation_space = action_space = Unicode()
    first = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return f"say {self.np_random.integers(1_000_000)}", {}

    def step(self, action):
        return "said", 1.0, True, False, {}


class Held(Fine):
    """Has two splits, and gives a task of the split that is asked for."""

    tasks = {"train": [f"t{n}" for n in range(40)], "heldout": [f"h{n}" for n in range(40)]}
    played = []

    def task_ids(self, split):
        return self.tasks[split]

    def reset(self, *, seed=None, options=None):
        gymnasium.Env.reset(self, seed=seed)
        task = options["task"]
        assert task in self.tasks[options["split"]]
        return f"do {task}", {}


class Counted(Held):
    """Notes what it is asked."""

    asked = []

    def reset(self, *, seed=None, options=None):
        self.asked.append(("reset", options["split"], seed))
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.asked.append(("step", action))
        return super().step(action)


class TooLong(Fine):
    def reset(self, *, seed=None, options=None):
        return "x" * 50_000_000, {}


class TooLongLater(Fine):
    def step(self, action):
        return "x" * 50_000_000, 1.0, True, False, {}


class HalfCharacters(Fine):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0] + " caf\\udce9.txt", {}


class Shared(Held):
    tasks = {"train": ["a", "b"], "heldout": ["b"]}


class OnlyTrainBreaks(Held):
    def reset(self, *, seed=None, options=None):
        if options["split"] == "heldout":
            raise KeyError("no such file")
        return "do it", {}


class Numbers(Fine):
    def reset(self, *, seed=None, options=None):
        return 7, {}


class NoInfo(Fine):
    def reset(self, *, seed=None, options=None):
        return "go"


class NoOptions(Fine):
    def reset(self, seed=None):
        return "go", {}


class Buttons(Fine):
    action_space = Discrete(3)


class Four(Fine):
    def step(self, action):
        return "said", 1.0, True, {}


class NotANumber(Fine):
    def step(self, action):
        return "said", float("nan"), False, False, {}


class Raises(Fine):
    def step(self, action):
        raise RuntimeError("no such move")


class Quits(Fine):
    def step(self, action):
        sys.exit(3)


class BadFinish(Fine):
    def step(self, action):
        return "said", 0.0, False, False, {}

    def finish(self):
        return None


class Forgets(Fine):
    """Ignores the seed."""

    def reset(self, *, seed=None, options=None):
        Forgets.first += 1
        return f"go {Forgets.first}", {}


class Same(Fine):
    def reset(self, *, seed=None, options=None):
        return "go", {}


class Silent(Fine):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return " ", {}


class Vanishes(Fine):
    def step(self, action):
        print("about to go", flush=True)
        os._exit(7)


class Hangs(Fine):
    def reset(self, *, seed=None, options=None):
        time.sleep(600)


class Takes(Fine):
    def __init__(self, thing=None):
        self.thing = thing
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "probed.py").write_text(ENVIRONMENTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("probed", None)


def of(name: str, **kwargs: object) -> GymEnvConfig:
    return GymEnvConfig(target=f"probed:{name}", kwargs=kwargs)


async def findings_of(name: str) -> Findings:
    findings = Findings()
    await examine(of(name), findings)
    return findings


async def test_an_environment_that_keeps_the_contract_has_no_problem() -> None:
    findings = await findings_of("Held")
    assert (findings.problems, findings.notes) == ([], [])


async def test_each_split_is_begun_twice_alike_and_played_for_a_step() -> None:
    await findings_of("Counted")
    asked = sys.modules["probed"].Counted.asked
    assert [one[0] for one in asked] == ["reset", "reset", "step"] * 2
    assert [one[1] for one in asked if one[0] == "reset"] == ["train"] * 2 + ["heldout"] * 2
    seeds = [one[2] for one in asked if one[0] == "reset"]
    assert seeds[0] == seeds[1]
    assert seeds[2] == seeds[3]


async def test_one_without_splits_is_told_so() -> None:
    findings = await findings_of("Fine")
    assert findings.problems == []
    (note,) = findings.notes
    assert "it has no task_ids(split): held-out tasks are other seeds of it" in note


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Shared", "lists 1 tasks as training and as held-out ones, such as 'b'"),
        ("OnlyTrainBreaks", "held-out task 'h"),
        ("OnlyTrainBreaks", "reset: KeyError: 'no such file'"),
        ("Numbers", "reset: got an observation of type int, expected str"),
        ("NoInfo", "reset: got str, expected the 2 values observation, info"),
        ("NoOptions", "reset: TypeError: "),
        ("Buttons", "it has the action space Discrete(3), expected one of text"),
        ("Four", "step: got 4 values, expected the 5 values"),
        ("NotANumber", "step: got a reward nan, expected a finite number"),
        ("Raises", "step: RuntimeError: no such move"),
        ("Quits", "raised SystemExit(3), which ends processes"),
        ("BadFinish", "finish: got a reward None, expected a finite number"),
        ("Nowhere", "module 'probed' has no 'Nowhere'"),
        ("TooLong", "reset: an observation has 50,000,000 characters, expected at most 4,194,304"),
        ("TooLongLater", "step: an observation has 50,000,000 characters"),
    ],
)
async def test_what_breaks_the_contract_is_a_line(name: str, problem: str) -> None:
    findings = await findings_of(name)
    assert problem in "\n".join(findings.problems)


async def test_half_characters_in_an_observation_are_no_obstacle() -> None:
    assert (await findings_of("HalfCharacters")).problems == []


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("Forgets", "gave two different first observations"),
        ("Same", "a training seed and a held-out one gave the same first observation"),
        ("Silent", "the first observation has no text"),
    ],
)
async def test_what_may_be_meant_so_is_a_note(name: str, note: str) -> None:
    findings = await findings_of(name)
    assert findings.problems == []
    assert note in "\n".join(findings.notes)


def test_a_process_that_ends_or_hangs_is_the_probes_own() -> None:
    (vanished,) = probe(of("Vanishes")).problems
    assert "step: it ended its process, with exit code 7; its last words: 'about to go'" in vanished
    started_s = time.monotonic()
    (hung,) = probe(of("Hangs"), timeout_s=4.0).problems
    assert "it did not end within 4 s" in hung
    assert time.monotonic() - started_s < 60


def test_what_no_other_process_can_get_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import probed  # type: ignore[import-not-found]

    import __main__

    monkeypatch.setattr(__main__, "Mine", probed.Fine, raising=False)
    (unpicklable,) = probe(of("Takes", thing=threading.Lock())).problems
    assert "it cannot be handed to a worker, which is another process: " in unpicklable
    with pytest.raises(ConfigError) as refusal:
        check_env(GymEnvConfig(target="__main__:Mine"), print)
    assert "as workers do: module '__main__' has no 'Mine'" in str(refusal.value)


def test_a_runs_start_names_the_environment_in_every_line() -> None:
    said: list[str] = []
    assert check_env(of("Fine"), said.append)
    assert said == [line for line in said if line.startswith("env.target=probed:Fine: ")]
    with pytest.raises(ConfigError) as refusal:
        check_env(of("Four"), said.append)
    (line,) = str(refusal.value).splitlines()  # what both splits have in common is said once
    assert line.startswith("env.target=probed:Four: training task seed ")


def test_held_out_draws_of_ones_own_tasks_are_held_out() -> None:
    from clawrl_gym.rollout.collection.task_sampler import TaskSampler

    sampler = TaskSampler.of(of("Held"), seed=1)
    heldout = sampler.heldout(20)
    train = [sampler.train(number) for number in range(200)]
    assert len({task.id for task in heldout}) == 20
    assert {str(task.id)[0] for task in heldout} == {"h"}
    assert {str(task.id)[0] for task in train} == {"t"}
    assert not {task.id for task in heldout} & {task.id for task in train}
