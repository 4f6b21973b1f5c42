"""Composed conversations: what they ask, who satisfies their users, and who does not."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.envs.conversation.tools import arguments_of
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.composed.answers import MAX_CHARS, Answer, accepts
from clawrl_gym.envs.showcase.conversation.composed.asks import (
    ASKS,
    FIRST,
    PICKS,
    dish,
    draw_options,
    recall,
)
from clawrl_gym.envs.showcase.conversation.composed.facts import CORRECTED, FACTS, RECALLED
from clawrl_gym.envs.showcase.conversation.composed.families import FAMILIES, MOST
from clawrl_gym.envs.showcase.conversation.composed.generated import (
    HELDOUT_FAMILIES,
    ComposedTask,
    composed_tasks,
    make_task,
)
from clawrl_gym.envs.showcase.conversation.composed.numbers import in_words, numbers_in
from clawrl_gym.envs.showcase.conversation.composed.plan import Held, Plan, Step
from clawrl_gym.envs.showcase.conversation.composed.scenes import DAYS, DIETS, is_bad
from clawrl_gym.envs.showcase.conversation.composed.user import ComposedUser
from clawrl_gym.envs.showcase.conversation.composed.wishes import WISHES
from clawrl_gym.envs.task_ids import composition_split
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.rules import RuleJudge
from tests.support.talk_agents import (
    NEAR,
    TRICKS,
    Moment,
    Said,
    Speaker,
    earns,
    forgets,
    is_slip,
    learns,
    played,
    right,
)

SAMPLE = 60
"""Tasks of each family and split."""
SPLITS: tuple[Split, ...] = ("train", "heldout")


@cache
def drawn(each: int = SAMPLE) -> tuple[ComposedTask, ...]:
    ids = [name for split in SPLITS for name in _first(split, each)]
    return tuple(map(make_task, ids))


def _first(split: Split, each: int) -> list[str]:
    ids = composed_tasks().ids(split)
    return ids[: each * len(ids.families)]


COST = ASKS["cost"].answer({"price": 15}, 12)
LEFT = ASKS["left"].answer({"budget": 1_600, "price": 15}, 12)
END = ASKS["end"].answer({"start": 14}, 3)
BEFORE = ASKS["before"].answer({"day": "Friday"}, 2)
FAR = ASKS["before"].answer({"day": "Friday"}, 5)
LATE = ASKS["abroad"].answer({"start": 11, "ahead": 2}, 0)
BUDGET = recall("budget", {"budget": 1_250})
PEOPLE = recall("people", {"people": 12})
KEEPER = recall("keeper", {"keeper": "Mia"})
CAKE = dish("nuts", ("walnut bread", "fruit salad", "peanut noodles"))
STEW = dish("vegetarian", ("beef stew", "lentil soup", "grilled fish"))
TEA = dish("alcohol", ("red wine", "mint tea", "cider"))

RIGHT: list[tuple[Answer, str]] = [
    (COST, "180"),
    (COST, "180 euros"),
    (COST, "€180"),
    (COST, "180.00 EUR"),
    (COST, "**180 euros**"),
    (COST, "One hundred and eighty euros."),
    (COST, "a hundred eighty euros"),
    (COST, "12 \u00d7 15 = 180"),
    (COST, "12 cupcakes cost 12 * 15 € = **180 €**."),
    (COST, "That's 180 euros (12 times 15)."),
    (COST, "Twelve at fifteen euros each makes one hundred and eighty."),
    (COST, "180. That is all of them."),
    (COST, "1. Twelve cupcakes\n2. 15 euros each\nSo: 180 euros"),
    (COST, "You'd pay 180 euros. Shall I write that down?"),
    (COST, "180 euros, not 165."),
    (COST, "What do they cost? 180 euros."),
    (LEFT, "1,420 euros"),
    (LEFT, "1420"),
    (LEFT, "One thousand four hundred and twenty."),
    (LEFT, "The 12 cost 180 euros, which leaves 1,420 of your 1,600 euros."),
    (LEFT, "1600 \u2212 180, so 1'420 euros are left."),
    (LEFT, "1600 - (12 x 15) = 1600 - 180 = 1420"),
    (END, "17:00"),
    (END, "5 pm"),
    (END, "At 5 p.m."),
    (END, "five in the afternoon"),
    (END, "It is over at 5:00 PM, three hours after 14:00."),
    (END, "14:00 + 3 hours = 17:00."),
    (END, "at five o'clock in the afternoon"),
    (END, "17h00"),
    (BEFORE, "Wednesday"),
    (BEFORE, "On a WEDNESDAY."),
    (BEFORE, "Two days before Friday is Wednesday."),
    (BEFORE, "Thursday is one day before, so two days before is Wednesday."),
    (BUDGET, "You said 1,250 euros."),
    (BUDGET, "twelve hundred and fifty euros"),
    (BUDGET, "It was 1250 euros, not 1,200."),
    (PEOPLE, "12 guests, instead of 21 as you first said."),
    (PEOPLE, "You're expecting a total of 12."),
    (PEOPLE, "Twelve!"),
    (KEEPER, "Mia"),
    (KEEPER, "mia has it"),
    (KEEPER, "It's with Mia, not with Tom."),
    (CAKE, "The fruit salad."),
    (CAKE, "Fruit salad, since it has no nuts."),
    (CAKE, "The fruit salad; the walnut bread and the peanut noodles contain nuts."),
    (CAKE, "Fruit salad, not the walnut bread or the peanut noodles."),
    (CAKE, "Only the fruit salad is nut-free."),
    (CAKE, "Avoid the walnut bread and peanut noodles; serve the fruit salad."),
    (CAKE, "The walnut bread, and the peanut noodles have nuts, so the fruit salad."),
    (CAKE, "**Fruit salad** - it doesn't contain any nuts."),
    (STEW, "lentil soup (the beef stew is meat and the grilled fish is fish)"),
    (CAKE, "The fruit salad. The other two contain nuts."),
    (PEOPLE, "12 guests (previously 21)."),
    (PEOPLE, "You corrected it: 12, down from 21."),
    (COST, "\\( 12 \\times 15 = \\boxed{180} \\)"),
    (END, "17:00h"),
    (END, "It ends at 17:00 hours."),
    (BEFORE, "1 day before: Thursday; 2 days before: Wednesday. So Wednesday."),
    (CAKE, "Walnut bread \u274c, peanut noodles \u274c, fruit salad \u2705"),
    (CAKE, "Of the 3, only the fruit salad is safe."),
    (END, "17:00 (5 PM)"),
    (STEW, "As a vegetarian he should have the lentil soup."),
    (COST, "180,00 \u20ac"),
    (COST, "180 euros (or \u20ac180)"),
    (COST, "1 cupcake costs 15 euros, so 12 cost 180 euros."),
    (COST, "12x15=180"),
    (COST, "12 \u00d7 15 = (10 \u00d7 15) + (2 \u00d7 15) = 150 + 30 = **180 euros**."),
    (COST, "\\( 12 \\times 15 = 12 \\times 10 + 12 \\times 5 = 120 + 60 = 180 \\)"),
    (LATE, "At one o'clock in the afternoon."),
    (BEFORE, "The reminder should go out on Wednesday, as it is on Friday."),
    (BUDGET, "1,250 euros (you corrected it from 1,200)."),
    (BUDGET, "1,250 euros, updated from the earlier 1,200 euros."),
    (BUDGET, "1,250 euros ~~1,200 euros~~"),
    (PEOPLE, "12 guests (you corrected this from 21 to 12)."),
    (KEEPER, "Mia has it (you corrected it from Tom)."),
    (CAKE, "- walnut bread: contains nuts\n- peanut noodles: contain nuts\n- fruit salad: fine"),
    (CAKE, "The walnut bread and peanut noodles are off the table, so the fruit salad."),
    (TEA, "Mint tea is the only non-alcoholic choice."),
    (COST, "According to notes/21.txt it is 180 euros."),
]
WRONG: list[tuple[Answer, str]] = [
    (COST, ""),
    (COST, "165"),
    (COST, "12 and 15"),
    (COST, "180 or 165 euros"),
    (COST, "either 180 euros or 12"),
    (COST, "165, 180, 195"),
    (COST, "180 euros? 12? 15?"),
    (COST, "Is it 180?"),
    (COST, "It is not 180."),
    (COST, "1,800"),
    (COST, "-1 80"),
    (COST, "180" + " well" * 300),
    (LEFT, "1420 or 180"),
    (LEFT, "142"),
    (END, "5 am"),
    (END, "18:00"),
    (END, "17:30"),
    (END, "16:00, 17:00, 18:00"),
    (BEFORE, "Thursday"),
    (BEFORE, "Monday, Tuesday, Wednesday, Thursday, Friday"),
    (BEFORE, "Wednesday or Friday"),
    (BUDGET, "1,200 euros, not 1,250"),
    (BUDGET, "1,250 or 1,200"),
    (PEOPLE, "21, or rather 12"),
    (PEOPLE, "12 or 21"),
    (PEOPLE, "previously 12, previously 21"),
    (PEOPLE, "21 guests (previously 12)."),
    (COST, "With 12 it is 180, with 21 it is 315."),
    (KEEPER, "Tom"),
    (KEEPER, "Mia or Tom"),
    (KEEPER, "Mia, Tom, Ana, Leo"),
    (KEEPER, "Not Mia."),
    (CAKE, "The walnut bread."),
    (CAKE, "walnut bread, fruit salad, peanut noodles"),
    (CAKE, "The fruit salad or the walnut bread."),
    (CAKE, "Not bad: walnut bread, fruit salad and peanut noodles."),
    (CAKE, "Not the fruit salad."),
    (CAKE, "Any of them."),
    (CAKE, "Fruit salad?"),
    (STEW, "the beef stew, as it is a soup without fish"),
    (FAR, "Monday, Wednesday, Friday"),
    (FAR, "Monday, Thursday"),
    (BEFORE, "Thursday, Wednesday, Tuesday"),
    (COST, "It is in notes/180.txt."),
    (COST, "<!-- 180 -->"),
    (PEOPLE, "~~12~~"),
    (PEOPLE, "12x13x14"),
    (COST, "12 * 14 = 168, 12 * 15 = 180, 12 * 16 = 192"),
    (COST, "12 * 15 = 180 = 195"),
    (COST, "150 + 30"),
    (COST, "150 + 30 = 180?"),
    (PEOPLE, "12 = 13 = 14"),
    (PEOPLE, "12 + 13 = 25"),
    (PEOPLE, "(" * 500 + "13 = 12"),
    (PEOPLE, "9" * 600 + "/" + "9" * 500 + " = 12 / 0"),
    (PEOPLE, "12, or 1 of 13"),
    (PEOPLE, "21 (you corrected it from 12)"),
    (KEEPER, "Tom (you corrected it from Mia)"),
    (CAKE, "walnut bread: fine, fruit salad: fine"),
    (CAKE, "The fruit salad is off the table."),
]


@pytest.mark.parametrize(("answer", "text"), RIGHT)
def test_what_is_right_may_be_said_in_many_ways(answer: Answer, text: str) -> None:
    assert accepts([answer], text)


@pytest.mark.parametrize(("answer", "text"), WRONG)
def test_what_is_wrong_or_left_open_is_no_answer(answer: Answer, text: str) -> None:
    assert not accepts([answer], text)


@pytest.mark.parametrize("diet", sorted(DIETS))
def test_which_dish_fits_cannot_be_told_without_the_diet(diet: str) -> None:
    for number in range(100):
        options = draw_options(diet, Draw(f"options/{diet}/{number}"))
        fitting = {
            name: [option for option in options if not is_bad(option, name)] for name in DIETS
        }
        answers = [found[0] for found in fitting.values() if len(found) == 1]
        assert len(fitting[diet]) == 1
        assert len(answers) == len(set(answers)) == 2, "as good for somebody else"


def test_two_questions_take_two_answers() -> None:
    both = [COST, KEEPER]
    assert accepts(both, "180 euros, and Mia has the key.")
    assert accepts(both, "Mia has it. It comes to 12 x 15 = 180.")
    assert not accepts(both, "180 euros")
    assert not accepts(both, "Mia has the key.")
    assert not accepts(both, "180 euros, and Tom has the key.")


def test_every_number_is_read_as_it_is_spelt() -> None:
    assert all(numbers_in(in_words(n)) == {n} for n in range(2, 10_000))
    assert numbers_in("one of the 2nd kind, twelve and three") == {12, 3}
    assert numbers_in("twenty-one thousand") == {21_000}


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("a dozen cards", 12), ("half a dozen", 6), ("two dozen of them", 24), ("3 dozen", 36),
        ("one dozen", 12), ("A dozen.", 12),
    ],
)  # fmt: skip
def test_dozens_are_counted(said: str, number: int) -> None:
    assert numbers_in(said) == {number}


def test_a_short_day_is_that_day_and_no_other() -> None:
    day = ASKS["before"].answer({"day": "Friday"}, 2)
    for answer in ("Wed.", "On Wed, then.", "Wed. Is there anything else?"):
        assert accepts([day], answer)
    for other in ("Thu.", "Tue or Wed.", "Is it Wed?", "They wed then."):
        assert not accepts([day], other)


def test_the_oracle_satisfies_every_user_and_so_does_who_learns_from_a_complaint() -> None:
    for task in drawn():
        satisfied, parts, talk = played(task, right)
        assert satisfied, talk
        assert parts == 1.0
        assert earns(task, learns), task.id


@pytest.mark.parametrize("text", ["", "Noted.", "I do not know."])
def test_who_says_nothing_satisfies_nobody(text: str) -> None:
    def silent(_: Moment) -> Said:
        return Said(text, {})

    assert [task.id for task in drawn() if earns(task, silent)] == []


@pytest.mark.parametrize("speaker", [*NEAR, *TRICKS], ids=lambda speaker: speaker.__name__)
def test_who_is_nearly_right_or_tries_it_on_satisfies_nobody(speaker: Speaker) -> None:
    slips = [task for task in drawn() if is_slip(task, speaker)]
    assert len(slips) > 100
    assert [task.id for task in slips if earns(task, speaker)] == []


@pytest.mark.nightly
def test_of_many_tasks_the_oracle_satisfies_all_users_and_nobody_else_any() -> None:
    for task in drawn(400):
        assert earns(task, right), task.id
        assert earns(task, learns), task.id
        for speaker in (*NEAR, *TRICKS):
            assert not (is_slip(task, speaker) and earns(task, speaker)), (task.id, speaker)


def test_every_single_skill_without_memory_is_not_enough() -> None:
    ranked = sorted(drawn(), key=lambda task: task.difficulty)
    hardest = ranked[-len(ranked) // 3 :]
    assert sum(earns(task, forgets) for task in hardest) < 0.4 * len(hardest)
    single = [task for task in ranked if task.family == "single"]
    assert all(earns(task, forgets) for task in single)


def test_all_skills_families_and_difficulties_come_up() -> None:
    skills = {name for task in drawn() for name in task.plan.names}
    corrected = {f"{what}:{kind}" for what in ("correct", "distract", "undo") for kind in CORRECTED}
    wishes = {f"{what}:{name}" for what in ("wish", "hidden", "except") for name in WISHES}
    asked = {*(f"ask:{name}" for name in ASKS), "ask:pick", "ask:problem", "ask:listed"}
    recalled = {f"recall:{kind}" for kind in (*RECALLED, "first")}
    assert skills >= corrected | wishes | asked | recalled | {"read:price"}
    assert {task.family for task in drawn()} == set(FAMILIES)
    assert {task.difficulty for task in drawn()} == set(range(1, MOST + 1))


def test_compositions_belong_to_one_split() -> None:
    for task in drawn():
        if task.family not in {"single", *HELDOUT_FAMILIES}:
            assert composition_split(task.plan.names) == task.split


def test_messages_differ_read_well_and_ways_to_say_something_belong_to_one_split() -> None:
    texts = {
        split: [step.text for task in drawn() if task.split == split for step in task.plan.steps]
        for split in SPLITS
    }
    everything = texts["train"] + texts["heldout"]
    odd = re.compile(r"[{}|]|  |\bNone\b|\.\.|\ba [aeiou]| [.,?]|^[a-z]")
    assert [text for text in everything if odd.search(text)] == []
    assert len(set(texts["train"])) > 0.9 * len(texts["train"])
    openings = Counter(" ".join(task.opening.split()[:3]) for task in drawn())
    assert openings.most_common(1)[0][1] < 0.25 * len(drawn())
    assert len({task.opening for task in drawn()}) > 0.97 * len(drawn())
    unseen = re.compile(r"Splendid|Count on|misread my own|Kindly|choir|quiz night|Record the")
    assert not [text for text in texts["train"] if unseen.search(text)]
    assert sum(bool(unseen.search(text)) for text in texts["heldout"]) > 100


def test_no_way_to_say_something_is_used_in_both_splits() -> None:
    ways = [fact.told for fact in FACTS.values()] + [fact.recalled for fact in FACTS.values()]
    ways += [ask.asked for ask in ASKS.values()] + [PICKS, FIRST]
    ways += [w for wish in WISHES.values() for w in (wish.said, wish.excepted)]
    for phrasings in ways:
        assert not set(phrasings.train) & set(phrasings.heldout)
        assert len(phrasings.train) > len(phrasings.heldout) or not phrasings.train


def test_held_out_families_have_no_training_tasks() -> None:
    assert {"minutes", "undo"} == HELDOUT_FAMILIES
    assert not HELDOUT_FAMILIES & set(composed_tasks().ids("train").families)
    with pytest.raises(TaskError, match=r"'undo' is held out.*talk-undo-heldout-000003"):
        make_task("talk-undo-train-000003")
    with pytest.raises(ConfigError, match="expected some of: correct, distract"):
        ConversationEnv(tasks="composed", families=["ask"])


def test_a_task_follows_from_its_id_and_travels() -> None:
    for task in drawn()[::17]:
        assert make_task(task.id) == pickle.loads(pickle.dumps(task))


def test_the_oracle_earns_the_reward_in_the_environment_with_its_files() -> None:
    env = ConversationEnv(tasks="composed")
    for name in [*_first("train", 2), *_first("heldout", 2)]:
        observation, info = env.reset(options={"task": name})
        task = make_task(name)
        assert (observation, info["difficulty"]) == (task.opening, task.difficulty)
        assert bool(info["tools"]) == any(step.read or step.write for step in task.plan.steps)
        rewards = []
        for action in env.solve():
            _, reward, terminated, _, info = env.step(action)
            rewards.append(reward)
        assert terminated
        assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
        assert info["parts"] == 1.0
        assert info["scores"] == {"parts": 1.0}
        assert env.finish() == 0.0


def test_a_file_that_nobody_asked_for_ends_the_conversation() -> None:
    env = ConversationEnv(tasks="composed", families=["files"])
    env.reset(options={"task": "talk-files-train-000001"})
    written = arguments_of(path="notes/mine.txt", content="18 guests")
    env.step(encode(Reply("", (Call("1", "write", written),))))
    observation, reward, terminated, _, info = env.step("Noted.")
    assert "notes/mine.txt" in observation
    assert (reward, terminated, info["satisfied"]) == (0.0, True, False)


def test_turns_are_bounded_by_the_task() -> None:
    env = ConversationEnv(tasks="composed", families=["files"])
    env.reset(options={"task": "talk-files-train-000001"})
    read = encode(Reply("", (Call("1", "read", arguments_of(path="nothing.txt")),)))
    task = make_task("talk-files-train-000001")
    ends = [env.step(read)[2:4] for _ in range(task.turns)]
    assert ends == [(False, False)] * (task.turns - 1) + [(False, True)]


def test_what_a_composed_user_says_is_no_models() -> None:
    with pytest.raises(ConfigError, match="has to be exact"):
        ConversationEnv(tasks="composed", user="model", user_base_url="http://127.0.0.1:1/v1")


SLOW = Answer(7, "7 pieces", frozenset({3, 4}))


def talk(*steps: Step, wishes: dict[int, tuple[Held, ...]] | None = None) -> ComposedUser:
    plan = Plan(steps, wishes or {}, {})
    return ComposedUser(ComposedTask("talk-turns-train-000001", "turns", "train", plan))


def test_a_slip_in_what_was_all_said_may_be_mended_once() -> None:
    user = talk(Step("3 and 4?", ("ask:problem",), (SLOW,)), Step("And?", ("x",), (SLOW,)))
    assert re.search("wrong|not right", user.hear("8", {}).text)
    assert user.hear("7", {}).text == "And?"
    assert user.hear("7", {}).satisfied
    assert user.parts == 1.0


def test_the_same_slip_twice_ends_the_conversation() -> None:
    user = talk(Step("3 and 4?", ("ask:problem",), (SLOW,)))
    assert not user.hear("8", {}).over
    last = user.hear("9", {})
    assert last.over
    assert not last.satisfied
    assert user.parts == 0.0


def test_what_was_said_before_is_not_said_again_for_nothing() -> None:
    user = talk(
        Step("3 and 4?", ("ask:problem",), (SLOW,), remembers=True),
        Step("And now?", ("ask:problem",), (SLOW,)),
    )
    user.hear("8", {})
    assert user.hear("7", {}).text == "And now?"
    last = user.hear("7", {})
    assert last.over
    assert not last.satisfied
    assert user.parts == 0.5


@pytest.mark.parametrize("told", [True, False])
def test_a_wish_that_nobody_said_may_be_complained_about_once(told: bool) -> None:
    step = Step("3 and 4?", ("ask:problem",), (SLOW,))
    user = talk(step, step, wishes={0: (Held("capitals", "", told),)})
    assert "capital" in user.hear("it is 7", {}).text
    assert user.hear("IT IS 7", {}).text == "3 and 4?"
    assert user.hear("IT IS 7", {}).satisfied is not told


def test_a_wish_is_complained_about_once_only() -> None:
    step = Step("3 and 4?", ("ask:problem",), (SLOW,))
    user = talk(step, step, wishes={0: (Held("capitals", "", False),)})
    user.hear("it is 7", {})
    user.hear("IT IS 7", {})
    last = user.hear("it is 7", {})
    assert last.over
    assert not last.satisfied


def test_a_file_must_hold_what_is_wanted_and_stay_so() -> None:
    for task in drawn():
        writes = [step for step in task.plan.steps if step.write is not None]
        if writes and task.plan.steps.index(writes[0]) < len(task.plan.steps) - 1:
            break
    path = writes[0].write.path if writes[0].write else ""
    written = task.plan.steps.index(writes[0])

    def spoils(moment: Moment) -> Said:
        said = right(moment)
        later = {path: "nothing"} if moment.at > written else {}
        return Said(said.text, {**said.writes, **later})

    def says_so_only(moment: Moment) -> Said:
        return Said(right(moment).text, {})

    def adds(moment: Moment) -> Said:
        said = right(moment)
        return Said(said.text, {name: f"{c} 777" for name, c in said.writes.items()})

    for speaker in (spoils, says_so_only, adds):
        assert not earns(task, speaker)


@pytest.mark.parametrize(
    ("name", "word", "kept", "broken"),
    [
        ("lower", "", "it is 7 pieces", "It is 7 pieces"),
        ("capitals", "", "IT IS 7, SEE notes/mine.txt", "It is 7"),
        ("ending", "over", "It is 7. **Over!**", "Over, it is 7."),
        ("name", "Ada", "**Ada**, it is 7", "It is 7, Ada"),
        ("spelt", "", "Seven, in notes/12.txt", "7"),
        ("short", "6", "It is 7 pieces in all.", "It is 7 pieces in all, I think."),
        ("sentence", "", "The answer is 7.", "7 pieces"),
        ("brackets", "", "It is [7 pieces].", "It is (7 pieces)."),
        ("brackets", "", "It is [7] pieces.", "[So] it is 7 pieces."),
    ],
)
def test_a_form_is_known_however_it_is_put(name: str, word: str, kept: str, broken: str) -> None:
    plan = Plan((Step("?", ("x",), (SLOW,)),), {0: (Held(name, word, True),)}, {})
    assert not plan.broken(0, kept)
    assert plan.broken(0, broken)


@pytest.mark.parametrize(
    ("name", "word", "kept"),
    [
        ("sentence", "", "12 cupcakes cost 180 euros."),
        ("sentence", "", "\u20ac180 is what they cost."),
        ("sentence", "", "It's 180 euros."),
        ("sentence", "", "The total is 180 euros. \U0001f60a"),
        ("sentence", "", "The 12 cost 180 euros. Is there anything else?"),
        ("spelt", "", "One-hundred-and-eighty euros."),
        ("spelt", "", "1. Twelve at fifteen euros each\n2. One hundred and eighty in all"),
        ("ending", "over", "180 euros. Over \U0001f44d"),
        ("short", "6", "12 \u00d7 15 = **180 euros**"),
    ],
)
def test_a_wish_is_kept_as_models_write(name: str, word: str, kept: str) -> None:
    assert not broken_by(name, word, kept)


@pytest.mark.parametrize(
    ("name", "word", "text"),
    [
        ("sentence", "", "180 euros in all."),
        ("sentence", "", "180. Is that fine?"),
        ("spelt", "", "/180"),
        ("spelt", "", "180. That is it."),
        ("spelt", "", "Step 180"),
        ("lower", "", "/THAT/IS 180"),
        ("capitals", "", "/that/is 180"),
        ("ending", "over", "180 euros <!-- over -->"),
        ("ending", "over", "180 euros ~~over~~"),
        ("name", "Ada", "<!-- Ada --> 180"),
        ("short", "6", "the-answer-to-what-you-asked-is 180"),
        ("short", "6", "so_that_is_what_I_say 180"),
        ("short", "6", "so\u200bthat\u200bis\u200bwhat\u200bI\u200bsay 180"),
    ],
)
def test_no_trick_keeps_a_wish(name: str, word: str, text: str) -> None:
    assert broken_by(name, word, text)


def broken_by(name: str, word: str, text: str, excepted: str | None = None) -> tuple[Held, ...]:
    step = Step("?", ("x",), (COST,), excepted=excepted)
    return Plan((step,), {0: (Held(name, word, True),)}, {}).broken(0, text)


def test_an_exception_is_about_the_answer_and_the_end() -> None:
    assert not broken_by("spelt", "", "180 euros", "spelt")
    assert broken_by("spelt", "", "12 cost one hundred and eighty", "spelt")
    assert not broken_by("ending", "over", "All 12 are over there, 180 euros.", "ending")
    assert broken_by("ending", "over", "180 euros. Over.", "ending")


def test_a_wish_about_digits_asks_nothing_of_what_is_no_answer() -> None:
    plan = Plan((Step("So.", ("x",)),), {0: (Held("spelt", "", True),)}, {})
    assert not plan.broken(0, "Noted, twelve guests.")


def test_no_list_of_days_is_right_for_more_than_one_day() -> None:
    """Whatever is left out of it: who does not know the day gains nothing by naming several."""
    for k in range(2, 6):
        days = [ASKS["before"].answer({"day": day}, k) for day in DAYS]
        for size in range(1, len(DAYS) + 1):
            for named in combinations(DAYS, size):
                assert sum(accepts([day], ", ".join(named)) for day in days) <= 1


def test_the_judge_by_rule_reads_the_user_as_it_means_it() -> None:
    """Complaints are complaints and the end is praise."""
    rules = Path(__file__).parents[2] / "conf" / "judge" / "rule.yaml"
    judge = RuleJudge(JudgeConfig.model_validate(yaml.safe_load(rules.read_text())))

    def verdict(said: str) -> int | None:
        reply, after = {"role": "assistant", "content": "7"}, [{"role": "user", "content": said}]
        return asyncio.run(judge.judge(Case(1, "3 and 4?", reply, after))).value  # type: ignore[arg-type]

    from clawrl_gym.envs.showcase.conversation.composed import user

    complaints = [*user._WRONG, *user._FORGOTTEN, *user._MISSING, *user._STRANGE, *user._LEAVES]
    complaints += [form.format(x="6") for wish in WISHES.values() for form in wish.complaint]
    complaints += [*user._LONG, *user._ECHO, user._WRONG_FORM]
    assert len([said for said in complaints if verdict(said) != -1]) <= 2
    assert [said for said in user._THANKS if verdict(said) != 1] == []


def test_a_reply_that_nobody_would_read_is_too_long() -> None:
    user = talk(Step("3 and 4?", ("ask:problem",), (SLOW,)))
    assert "too long" in user.hear("7 " + "well " * MAX_CHARS, {}).text
