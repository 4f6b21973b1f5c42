from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.observation import View
from clawrl_gym.envs.gui.task import FinalState, GuiTask, Step
from clawrl_gym.envs.gui.watch.command import add_arguments, watch
from clawrl_gym.envs.gui.watch.player import Player, similar
from clawrl_gym.envs.gui.watch.server import WatchServer
from clawrl_gym.envs.gui.watch.terminal import play
from tests.support.gui_pictures import VIEW, page_jpeg

EVIL = "<img src=x onerror=alert(1)>"


class Nothing:
    """A grader that is never asked."""

    needs_pages = False

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        raise AssertionError


TASK = GuiTask(
    "shop-train-1", "shop", "train", f"Find pens {EVIL}", "http://shop/", Nothing(),
    solution=((Step("done"),),),
)  # fmt: skip


class FakeGui:
    """Two replies and it is over; `done()` solves it, "die" kills the browser."""

    def __init__(self) -> None:
        self.filming = False
        self.report = ""
        self.task = TASK
        self.view = VIEW
        self.said: list[str] = []
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if options["task"] != TASK.id:
            raise TaskError(f"got task {options['task']!r}, expected a known one")
        self.said, self.report = [], ""
        return f"{TASK.instruction}\n\nShop (http://shop/)", {}

    def step(self, action: str) -> Any:
        if action == "die":
            raise EnvError("the browser died")
        self.said.append(action)
        over = action == "done()" or len(self.said) == 2
        if over:
            self.report = "Test report: passed"
        return "(done)" if over else "Error: x\nShop", float(action == "done()"), over, False, {}

    def shot(self) -> bytes:
        return page_jpeg()

    def oracle(self, turn: int) -> str:
        if turn:
            raise TaskError(f"got turn {turn}, expected 0 to 0")
        return "done()"

    def film(self) -> bytes | None:
        return page_jpeg() if self.filming else None

    def task_ids(self, split: Split) -> Sequence[str]:
        return [f"{kind}-{split}-{number}" for number in range(3) for kind in ("mail", "shop")]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def gui() -> FakeGui:
    return FakeGui()


@pytest.fixture
async def page(gui: FakeGui) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """The address of the page, and a client."""
    server = WatchServer(Player(gui, TASK.id))
    url = await server.start()
    async with aiohttp.ClientSession() as http:
        yield url, http
    await server.stop()
    assert gui.closed >= 1


async def asked(page: tuple[str, aiohttp.ClientSession], body: Any, **headers: str) -> Any:
    url, http = page
    async with http.post(url + "act", json=body, headers=headers) as answer:
        return await answer.json() if answer.status == 200 else answer.status


async def test_the_page_shows_what_is_there(page: tuple[str, aiohttp.ClientSession]) -> None:
    url, http = page
    async with http.get(url + "state") as answer:
        state = await answer.json()
    assert state["task"] == TASK.id
    assert state["view"]["lines"][1][1]["name"] == "Find"
    assert (state["over"], state["turns"], state["has_oracle"]) == (False, [], True)
    for name, kind in (
        ("", "text/html"), ("watch.js", "text/javascript"), ("watch.css", "text/css"),
        ("page.jpg", "image/jpeg"), ("film.jpg", "image/jpeg"),
    ):  # fmt: skip
        async with http.get(url + name) as answer:
            assert (answer.status, answer.content_type) == (200, kind)
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Cache-Control"] == "no-store"


async def test_replies_reach_the_environment_until_the_end(
    page: tuple[str, aiohttp.ClientSession], gui: FakeGui
) -> None:
    state = await asked(page, {"do": "reply", "text": "click(2)"})
    assert (gui.said, state["over"], state["picture"]) == (["click(2)"], False, 2)
    assert state["turns"] == [{"text": "click(2)", "observation": "Error: x\nShop"}]
    state = await asked(page, {"do": "reply", "text": "done()"})
    assert (state["over"], state["reward"], state["report"]) == (True, 1.0, "Test report: passed")
    await asked(page, {"do": "reply", "text": "click(1)"})
    assert gui.said == ["click(2)", "done()"]
    state = await asked(page, {"do": "again"})
    assert (state["over"], state["turns"], state["reward"]) == (False, [], None)


