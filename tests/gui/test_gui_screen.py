"""A screen with real pages: what is seen, done, told and left."""

import asyncio
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from clawrl_gym.core.errors import EnvError, TaskError
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.browser.pool import close_all
from clawrl_gym.envs.gui.browser.screen import BrowserScreen
from clawrl_gym.envs.gui.page.shot import shot
from clawrl_gym.envs.gui.page.tab import Tab
from clawrl_gym.envs.gui.site import Request, Response
from tests.support.gui_pages import PATIENT, QUICK, Pages, a_screen, a_task, id_of, text

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.sandbox]


@pytest.fixture(scope="module", autouse=True)
def _browsers_end() -> Iterator[None]:
    yield
    close_all()


TWO = {"/": "<title>one</title><a href=/two>two</a>", "/two": "<title>two</title><p>second"}


class Slow:
    """Never answers /slow while the test lasts."""

    def __init__(self) -> None:
        self.final_state = threading.Event()

    def handle(self, request: Request) -> Response:
        if request.path == "/slow":
            self.final_state.wait(20)
        return Response("<title>quick</title>")

    def state(self) -> None:
        return None


def test_a_form_is_posted_redirected_and_the_sites_state_is_read():
    form = (
        "<form method=post action=/do><label>Name<input name=n></label><button>Go</button></form>"
    )
    done = Response("", 303, headers={"Location": "/done"})
    with a_screen({"/": form, "/do": done, "/done": "<title>done</title>"}) as screen:
        assert screen.act(GuiAction("type", id=id_of(screen, "Name"), text="Ann")) is None
        assert screen.left_document is False
        assert screen.act(GuiAction("click", id=id_of(screen, "Go"))) is None
        assert screen.left_document is True
        assert screen.look().url == "http://site.test/done"
        final_state = screen.final_state("an answer", False, False)
    assert final_state.states["site.test"][1:] == [
        ("POST", "/do", {"n": "Ann"}),
        ("GET", "/done", {}),
    ]
    assert (final_state.answer, final_state.gave_up, final_state.tabs) == ("an answer", False, ())


def test_a_redirect_from_site_to_site_is_followed():
    """Routes that a driver fulfils cannot do this: the second request would leave unasked."""
    there = Response("", 302, headers={"Location": "http://there.test/"})
    sites = {
        "here.test": lambda: Pages({"/": there}),
        "there.test": lambda: Pages({"/": "<title>there</title>"}),
    }
    with a_screen({}, start="http://here.test/", sites=sites) as screen:
        assert screen.look().title == "there"


def test_history_goes_back_and_forward_and_not_before_the_first_page():
    with a_screen(TWO) as screen:
        assert "no page before" in str(screen.act(GuiAction("back")))
        screen.act(GuiAction("click", id=id_of(screen, "two")))
        assert screen.act(GuiAction("back")) is None
        assert (screen.look().title, screen.left_document) == ("one", True)
        assert screen.act(GuiAction("forward")) is None
        assert screen.look().title == "two"
        assert "no page after" in str(screen.act(GuiAction("forward")))
        assert screen.act(GuiAction("reload")) is None
        assert screen.look().title == "two"


def test_tabs_are_opened_switched_and_closed():
    with a_screen(TWO) as screen:
        assert screen.act(GuiAction("new_tab", text="http://site.test/two")) is None
        view = screen.look()
        assert (view.title, view.tabs, view.tab) == ("two", ("one", "two"), 2)
        assert screen.act(GuiAction("switch_tab", tab=1)) is None
        assert (screen.look().title, screen.left_document) == ("one", True)
        assert "no tab 3" in str(screen.act(GuiAction("switch_tab", tab=3)))
        assert "no tab 0" in str(screen.act(GuiAction("close_tab", tab=0)))
        assert screen.act(GuiAction("close_tab")) is None
        assert (screen.look().title, screen.look().tabs) == ("two", ())
        assert "only tab" in str(screen.act(GuiAction("close_tab")))
        for _ in range(7):
            assert screen.act(GuiAction("new_tab")) is None
        assert "8 tabs" in str(screen.act(GuiAction("new_tab")))


