"""The recipe's pages on paper: the same as in the real browser, and what is shown of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest

from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.showcase.gui.generated import make_task
from clawrl_gym.inference.models.shipped import shipped_dir
from tests.support.narrow import plain_text
from tools.tiny_policy import page_slips
from tools.tiny_policy.page_drills import PageDrills
from tools.tiny_policy.page_tasks import PageDemonstrations, easy_families
from tools.tiny_policy.phases import page_phases
from tools.tiny_policy.static_page import StaticPage
from tools.tiny_policy.static_screen import StaticScreen

EASY = easy_families()


@pytest.fixture(scope="module")
def browser() -> Iterator[GuiEnv]:
    env = GuiEnv()
    yield env
    env.close()


@pytest.mark.browser
@pytest.mark.parametrize("family", EASY)
def test_paper_shows_what_the_browser_shows_all_along_the_oracle(
    family: str, browser: GuiEnv, tasks_a_family: int
) -> None:
    paper = GuiEnv(open_screen=StaticScreen.open)
    for number in (1, 0)[:tasks_a_family]:
        options = {"task": f"gui-{family}-train-{number:06d}"}
        assert paper.reset(options=options)[0] == browser.reset(options=options)[0]
        for written in browser.solve():
            on_paper, in_browser = paper.step(written), browser.step(written)
            assert on_paper[:4] == in_browser[:4]
        assert in_browser[1] == 1.0


@pytest.mark.parametrize("family", EASY)
def test_the_oracle_solves_easy_tasks_on_paper(family: str) -> None:
    env = GuiEnv(open_screen=StaticScreen.open)
    for split, number in (("train", 7), ("heldout", 3)):
        env.reset(options={"task": f"gui-{family}-{split}-{number:06d}", "split": split})
        assert [env.step(written)[1] for written in env.solve()][-1] == 1.0


def test_easy_pages_fit_what_the_tiny_policy_reads() -> None:
    shown = itertools.islice(PageDemonstrations(careless=False).conversations(3), 300)
    long = {
        conversation.family: len(message["content"] or "")
        for conversation in shown
        for message in conversation.messages[1:]
        if len(message["content"] or "") > 500
    }
    assert not long


def test_the_same_seed_shows_the_same_pages_and_drills() -> None:
    for source in (PageDemonstrations(), PageDrills()):
        first, again = (list(itertools.islice(source.conversations(5), 20)) for _ in range(2))
        assert first == again
        assert first != list(itertools.islice(source.conversations(6), 20))


def test_a_drill_names_an_element_of_its_page() -> None:
    for drill in itertools.islice(PageDrills().conversations(1), 100):
        page, reply = (plain_text(message) for message in drill.messages[-2:])
        if reply.startswith("click"):
            assert f"[{reply[6:-1]}]" in page
        elif reply.startswith("answer"):
            assert page.count(reply[8:-2]) >= 1


def test_a_slip_never_solves_its_task() -> None:
    assert set(page_slips.SLIPS) <= set(EASY)
    for family in page_slips.SLIPS:
        task = make_task(f"gui-{family}-train-000011")
        env = GuiEnv(open_screen=StaticScreen.open)
        assert _reward(env, task, slipped=True) == 0.0
        assert _reward(env, task, slipped=False) == 1.0


def _reward(env: GuiEnv, task: object, *, slipped: bool) -> float:
    from clawrl_gym.envs.gui.task import GuiTask
    from tools.tiny_policy.page_tasks import written_turn

    assert isinstance(task, GuiTask)
    env.reset(options={"task": task.id})
    total = 0.0
    for turn in page_slips.demonstrated_turns(task, 0.0 if slipped else 1.0):
        _, reward, terminated, truncated, _ = env.step(written_turn(env.view.lines, task, turn))
        total += float(reward)
        if terminated or truncated:
            break
    return total


def test_the_shipped_policy_starts_imperfect_and_capable_on_pages() -> None:
    facts = json.loads((shipped_dir() / "recipe.json").read_text())
    greedy, sampled = facts["heldout_pages_greedy"], facts["heldout_pages_temperature_1"]
    assert 0.5 <= greedy["all"] <= 0.8
    slipping = [f"page-{family}" for family in page_slips.SLIPS]
    assert sum(greedy[name] for name in slipping) / len(slipping) <= 0.5
    assert sum(sampled[name] for name in slipping) / len(slipping) >= 0.1
    assert facts["phases"].keys() >= {phase.name for phase in page_phases()}


def test_unclosed_and_unknown_tags_do_not_break_a_page() -> None:
    paper = StaticPage("<p>one<section>two</p></b><unknown>three<br>four")
    shown = [part for line in paper.lines() for part in line]
    assert shown == ["one", "two", "three", "four"]
