"""`env=reasoning_gym`: the package's questions, answers and scorers, unchanged."""

import sys

import pytest
from reasoning_gym.factory import DATASETS, create_dataset
from reasoning_gym.utils import SYSTEM_PROMPTS, extract_answer

from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.envs.text.env import SingleReplyEnv
from clawrl_gym.envs.text.reasoning import DEFAULTS, ReasoningGrader, reasoning_tasks
from clawrl_gym.envs.text.task import TextTask, graded

WRONG = ("", "x", "0", "-1", "1", "12345", "no such word", "[]", "<answer>")


def source_of(*families, system="direct", **options):
    return reasoning_tasks(list(families) or None, options, system)


@pytest.mark.parametrize("family", sorted(DEFAULTS))
def test_rewards_are_those_of_the_package_on_right_and_wrong_answers(family):
    source = source_of(family)
    ids = [*source.ids("train")[:100], *source.ids("heldout")[:100]]
    referee = create_dataset(family, seed=1, size=1, **DEFAULTS[family])
    for task_id in ids:
        task = source.load(task_id)
        entry = task.grader.entry
        assert graded(task, task.solution).reward == 1.0
        assert referee.score_answer(entry["answer"], entry) == 1.0
        for answer in WRONG:
            reply = f"Let me see. <answer>{answer}</answer>"
            assert graded(task, reply).reward == referee.score_answer(extract_answer(reply), entry)
        assert graded(task, entry["answer"]).reward == referee.score_answer(None, entry)


def test_the_prompt_is_the_package_s_question_under_its_system_prompt():
    task = source_of("gcd").load("gym-gcd-train-000003")
    assert task.system == SYSTEM_PROMPTS["direct"].strip()
    assert task.prompt == task.grader.entry["question"]
    assert "Greatest Common Divisor" in task.prompt
    assert (
        source_of("gcd", system="simple").load("gym-gcd-train-000003").system.startswith("You are")
    )


@pytest.mark.parametrize("family", sorted(DEFAULTS))
def test_no_question_of_training_is_measured(family):
    source = source_of(family)
    train, held_out = (
        {source.load(task_id).prompt for task_id in source.ids(split)[:100]}
        for split in ("train", "heldout")
    )
    assert not train & held_out
    assert len(held_out) > 5


def test_tasks_follow_from_their_ids_alone():
    for task_id in source_of().ids("train")[:20]:
        assert source_of().load(task_id).prompt == source_of().load(task_id).prompt


def test_options_of_families_are_the_package_s_own():
    task = source_of("chain_sum", chain_sum={"min_terms": 4, "max_terms": 4}).load(
        "gym-chain_sum-train-000000"
    )
    assert sum(task.prompt.count(sign) for sign in (" + ", " - ")) == 3


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "<answer></answer>",
        "<answer>",
        "I do not know.",
        " ".join(str(number) for number in range(1000)),
        "<answer>" + " ".join(str(number) for number in range(1000)) + "</answer>",
    ],
)
def test_an_attack_earns_next_to_nothing(reply):
    source = source_of()
    tasks = [source.load(task_id) for task_id in source.ids("train")[:120]]
    rewards = [graded(task, reply).reward for task in tasks]
    assert sum(rewards) / len(rewards) < 0.02


def test_repeating_the_question_earns_little():
    source = source_of()
    tasks = [source.load(task_id) for task_id in source.ids("train")[:120]]
    for reply in ("{}", "<answer>{}</answer>"):
        rewards = [graded(task, reply.format(task.prompt)).reward for task in tasks]
        assert sum(rewards) / len(rewards) < 0.05


class Scorer:
    """A data set whose scorer reads numbers only."""

    def __getitem__(self, number):
        return {"question": "2 + 2", "answer": "4"}

    def score_answer(self, answer, entry):
        return float(int(answer) == int(entry["answer"]))


@pytest.mark.parametrize(
    ("reply", "reward"), [("<answer>4</answer>", 1.0), ("<answer>four</answer>", 0.0), ("", 0.0)]
)
def test_an_answer_that_a_scorer_cannot_read_earns_nothing(reply, reward):
    grader = ReasoningGrader("sums", Scorer(), {"answer": "4"})
    assert graded(TextTask("s-1", "sums", "train", "2 + 2", grader), reply).reward == reward


def test_a_scorer_that_fails_on_the_right_answer_is_an_error():
    grader = ReasoningGrader("sums", Scorer(), {"answer": "four"})
    task = TextTask("s-1", "sums", "train", "2 + 2", grader)
    with pytest.raises(
        EnvError, match=r"grader 'reasoning_gym.sums' of task 's-1' raised ValueError"
    ):
        graded(task, "<answer>4</answer>")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": ["sudokuu"]}, r"env\.families=\['sudokuu'\], expected some of"),
        ({"families": ["gcd"], "family_options": {"lcm": {}}}, "env.family_options of lcm"),
        ({"families": ["gcd"], "family_options": {"gcd": {"nope": 1}}}, "unexpected keyword"),
        (
            {"families": ["gcd"], "family_options": {"gcd": {"min_value": 9, "max_value": 1}}},
            "refuses",
        ),
        ({"system_prompt": "rude"}, "expected one of"),
    ],
)
def test_wrong_options_are_refused_before_a_start(options, message):
    with pytest.raises(ConfigError, match=message):
        SingleReplyEnv(tasks="reasoning_gym", **options)


def test_a_family_with_too_few_questions_says_so():
    source = source_of("count_bits", count_bits={"min_n": 1, "max_n": 1})
    with pytest.raises(TaskError, match="it makes too few different ones"):
        source.load("gym-count_bits-heldout-000000")


def test_a_missing_package_says_how_to_get_it(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ConfigError, match=r"needs the package reasoning-gym.*: make setup"):
        SingleReplyEnv(tasks="reasoning_gym")


@pytest.mark.slow
def test_every_family_makes_tasks_that_the_package_s_own_answer_solves():
    unsolved = set()
    for family in sorted(set(DATASETS) - {"composite"}):  # that one mixes others, which it is given
        source = source_of(family)
        task = source.load(f"gym-{family}-heldout-000000")
        if task.solution is None:
            unsolved.add(family)
        else:
            assert graded(task, task.solution).reward >= 0.99, family
    assert unsolved == {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