LISTENING = (
    "<title>two</title><div id=x>Go</div><iframe src=/in></iframe>"
    "<script>x.addEventListener('click', () => { document.title = 'heard' })</script>"
)


@pytest.mark.parametrize(
    "link",
    ["<a href=/two target=_blank>go</a>", "<button onclick=\"window.open('/two')\">go</button>"],
)
def test_what_listens_in_the_first_document_of_a_window_has_a_number(link):
    inner = "<p id=y>In</p><script>y.addEventListener('click', () => {})</script>"
    with a_screen({"/": link, "/two": LISTENING, "/in": inner}) as screen:
        screen.act(GuiAction("click", id=id_of(screen, "go")))
        assert {element.name for element in screen.look().elements} == {"Go", "In"}
        assert screen.act(GuiAction("click", id=id_of(screen, "Go"))) is None
        assert screen.look().title == "heard"


def test_a_page_that_closes_itself_leaves_the_others():
    pages = {"/": "<title>one</title><button onclick='window.open(\"/two\")'>go</button>"}
    pages["/two"] = "<title>two</title><button onclick='window.close()'>end</button>"
    with a_screen(pages) as screen:
        screen.act(GuiAction("click", id=id_of(screen, "go")))
        assert screen.look().title == "two"
        screen.act(GuiAction("click", id=id_of(screen, "end")))
        assert (screen.look().title, screen.look().tabs) == ("one", ())


def test_a_window_that_the_driver_tells_of_late_is_waited_for():
    pages = {"/": "<title>one</title><button onclick='window.open(\"/two\")'>go</button>"}
    pages["/two"] = "<title>two</title>"
    with a_screen(pages) as screen:
        tabs, context = screen._episode._tabs, screen._episode._context
        assert context is not None

        async def tell_late() -> None:
            appeared = tabs._appeared
            loop = asyncio.get_running_loop()
            context.remove_listener("page", appeared)

            def later(page: "Page") -> None:
                loop.call_later(0.5, appeared, page)

            context.on("page", later)

        screen._owner.run(tell_late(), 10.0)
        screen.act(GuiAction("click", id=id_of(screen, "go")))
        assert screen.look().title == "two"


class SlowToDraw:
    """A tab whose browser refuses pictures at first."""

    def __init__(self, *refusals: str) -> None:
        self.refusals = list(refusals)

    async def send(self, method: str, params: object, timeout_s: float) -> dict[str, str]:
        if self.refusals:
            raise EnvError(f"the browser refused: {self.refusals.pop(0)}")
        return {"data": "cGljdHVyZQ=="}


async def test_a_picture_that_is_not_drawn_yet_is_asked_for_again():
    refused = "Protocol error (Page.captureScreenshot): Unable to capture screenshot"
    assert await shot(cast(Tab, SlowToDraw(refused, refused))) == b"picture"
    with pytest.raises(EnvError, match="Unable to capture"):
        await shot(cast(Tab, SlowToDraw(*[refused] * 9)), timeout_s=0.3)
    with pytest.raises(EnvError, match="another reason"):
        await shot(cast(Tab, SlowToDraw("another reason")))


def test_a_page_that_never_loads_is_told_and_the_episode_goes_on():
    slow = Slow()
    sites = {"slow.test": lambda: slow}
    try:
        with a_screen({}, QUICK, start="http://slow.test/", sites=sites) as screen:
            failed = screen.act(GuiAction("goto", text="http://slow.test/slow"))
            assert "did not finish loading within 2 s" in str(failed)
            assert screen.look().title == "quick"
            slow.final_state.set()  # sites answer one request at a time
            screen.act(GuiAction("goto", text="http://slow.test/"))
            assert screen.look().url == "http://slow.test/"
    finally:
        slow.final_state.set()


def test_an_episode_does_not_begin_where_the_first_page_does_not_load():
    slow = Slow()
    task = a_task({}, start="http://slow.test/slow", sites={"slow.test": lambda: slow})
    try:
        with pytest.raises(EnvError, match="does not load"):
            BrowserScreen.open(task, QUICK)
    finally:
        slow.final_state.set()


@pytest.mark.parametrize("start", ["http://other.test/", "file:///etc/passwd", "nothing"])
def test_a_task_that_begins_outside_of_its_sites_is_wrong(start):
    with pytest.raises(TaskError, match="does not load"):
        BrowserScreen.open(a_task({}, start=start), PATIENT)


