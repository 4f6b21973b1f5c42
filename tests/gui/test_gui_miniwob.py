"""MiniWoB++'s pages as tasks: seeded, solved by oracles, and not to be won otherwise."""

from collections.abc import Iterator

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.folder_site import FolderSite
from clawrl_gym.envs.gui.miniwob.pages import (
    FIRST_HELDOUT_SEED,
    LEFT_OUT,
    VIEWPORT,
    PageGrader,
    html_folder,
    make_task,
    open_miniwob,
    pages,
)
from clawrl_gym.envs.gui.miniwob.solutions import SOLUTIONS
from clawrl_gym.envs.gui.site import Request
from clawrl_gym.envs.gui.task import FinalState
from clawrl_gym.envs.task_ids import NUMBERS


def final_state(page_result: object, gave_up: bool = False) -> FinalState:
    return FinalState({}, None, gave_up, page_result=page_result)


def test_every_page_is_a_family_or_left_out_for_a_reason() -> None:
    shipped = {page.stem for page in (html_folder() / "miniwob").glob("*.html")}
    assert set(pages()) == shipped - set(LEFT_OUT)
    assert set(LEFT_OUT) < shipped
    assert len(pages()) == 125


def test_the_seed_is_part_of_the_id_and_no_seed_is_in_both_splits() -> None:
    assert make_task("miniwob-click-button-train-000123").seed == 123
    assert make_task("miniwob-click-button-heldout-000123").seed == FIRST_HELDOUT_SEED + 123
    assert NUMBERS["train"] <= FIRST_HELDOUT_SEED
    ids = open_miniwob(["click-link", "click-button"]).ids("train")
    assert list(ids[:3]) == [
        "miniwob-click-button-train-000000",
        "miniwob-click-link-train-000000",
        "miniwob-click-button-train-000001",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        "miniwob-click-button-train-1",
        "miniwob-click-button-train-100000",
        "miniwob-click-button-heldout-001000",
        "miniwob-click-button-test-000001",
        "miniwob-chase-circle-train-000001",
        "miniwob-../core/core-train-000001",
        "miniwob-click-button-train-\uff10\uff10\uff10\uff10\uff10\uff10",
        "click-button-train-000001",
        "miniwob-",
        "",
        None,
    ],
)
def test_what_is_no_id_is_refused_in_words(wrong: str) -> None:
    with pytest.raises(TaskError, match="expected"):
        make_task(wrong)


def test_an_unknown_page_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigError, match="click-button"):
        open_miniwob(["click-buttons"])
    with pytest.raises(ConfigError):
        open_miniwob(["chase-circle"])


def test_only_a_page_that_says_it_was_won_earns() -> None:
    grader = PageGrader()
    assert grader.grade(final_state({"won": True})) == (1.0, ())
    for said in (
        None, {"won": False, "reason": "wrong"}, {"left": True}, {"won": "yes"}, "won", 1, True,
    ):  # fmt: skip
        reward, missing = grader.grade(final_state(said))
        assert reward == 0.0
        assert missing


def test_nothing_of_the_site_lies_outside_of_the_package() -> None:
    site = FolderSite(html_folder())
    assert site.handle(Request("GET", "/core/core.js")).status == 200
    assert site.handle(Request("GET", "/../registration.py")).status == 404


def test_an_oracle_refuses_an_instruction_that_it_does_not_know() -> None:
    for family, solution in SOLUTIONS.items():
        assert family in pages()
        if family not in ("click-dialog", "click-test", "focus-text"):
            with pytest.raises(TaskError, match="got the instruction 'Dance'"):
                solution("Dance")


@pytest.fixture(scope="module")
def env() -> Iterator[GuiEnv]:
    one = GuiEnv(tasks="miniwob")
    yield one
    one.close()


def played(env: GuiEnv, *replies: str) -> tuple[float, str]:
    """Reward and report after these replies."""
    reward, terminated = 0.0, False
    for reply in replies:
        assert not terminated
        _, reward, terminated, truncated, _ = env.step(reply)
        assert not truncated
    return (reward, env.report) if terminated else (env.finish(), env.report)