async def test_the_oracle_plays_and_says_when_it_cannot(
    page: tuple[str, aiohttp.ClientSession], gui: FakeGui
) -> None:
    await asked(page, {"do": "reply", "text": "click(2)"})
    assert "expected 0 to 0" in (await asked(page, {"do": "oracle"}))["said"]
    await asked(page, {"do": "again"})
    assert (await asked(page, {"do": "oracle"}))["reward"] == 1.0


async def test_a_browser_that_dies_is_said_and_a_new_beginning_helps(
    page: tuple[str, aiohttp.ClientSession],
) -> None:
    state = await asked(page, {"do": "reply", "text": "die"})
    assert (state["error"], state["reward"], state["over"]) == ("the browser died", None, True)
    assert (await asked(page, {"do": "again"}))["over"] is False


@pytest.mark.parametrize(
    "body", [[], "x", {}, {"do": "rm"}, {"do": "reply"}, {"do": "reply", "text": 7},
             {"do": "reply", "text": "x" * 30_000}],
)  # fmt: skip
async def test_what_is_no_request_of_the_page_is_refused(
    page: tuple[str, aiohttp.ClientSession], gui: FakeGui, body: Any
) -> None:
    assert await asked(page, body) == 400
    assert gui.said == []


async def test_without_the_token_nothing_is_served(
    page: tuple[str, aiohttp.ClientSession], gui: FakeGui
) -> None:
    url, http = page
    base, token = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/([\w-]{32})/", url).groups()  # type: ignore[union-attr]
    for path in (
        "/",
        "/state",
        "/x/state",
        f"/{token[:-1]}/state",
        f"/{token}x/",
        "//state",
        "/ü/",
    ):
        async with http.get(base + path) as answer:
            assert answer.status == 403
    async with http.post(f"{base}/act", json={"do": "reply", "text": "done()"}) as answer:
        assert answer.status == 403
    assert gui.said == []


@pytest.mark.parametrize("host", ["evil.test", "evil.test:80", "127.0.0.1", "localhost.evil:1", ""])
async def test_a_host_that_is_not_this_server_is_refused(
    page: tuple[str, aiohttp.ClientSession], host: str
) -> None:
    url, http = page
    async with http.get(url, headers={"Host": host}) as answer:
        assert answer.status == 403


async def test_localhost_is_this_server(page: tuple[str, aiohttp.ClientSession]) -> None:
    url, http = page
    port = url.split(":")[2].split("/")[0]
    async with http.get(url, headers={"Host": f"localhost:{port}"}) as answer:
        assert answer.status == 200


async def test_another_site_cannot_act_even_with_the_token(
    page: tuple[str, aiohttp.ClientSession], gui: FakeGui
) -> None:
    url, http = page
    body = {"do": "reply", "text": "done()"}
    assert await asked(page, body, Origin="http://evil.test") == 403
    assert await asked(page, body, Origin="null") == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        sent = {"Content-Type": kind}
        async with http.post(url + "act", data='{"do": "oracle"}', headers=sent) as answer:
            assert answer.status == 415
    async with http.get(url + "act") as answer:
        assert answer.status == 404
    assert gui.said == []
    origin = url.rsplit("/", 2)[0]
    assert (await asked(page, body, Origin=origin))["reward"] == 1.0


@pytest.mark.parametrize("name", ["watch.html", "server.py", "..%2Fserver.py", "%2Fetc%2Fpasswd"])
async def test_only_the_page_s_own_files_are_served(
    page: tuple[str, aiohttp.ClientSession], name: str
) -> None:
    from yarl import URL

    url, http = page
    async with http.get(URL(url + name, encoded=True)) as answer:
        assert answer.status == 404


