"""`ClawRL/Gui-v0`: observations, actions, ends and grades, over a screen without a browser."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.grading import InfeasibleGrader, StateGrader
from clawrl_gym.envs.gui.task import GuiTask, Locator, Step
from clawrl_gym.envs.parts import decode_parts, pictures_of
from tests.gui.gui_fakes import Screens
from tests.support.narrow import text_of_part

BOUGHT = StateGrader({"shop": {"bought": "pens"}})
SOLUTION = (
    (
        Step("type", Locator("textbox", "What"), text="pens"),
        Step("click", Locator("button", "Buy")),
    ),
    (Step("done"),),
)
TASK = GuiTask(
    id="buy", family="shop", split="train", instruction="Buy pens.", start="http://shop/",
    grader=BOUGHT, solution=SOLUTION, turns=4,
)  # fmt: skip
FIRST = 'Shop (http://shop/)\n# Shop\ntextbox "What" [1] button "Buy" [2]'


class Tasks:
    """A source of one task."""

    def __init__(self, task):
        self.task = task

    def ids(self, split):
        return [self.task.id] if split == self.task.split else []

    def load(self, task_id):
        return self.task


def env_of(task=TASK, screens=None, /, **options):
    env = GuiEnv(open_screen=screens or Screens(), **options)
    env._source = Tasks(task)
    return env


def started(task=TASK, screens=None, /, **options):
    env = env_of(task, screens, **options)
    env.reset(seed=0)
    return env


def tool_calls(*arguments):
    calls = [Call(str(n), "computer", json.dumps(one)) for n, one in enumerate(arguments, 1)]
    return encode(Reply("", tuple(calls)))


def contents(observation):
    return [result["content"] for result in json.loads(observation)]


def test_a_task_is_solved_by_its_oracle():
    screens = Screens()
    env = env_of(TASK, screens)
    observation, info = env.reset(seed=0)
    assert observation == f"Buy pens.\n\n{FIRST}"
    assert info["tools"][0]["function"]["name"] == "computer"
    assert (info["next_state_role"], info["report"]) == ("user", "")
    oracle = env.solve()
    action = next(oracle)
    assert action == 'type(1, "pens")\nclick(2)'
    observation, reward, terminated, truncated, info = env.step(action)
    assert observation == "Basket (http://shop/basket)\nbought pens"
    assert (reward, terminated, truncated) == (0.0, False, False)
    observation, reward, terminated, truncated, info = env.step(next(oracle))
    assert (observation, reward, terminated, truncated) == ("(done)", 1.0, True, False)
    assert info["report"] == "Test report: passed"
    assert screens.last.closed


def test_tool_calls_get_a_result_each_and_the_page_in_the_last():
    env = started()
    acted = tool_calls(
        {"action": "type", "id": 1, "text": "pens"}, {"action": "left_click", "id": 2}
    )
    observation, *_, info = env.step(acted)
    assert contents(observation) == ["done", "Basket (http://shop/basket)\nbought pens"]
    assert info["next_state_role"] == "tool"
    observation, reward, terminated, _, info = env.step(tool_calls({"action": "done"}))
    assert (contents(observation), reward, terminated) == (["done"], 1.0, True)


def test_what_fails_comes_back_with_its_reason_and_stops_what_follows():
    env = started()
    observation, reward, terminated, *_ = env.step('click(7)\ntype(1, "pens")')
    assert observation.splitlines() == [
        "Error: click(7): there is no element 7 on this page",
        'Note: not carried out, an action before it failed: type(1, "pens")',
        *FIRST.splitlines(),
    ]
    assert (reward, terminated) == (0.0, False)
    calls = tool_calls({"action": "click", "id": 7}, {"action": "click", "id": 2})
    first, second = contents(env.step(calls)[0])
    assert first == "Error: click(7): there is no element 7 on this page"
    assert second.splitlines()[0].startswith("Note: not carried out, an action before it failed")
    assert second.endswith(FIRST)


def test_a_wrong_action_stops_what_follows_but_not_what_was_before():
    screens = Screens()
    env = started(TASK, screens)
    observation = env.step('type(1, "x")\nclick(99999999999)\nclick(2)')[0]
    assert [action.kind for action in screens.last.acted] == ["type"]
    assert observation.splitlines()[0].startswith("Error: click(99999999999): got id=")
    assert "Note: not carried out, an action before it is wrong: click(2)" in observation


def test_another_page_stops_what_follows():
    screens = Screens()
    env = started(TASK, screens)
    observation = env.step("click(2)\nclick(1)")[0]
    assert observation.splitlines()[0] == (
        "Note: not carried out, another page has come up: click(1)"
    )
    assert len(screens.last.acted) == 1


def test_at_most_sixteen_actions_of_a_reply_are_carried_out():
    screens = Screens()
    env = started(TASK, screens)
    observation = env.step("hover(1)\n" * 18)[0]
    assert len(screens.last.acted) == 16
    assert observation.count("Note: not carried out, at most 16 actions a reply") == 2


def test_after_an_ending_nothing_is_done():
    screens = Screens()
    env = started(TASK, screens)
    assert env.step("done()\nclick(2)")[0] == "(done)"
    assert screens.last.acted == []


@pytest.mark.parametrize("text", ["", "I buy it now.", "<think>done()</think>", '{"a": 1}'])
def test_a_reply_without_an_action_says_so_and_ends_nothing(text):
    env = started()
    observation, _, terminated, truncated, _ = env.step(text)
    assert observation.startswith("Error: got no action, expected one a line")
    assert observation.endswith(FIRST)
    assert (terminated, truncated) == (False, False)


INFEASIBLE = replace(TASK, grader=InfeasibleGrader(), solution=((Step("give_up"),),))


def test_only_the_model_gives_up():
    """Defect S13 of the reference: its loop said FAIL for the model when the steps ran out, and
    a task that cannot be done rewarded it."""
    for task in (INFEASIBLE, replace(INFEASIBLE, turns=None)):
        env = started(task, max_turns=3)
        for _ in range(10):
            _, reward, terminated, truncated, _ = env.step("what now?")
            if terminated or truncated:
                break
        assert (reward, terminated, truncated) == (0.0, task.turns == 4, task.turns is None)
        env.reset(seed=0)
        assert env.finish() == 0.0
        env.reset(seed=0)
        assert env.step('give_up("there are none")')[1:3] == (1.0, True)


def test_giving_up_what_can_be_done_earns_nothing():
    env = started()
    env.step(next(env.solve()))
    _, reward, terminated, _, info = env.step("give_up()")
    assert (reward, terminated) == (0.0, True)
    assert "the model gave up, and the task can be done" in info["report"]


def test_the_tasks_own_turns_end_it_and_it_is_graded():
    env = started(replace(TASK, turns=1))
    observation, reward, terminated, truncated, _ = env.step(next(env.solve()))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert "bought pens" in observation
    env = started(replace(TASK, turns=None), max_turns=1)
    assert env.step(next(env.solve()))[1:4] == (1.0, False, True)


def test_a_page_that_says_that_it_is_over_ends_the_task():
    screens = Screens(result=0.5)
    env = started(replace(TASK, result_script="RESULT"), screens)
    observation, _, terminated, *_ = env.step("hover(1)")
    assert (observation, terminated) == ("(done)", True)
    env = started(TASK, screens)
    assert env.step("hover(1)")[2] is False


def test_what_the_page_asks_for_is_part_of_the_request():
    env = env_of(replace(TASK, instruction=""), Screens(page_instruction="Click it."))
    assert env.reset(seed=0)[0].startswith("Click it.\n\nShop (")
    env = env_of(TASK, Screens(page_instruction="Be quick."))
    assert env.reset(seed=0)[0].startswith("Buy pens.\nBe quick.\n\nShop (")


def test_an_oracle_may_follow_from_what_the_page_asks_for():
    def solution(instruction):
        assert instruction == "Buy pens!"
        return SOLUTION

    env = started(replace(TASK, solution=solution), Screens(page_instruction="Buy pens!"))
    assert [env.step(action)[1] for action in env.solve()] == [0.0, 1.0]


def test_an_oracle_whose_element_is_missing_says_which():
    lacking = replace(TASK, solution=((Step("click", Locator("button", "Sell")),),))
    with pytest.raises(TaskError, match=r"needs Locator\(role='button', name='Sell'.*in turn 0"):
        next(started(lacking).solve())
    target = Step("drag", Locator("button", "Buy"), to=Locator("link", "Away"))
    with pytest.raises(TaskError, match="name='Away'"):
        next(started(replace(TASK, solution=((target,),))).solve())
    with pytest.raises(TaskError, match="has no solution"):
        started(replace(TASK, solution=())).solve()


def test_a_drag_may_begin_where_the_mouse_is():
    """Defect 4.3 of the reference: actions that were advertised and did nothing."""
    screens = Screens()
    env = started(TASK, screens)
    drag = {"action": "left_click_drag", "coordinate": [9, 9]}
    assert "no place to drag from" in contents(env.step(tool_calls(drag))[0])[0]
    env.step(tool_calls({"action": "mouse_move", "coordinate": [3, 4]}, drag, drag))
    starts = [(one.x, one.y) for one in screens.last.acted if one.kind == "drag"]
    assert starts == [(3, 4), (9, 9)]


def test_what_happened_by_itself_is_told():
    screens = Screens()
    env = started(TASK, screens)
    screens.last.noticed.append('the page said "hello", which was closed')
    observation = env.step("hover(1)")[0]
    assert observation.startswith('Note: the page said "hello", which was closed\nShop (')


@pytest.mark.parametrize(
    ("kind", "pictures", "tree"),
    [("tree", 0, True), ("screenshot", 1, False), ("marked", 1, False), ("both", 1, True)],
)
def test_a_page_is_seen_as_chosen(kind, pictures, tree):
    env = env_of(TASK, Screens(), observation=kind)
    observation, _ = env.reset(seed=0)
    parts = decode_parts(observation)
    assert len(pictures_of(parts)) == pictures
    text = parts if isinstance(parts, str) else text_of_part(parts[0])
    assert text.startswith("Buy pens.\n\nShop (http://shop/)")
    assert ('textbox "What" [1]' in text) == tree
    [result] = contents(env.step(tool_calls({"action": "hover", "id": 1}))[0])
    assert len(pictures_of(decode_parts(result))) == pictures


def test_coordinates_count_as_the_tool_says():
    small = replace(TASK, viewport=(160, 210), scale=2.0)
    expected = {("tree", "pixels"): 80, ("both", "pixels"): 40, ("both", "thousandths"): 12.8}
    for (kind, unit), x in expected.items():
        screens = Screens()
        env = started(small, screens, observation=kind, coordinates=unit)
        env.step("click(x=80, y=0)")
        assert screens.last.acted[0].x == pytest.approx(x)
    assert "0 to 1000" in str(env.reset(seed=0)[1]["tools"])


def test_a_browser_that_dies_is_no_reward():
    screens = Screens()
    env = started(TASK, screens)
    screens.last.is_dead = True
    with pytest.raises(EnvError, match="the browser died"):
        env.step("done()")
    assert screens.last.closed
    env.reset(seed=0)
    assert env.step("done()")[2] is True


def test_a_screen_that_cannot_be_seen_at_first_is_closed():
    screens = Screens(is_dead=True)
    env = env_of(TASK, screens)
    with pytest.raises(EnvError, match="the browser died"):
        env.reset(seed=0)
    assert screens.last.closed


def test_each_episode_has_a_screen_of_its_own():
    screens = Screens()
    env = started(TASK, screens)
    env.step('type(1, "left over")')
    observation, _ = env.reset(seed=0)
    assert observation.endswith(FIRST)
    assert [screen.closed > 0 for screen in screens.opened] == [True, False]
    env.close()
    env.close()
    assert screens.last.closed == 1


def test_the_transcript_mentions_pictures_and_the_last_page_is_an_array():
    env = started(TASK, Screens(), observation="both", render_mode="ansi")
    env.step("hover(1)")
    assert env.render().count("(picture)") == 2
    env = started(TASK, Screens(), render_mode="rgb_array", width=320, height=200)
    assert env.render().shape == (200, 320, 3)
    env.step("done()")
    assert env.render().dtype == np.uint8


def test_a_film_is_kept_when_it_is_asked_for():
    env = started()
    env.step("done()")
    assert env.film() is None
    env.filming = True
    env.reset(seed=0)
    env.step("no action at all")
    for action in env.solve():
        env.step(action)
    assert env.film()[:2] == b"\xff\xd8"


def test_it_passes_gymnasiums_own_check():
    env = env_of(replace(TASK, turns=None), Screens())
    check_env(env, skip_render_check=True)


def test_many_environments_act_on_threads_of_their_own():
    envs = [started() for _ in range(8)]
    barrier = threading.Barrier(8)

    def play(env):
        barrier.wait(10)
        return sum(env.step(action)[1] for action in env.solve())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(play, envs)) == [1.0] * 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": "smell"}, "env.observation: got 'smell': Input should be 'tree'"),
        ({"coordinates": "miles"}, "env.coordinates: got 'miles'"),
        ({"width": 3}, "env.width: got 3: Input should be greater than or equal to 64"),
        ({"max_tokens": 0}, "env.max_tokens: got 0"),
        ({"max_turns": 0}, "env.max_turns: got 0"),
        ({"page_timeout_s": -1}, "env.page_timeout_s: got -1"),
        ({"allow": "example.org"}, "env.allow: got 'example.org': Input should be a valid list"),
        ({"browser": {"flags": []}}, r"unknown configuration key 'env.browser.flags'"),
        ({"browser": {"max_contexts": 0}}, "env.browser.max_contexts: got 0"),
        ({"render_mode": "human"}, "got render_mode='human'"),
        ({"tasks": "/nowhere"}, "got env.tasks='/nowhere', expected 'generated', 'composed'"),
        ({"families": ["nonesuch"]}, "nonesuch"),
        ({"heldout": "x"}, "env.heldout works with files of tasks"),
        ({"tasks": "/tmp", "families": ["a"]}, "env.families chooses generated tasks"),
    ],
)
def test_wrong_options_are_refused_at_once(options, message):
    with pytest.raises(ConfigError, match=message):
        GuiEnv(**options)


def test_before_reset_there_is_nothing_to_act_on():
    env = env_of()
    for act in (lambda: env.step("done()"), env.shot, env.solve):
        with pytest.raises(EnvError, match=r"expected reset\(\) first"):
            act()
    with pytest.raises(TaskError, match=r"expected reset\(\) first"):
        _ = env.task
    assert env.finish() == 0.0


def test_tasks_are_listed_without_a_browser():
    train, heldout = (set(GuiEnvConfig().task_ids(split)[:200]) for split in ("train", "heldout"))
    assert len(train) == len(heldout) == 200
    assert not train & heldout


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["tree", "both"])
def test_an_oracle_solves_a_shipped_task_in_a_real_browser(kind):
    env = GuiEnv(families=["shop_add"], observation=kind)
    try:
        observation, _ = env.reset(seed=1)
        assert "http://shop/" in observation
        for action in env.solve():
            _, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (1.0, True, False)
        assert info["report"] == "Test report: passed"
        env.reset(seed=1)
        assert env.finish() == 0.0
    finally:
        env.close()