def test_scripts_of_a_task_run_among_the_pages_own():
    page = "<script>var score = null, instruction = 'find it'</script>"
    page += "<button onclick='score = 0.5'>go</button>"
    scripts: dict[str, Any] = {
        "start_script": "Promise.resolve(instruction)",
        "result_script": "score",
    }
    with a_screen(page, **scripts) as screen:
        assert screen.page_instruction == "find it"
        assert screen.page_result() is None
        screen.act(GuiAction("click", id=id_of(screen, "go")))
        assert screen.page_result() == 0.5
        screen.act(GuiAction("reload"))
        assert screen.final_state(None, True, False).page_result == 0.5


def test_a_start_script_that_fails_is_the_tasks_fault():
    with pytest.raises(TaskError, match="is not defined"):
        BrowserScreen.open(a_task({"/": "x"}, start_script="nothing.there"), PATIENT)


def test_all_tabs_are_read_for_graders_that_ask():
    more: dict[str, Any] = {
        "tabs": ("http://site.test/two",),
        "facts_script": "document.title.length",
    }
    with a_screen(TWO, **more) as screen:
        assert screen.look().title == "two"
        final_state = screen.final_state(None, False, True)
    assert [(tab.title, tab.facts) for tab in final_state.tabs] == [("one", 3), ("two", 3)]
    assert final_state.active == 1
    assert "second" in final_state.tabs[1].html


def test_random_numbers_follow_from_the_seed_and_the_clock_from_nothing():
    page = "<script>document.title = Math.random() + ' ' + new Date().toISOString()</script>"
    documents_left = []
    for seed in (1, 1, 2):
        with a_screen(page, seed=seed) as screen:
            documents_left.append(screen.look().title.split())
    assert documents_left[0][0] == documents_left[1][0] != documents_left[2][0]
    assert {day[:14] for _, day in documents_left} == {"2025-01-06T09:"}


def test_the_moved_clock_is_a_whole_date():
    body = (
        "const d = new Date(2020, 1, 2), s = Date();"
        "document.title = [d.getFullYear(), d instanceof Date, Date.UTC(2020), typeof s,"
        "new (class extends Date {})() instanceof Date, Date.length, new Date(5).getTime()]"
    )
    with a_screen(f"<script>{body}</script>") as screen:
        assert screen.look().title == "2020,true,1577836800000,string,true,7,5"


def test_a_picture_has_the_viewports_size_and_the_tasks_scale():
    from io import BytesIO

    from PIL import Image

    with a_screen("<p>x", PATIENT.model_copy(update={"width": 320, "height": 200})) as screen:
        assert screen.viewport == (320, 200)
        with Image.open(BytesIO(screen.shot())) as picture:
            assert (picture.format, picture.size) == ("JPEG", (320, 200))
    with a_screen("<p>x", viewport=(160, 210), scale=2.0) as screen:
        assert screen.viewport == (160, 210)


def test_a_closed_screen_says_so():
    with a_screen("x") as screen:
        pass
    screen.close()
    with pytest.raises(EnvError, match="closed"):
        screen.look()


def test_a_site_that_cannot_be_made_fails_the_episode_alone():
    def broken() -> Pages:
        raise TaskError("no such shop")

    with pytest.raises(TaskError, match="no such shop"):
        BrowserScreen.open(a_task({}, sites={"site.test": broken}), PATIENT)


def test_many_threads_open_screens_at_once():
    failures: list[BaseException] = []
    titles: list[str] = []

    def visit(number: int) -> None:
        try:
            with a_screen(f"<title>{number}</title>", PATIENT) as screen:
                titles.append(screen.look().title)
        except BaseException as error:  # noqa: BLE001 (told below)
            failures.append(error)

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(titles, key=int) == [str(number) for number in range(24)]


def test_pages_have_no_permission():
    body = (
        "navigator.permissions.query({name: 'geolocation'})"
        ".then(p => { document.body.textContent = p.state })"
    )
    with a_screen(f"<body><script>{body}</script>") as screen:
        screen.act(GuiAction("wait", seconds=0.1))
        assert text(screen.look()) == "denied"
