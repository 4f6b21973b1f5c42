import pickle

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.showcase.terminal.families import FAMILIES
from clawrl_gym.envs.showcase.terminal.generated import (
    generated_tasks,
    make_task,
    task_ids,
)
from clawrl_gym.envs.task_ids import NUMBERS

SAMPLE = 300
"""Tasks of each family and split that the big tests look at."""


class Files:
    """A task's own files, as if nobody had touched them."""

    def __init__(self, files):
        self.files = files

    def read(self, path):
        return self.files.get(path)

    def mode(self, path):
        return 0o644 if path in self.files else None


def sample(split, families=None):
    names = len(families or FAMILIES)
    return [make_task(task_id) for task_id in task_ids(split, families)[: SAMPLE * names]]


def test_there_are_enough_families_and_numbers():
    assert len(FAMILIES) >= 12
    assert sum(family.turns > 1 for family in FAMILIES.values()) >= 2
    assert NUMBERS["train"] >= 4096
    assert NUMBERS["heldout"] >= 512
    assert list(FAMILIES) == sorted(FAMILIES)
    assert all(name == family.name and "-" not in name for name, family in FAMILIES.items())


def test_the_splits_share_no_content_and_no_request():
    train, heldout = sample("train"), sample("heldout")
    assert not {t.content_hash() for t in train} & {t.content_hash() for t in heldout}
    told = [{(t.instruction, t.solution) for t in tasks} for tasks in (train, heldout)]
    assert not told[0] & told[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_contents_hardly_ever_repeat(family):
    tasks = sample("train", [family])
    assert len({task.content_hash() for task in tasks}) > 0.9 * len(tasks)


def test_a_task_follows_from_its_id_alone():
    for task_id in task_ids("heldout")[:44]:
        assert make_task(task_id) == make_task(task_id)
        assert make_task(task_id).id == task_id


def test_known_tasks_never_change():
    assert make_task("copy-train-000000").solution == ("cp piano.txt tiger.bak",)
    assert make_task("trail-heldout-000007").solution == (
        "cat eagle.dat",
        "cat basket.ini",
        "echo raven > candle.bak",
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_doing_nothing_never_passes_the_checks(family):
    for task in sample("train", [family]) + sample("heldout", [family]):
        left = Files(task.files)
        assert task.checks
        assert not all(check.passed(left) for check in task.checks), task.id


@pytest.mark.parametrize("family", FAMILIES)
def test_requests_and_solutions_are_short(family):
    for task in sample("train", [family])[:100]:
        assert len(task.instruction.split()) <= 20
        assert len(task.solution) == task.turns == FAMILIES[family].turns
        assert all(len(command) <= 60 and "\n" not in command for command in task.solution)


def test_every_family_asks_in_at_least_two_ways():
    for family in FAMILIES:
        openings = {task.instruction.split()[0] for task in sample("train", [family])[:60]}
        endings = {task.instruction.split()[-2] for task in sample("train", [family])[:60]}
        assert len(openings) + len(endings) > 2, family


def test_ids_take_the_families_in_turn_and_slice_like_a_list():
    ids = task_ids("train", ["move", "copy"])
    assert ids[:3] == ["copy-train-000000", "move-train-000000", "copy-train-000001"]
    assert ids[-1] == "move-train-099999"
    assert len(ids) == 200_000
    with pytest.raises(IndexError, match="got task index 200000"):
        ids[200_000]


def test_the_source_gives_the_same_ids_and_tasks():
    source = generated_tasks(("copy",))
    assert source.ids("heldout")[0] == "copy-heldout-000000"
    assert source.load("copy-heldout-000000") == make_task("copy-heldout-000000")


def test_an_unknown_family_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'copi'.*expected some of: append, archive"):
        task_ids("train", ["copi"])
    with pytest.raises(ConfigError, match="expected some of"):
        task_ids("train", [])


@pytest.mark.parametrize(
    "task_id",
    ["", "copy", "copy-train", "copy-train-", "copy-test-000001", "copy-train-1", "x-train-000001",
     "copy-train-100000", "copy-heldout-001000", "copy-train-00000\u0661", "copy-train--00001"],
)  # fmt: skip
def test_what_is_no_task_id_is_refused(task_id):
    with pytest.raises(TaskError, match="got task"):
        make_task(task_id)


def test_tasks_travel_between_processes():
    for task_id in task_ids("train")[:22]:
        assert pickle.loads(pickle.dumps(make_task(task_id))) == make_task(task_id)