@pytest.mark.browser
@pytest.mark.parametrize("family", SOLUTIONS)
def test_the_oracle_wins_and_doing_nothing_does_not(
    env: GuiEnv, family: str, tasks_a_family: int
) -> None:
    for split in ("train", "heldout")[:tasks_a_family]:
        env.reset(options={"task": f"miniwob-{family}-{split}-000007"})
        assert played(env, *env.solve())[0] == 1.0, env.report
    env.reset(options={"task": f"miniwob-{family}-heldout-000007"})
    assert played(env, "done()")[0] == 0.0


@pytest.mark.browser
def test_an_id_is_one_problem(env: GuiEnv) -> None:
    """Its seed decides what is asked for, where it lies and what else is there."""
    name = "miniwob-click-checkboxes-large-train-00000"
    first, again, different = (
        env.reset(options={"task": f"{name}{number}"})[0] for number in (1, 1, 2)
    )
    assert first == again
    assert first != different


@pytest.mark.browser
def test_a_wrong_click_ends_the_task_with_nothing(env: GuiEnv) -> None:
    env.reset(options={"task": "miniwob-click-test-2-train-000001"})
    wrong = next(one for one in env.view.elements if one.name == "TWO")
    reward, report = played(env, f"click({wrong.id})")
    assert reward == 0.0
    assert "done wrong" in report


@pytest.mark.browser
def test_a_lost_problem_is_not_followed_by_another_in_the_same_reply(env: GuiEnv) -> None:
    """The pages offer a new problem on a START cover when one is done: it is not there."""
    env.reset(options={"task": "miniwob-click-test-2-train-000001"})
    one, two = (
        next(found.id for found in env.view.elements if found.name == name)
        for name in ("ONE", "TWO")
    )
    reply = "\n".join([f"click({two})", "click(x=80, y=100)", f"click({one})"])
    assert played(env, reply)[0] == 0.0


@pytest.mark.browser
@pytest.mark.parametrize(
    "away",
    [
        "reload()",
        'goto("http://miniwob.test/miniwob/click-test.html")',
        'goto("http://miniwob.test/miniwob/click-button.html#")',
    ],
)
def test_leaving_the_page_for_an_easier_one_earns_nothing(env: GuiEnv, away: str) -> None:
    env.reset(options={"task": "miniwob-click-button-train-000003"})
    _, reward, terminated, _, _ = env.step(away)
    if not terminated:  # only a fragment: the same document
        assert played(env, *env.solve())[0] == 1.0
    else:
        assert reward == 0.0
        assert "left" in env.report


@pytest.mark.browser
@pytest.mark.parametrize(
    "script", ["javascript:core.endEpisode(1)", "JavaScript:void(core.endEpisode(1))"]
)
def test_script_in_a_url_is_refused(env: GuiEnv, script: str) -> None:
    """`core.endEpisode(1)` from any script would win."""
    env.reset(options={"task": "miniwob-click-button-train-000003"})
    for verb in ("goto", "new_tab"):
        observation, reward, terminated, _, _ = env.step(f'{verb}("{script}")')
        assert observation.startswith("Error: ")
        assert (reward, terminated) == (0.0, False)


@pytest.mark.browser
def test_a_solved_page_in_another_tab_earns_nothing(env: GuiEnv) -> None:
    env.reset(options={"task": "miniwob-click-button-train-000003"})
    env.step('new_tab("http://miniwob.test/miniwob/click-test.html")')
    _, reward, terminated, _, _ = env.step("click(x=80, y=100)")
    assert (reward, terminated) == (0.0, False)
    env.step("close_tab(1)")
    assert played(env, "done()")[0] == 0.0


@pytest.mark.browser
def test_pages_of_every_kind_begin(env: GuiEnv) -> None:
    """SVG, canvas, jQuery UI, frames of text: each poses its problem in words."""
    for family in ("count-shape", "click-pie", "terminal", "text-editor", "email-inbox-nl-turk"):
        first, _ = env.reset(options={"task": f"miniwob-{family}-heldout-000000"})
        instruction = first.splitlines()[0]
        assert len(instruction) > 10, first
        assert "undefined" not in instruction


def test_the_viewport_shows_the_whole_problem() -> None:
    task = make_task("miniwob-click-button-train-000000")
    assert task.viewport == VIEWPORT
    assert task.scale == 2.0