def test_the_page_never_takes_text_for_markup() -> None:
    source = Path(sys.modules[WatchServer.__module__].__file__ or "").parent / "page" / "watch.js"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(",
                         source.read_text())  # fmt: skip


async def test_a_taken_port_is_a_clear_error(gui: FakeGui) -> None:
    first, second = WatchServer(Player(gui, TASK.id)), WatchServer(Player(FakeGui(), TASK.id))
    port = int((await first.start()).split(":")[2].split("/")[0])
    with pytest.raises(ConfigError, match=f"port {port} cannot be used"):
        await second.start(port)
    await second.stop()
    await first.stop()


def test_an_unknown_task_names_those_like_it(gui: FakeGui) -> None:
    with pytest.raises(TaskError, match=r"'shop-trian-1', expected .*similar ids: shop-train-1"):
        Player(gui, "shop-trian-1").begin()
    assert similar("mail", gui)[0] == "mail-train-0"
    assert similar("zzzzzz", gui) == []


def test_the_terminal_plays_what_is_typed(gui: FakeGui, tmp_path: Path) -> None:
    out = io.StringIO()
    lines = io.StringIO("help\nclick(2)\ndone()\nclick(1)\nagain\noracle\nquit\n")
    assert play(Player(gui, TASK.id), tmp_path / "new", lines, out, by_oracle=False) == 0
    said = out.getvalue()
    assert f"screenshot: {tmp_path}/new/001.jpg" in said
    assert said.count("reward 1\nTest report: passed") == 2
    assert "the episode is over: again, or quit" in said
    assert (tmp_path / "new" / "002.jpg").read_bytes().startswith(b"\xff\xd8")
    assert (tmp_path / "new" / "film.jpg").exists()


def test_the_terminal_ends_with_its_input_and_says_what_failed(
    gui: FakeGui, tmp_path: Path
) -> None:
    out = io.StringIO()
    assert play(Player(gui, TASK.id), tmp_path, io.StringIO("die\n"), out, by_oracle=False) == 0
    assert "error: the browser died" in out.getvalue()


def test_the_oracle_in_the_terminal_tells_by_its_exit_code(gui: FakeGui, tmp_path: Path) -> None:
    nothing = io.StringIO()
    assert play(Player(gui, TASK.id), tmp_path, nothing, io.StringIO(), by_oracle=True) == 0
    gui.oracle = lambda turn: "click(1)"  # type: ignore[method-assign]
    assert play(Player(gui, TASK.id), tmp_path, nothing, io.StringIO(), by_oracle=True) == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["x", "--port", "70000"], "got --port 70000"),
        (["x", "--tasks", "/no/such/file"], "there is no '/no/such/file'"),
        (["nothing-like-it", "--terminal"], "got task 'nothing-like-it'"),
        (["shop_order", "--terminal"], "similar ids: gui-shop_order-train-000000"),
    ],
)
def test_a_wrong_command_is_one_clear_line(
    given: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert watch(parser.parse_args(given)) == 1
    told = capsys.readouterr().err
    assert why in told
    assert re.fullmatch(r"error: [^\n]+\n", told)


@pytest.mark.browser
@pytest.mark.sandbox
def test_the_oracle_solves_a_task_in_the_real_browser_and_leaves_a_film(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    asked = ["gui-shop_order-heldout-000000", "--terminal", "--oracle", "--folder", str(tmp_path)]
    assert watch(parser.parse_args(asked)) == 0
    assert "reward 1\n" in capsys.readouterr().out
    with Image.open(tmp_path / "film.jpg") as film:
        assert film.size[0] == 1520


def test_an_empty_page_is_shown_too(gui: FakeGui) -> None:
    gui.view = View("about:blank", "", ())
    player = Player(gui, TASK.id)
    player.begin()
    assert player.picture is not None
