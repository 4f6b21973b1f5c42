"""Word problems, what a reply gives as their answer, and which tasks are held out."""

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.generated import FAMILIES, make_task, task_ids
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.problems import (
    ITEMS,
    LARGEST,
    NAMES,
    Problem,
    answers_in,
    draw_problem,
    is_correct,
    is_fair,
    split_of,
)
from clawrl_gym.envs.task_ids import NUMBERS

PROBLEM = Problem("Tom", "apples", "gets", 3, 4, "+", "Tom has 3 apples ...", claimed=8)
RIGHTLY_CLAIMED = Problem("Tom", "apples", "gets", 3, 4, "+", "Tom has 3 apples ...", claimed=7)


def problems(split="train", count=1500):
    return [draw_problem(split, Draw(f"test/{split}/{n}")) for n in range(count)]


def test_a_problem_follows_from_its_draws_alone() -> None:
    assert problems(count=20) == problems(count=20)


def test_numbers_stay_small_and_the_answer_is_never_one_of_the_two() -> None:
    for problem in problems():
        assert 2 <= problem.answer <= LARGEST
        assert max(problem.first, problem.second) <= LARGEST
        assert problem.answer not in (problem.first, problem.second)
        assert problem.claimed not in (problem.first, problem.second)
        assert str(problem.first) in problem.text
        assert str(problem.second) in problem.text


def test_a_pupil_is_right_about_half_of_the_time_and_never_far_off() -> None:
    drawn = problems()
    right = [problem.claimed == problem.answer for problem in drawn]
    assert 0.4 < sum(right) / len(right) < 0.6
    assert all(abs(problem.claimed - problem.answer) <= 2 for problem in drawn)


def test_a_person_with_their_things_belongs_to_one_split() -> None:
    assert all(split_of(p.name, p.items) == "train" for p in problems("train"))
    assert all(split_of(p.name, p.items) == "heldout" for p in problems("heldout"))
    held = [split_of(name, items) == "heldout" for name in NAMES for items in ITEMS]
    assert 0.1 < sum(held) / len(held) < 0.3


@pytest.mark.parametrize("persona", PERSONAS)
def test_no_problem_is_in_both_splits(persona: str) -> None:
    told = {
        split: {make_task(task_id).problem.text for task_id in task_ids(persona, split)[:2000]}
        for split in ("train", "heldout")
    }
    assert told["train"] & told["heldout"] == set()


def test_there_are_more_than_ten_thousand_different_training_problems() -> None:
    assert len({problem.text for problem in problems(count=14_000)}) > 10_000


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "7 apples",
        "Tom now has 7 apples.",
        "tom has 3 and gets 4 more so its 7",
        "its 7 cause 3 and 4",
        "3 + 4 = 7",
        "3+4=7",
        "**Step 1:** Start with 3 apples.\n**Step 2:** 3 + 4 = 7\n**Final answer: 7**",
        "1. Start with 3\n2. Add 4\n5. So 7",
        "Seven apples, of course.",
        "7.0",
        "I wrote 7 to answers/12.txt",
        "one day there were 7",
    ],
)
def test_the_right_number_is_found_in_any_style(text: str) -> None:
    assert is_correct(text, PROBLEM)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "Tom has 3 apples and gets 4 more.",
        "3 + 4",
        "7 or 8",
        "6 7 8 9 10",
        "the answer is -7",
        "17",
        "7.5",
        "7. Let us begin",
        "see answers/7.txt",
        "step 7",
        "eight",
    ],
)
def test_quoting_guessing_and_naming_steps_or_files_is_no_right_answer(text: str) -> None:
    assert not is_correct(text, PROBLEM)


def test_the_numbers_of_the_task_are_no_answers() -> None:
    assert answers_in("3 and 4, or 4 - 3, makes 9", PROBLEM) == {9}


@pytest.mark.parametrize(
    ("text", "problem", "fair"),
    [
        ("Well done Tom, 3 + 4 is 7!", RIGHTLY_CLAIMED, True),
        ("Good try Tom, but 3 + 4 is 7.", PROBLEM, True),
        ("Almost, Tom: 7, not 8.", PROBLEM, True),
        ("Well done Tom, 8 it is!", PROBLEM, False),
        ("Well done Tom, 3 + 4 is 7!", PROBLEM, False),
        ("Good try Tom, but 3 + 4 is 7.", RIGHTLY_CLAIMED, False),
        ("Nice try, but it is not 8.", PROBLEM, False),
        ("", PROBLEM, False),
    ],
)
def test_a_comment_is_fair_when_it_judges_the_pupil_rightly(
    text: str, problem: Problem, fair: bool
) -> None:
    assert is_fair(text, problem) is fair


def test_a_prefix_of_the_ids_holds_each_family_equally_often() -> None:
    ids = task_ids("student", "train")
    assert len(ids) == NUMBERS["train"] * len(FAMILIES)
    assert [make_task(task_id).family for task_id in ids[:8]] == [*FAMILIES, *FAMILIES]
    assert ids[-1] == ids[len(ids) - 1]
    with pytest.raises(IndexError, match="expected less than"):
        ids[len(ids)]


def test_a_task_has_the_files_and_tools_that_it_needs_and_no_others() -> None:
    made = {task.family: task for task in map(make_task, task_ids("student", "train")[:4])}
    names = {
        family: [tool["function"]["name"] for tool in task.tools] for family, task in made.items()
    }
    assert names == {
        "ask": [], "homework": ["read", "write"], "read": ["read"], "save": ["write"],
    }  # fmt: skip
    read = made["read"]
    assert read.source is not None
    assert read.problem.text in read.files[read.source]
    assert read.source in read.opening
    assert read.problem.text in made["read"].files[read.source]
    assert made["ask"].problem.text in made["ask"].opening
    assert made["ask"].files == {}


@pytest.mark.parametrize(
    "task_id",
    [
        "", "student", "student-ask-train", "student-ask-train-1", "nobody-ask-train-000001",
        "student-sing-train-000001", "student-ask-test-000001", "student-ask-heldout-001000",
        "student-ask-train-00000a", "student-ask-train-000001-x", "../etc/passwd",
    ],
)  # fmt: skip
def test_what_is_not_an_id_is_refused_with_an_example(task_id: str) -> None:
    with pytest.raises(TaskError, match="student-ask-train-000123"):
        make_task(task_id)


def test_an_unknown_persona_or_family_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"env\.persona='pirate', expected one of: student"):
        task_ids("pirate", "train")
    with pytest.raises(ConfigError, match=r"env\.families=\['sing'\], expected some of: ask"):
        task_ids("student", "train", ["sing"])
    with pytest.raises(ConfigError, match="expected some of"):
        task_ids("student", "train", [])
