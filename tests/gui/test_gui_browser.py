"""The parts under a screen: the loop's thread, what a page may reach, the proxy, the browsers."""

import asyncio
import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator

import pytest

from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.envs.gui.browser import chromium, pool
from clawrl_gym.envs.gui.browser import network as network_module
from clawrl_gym.envs.gui.browser.loop_thread import LoopThread
from clawrl_gym.envs.gui.browser.network import Allowed, Network, addresses
from clawrl_gym.envs.gui.browser.proxy import Proxy
from clawrl_gym.envs.gui.browser.screen import BrowserScreen
from clawrl_gym.envs.gui.config import BrowserConfig
from clawrl_gym.envs.gui.site import Request, Response
from tests.support.gui_pages import Pages, a_screen, a_task, with_browser
from tests.support.waiting import PATIENCE_S, becomes_true

# -- the loop -----------------------------------------------------------------------------------


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop_thread = LoopThread()
    yield loop_thread
    loop_thread.close()


def test_a_coroutine_runs_on_the_loops_own_thread(loop):
    async def where() -> int:
        return threading.get_ident()

    assert loop.run(where(), 5) == loop.run(where(), 5) != threading.get_ident()


def test_what_takes_too_long_is_cancelled_and_told(loop):
    cancelled = threading.Event()

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(EnvError, match=r"did not answer within 0\.05 s"):
        loop.run(for_ever(), 0.05)
    assert cancelled.wait(5)


def test_a_timeout_inside_is_not_taken_for_ones_own(loop):
    async def own() -> None:
        raise TimeoutError("of the work itself")

    with pytest.raises(TimeoutError, match="of the work itself"):
        loop.run(own(), 5)


def test_a_blocking_call_from_the_loop_itself_is_refused(loop):
    async def inner() -> None:
        pass

    async def outer() -> None:
        loop.run(inner(), 1)

    with pytest.raises(EnvError, match="own thread"):
        loop.run(outer(), 5)


def test_a_closed_loop_says_so(loop):
    async def nothing() -> None:
        pass

    loop.close()
    loop.close()
    with pytest.raises(EnvError, match="has ended"):
        loop.run(nothing(), 1)


def test_who_waits_when_the_loop_ends_is_told(loop):
    """A bare CancelledError came out, which no environment takes for a failure of its own."""
    begun, refusals = threading.Event(), []

    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        with pytest.raises(EnvError, match="ended meanwhile") as raised:
            loop.run(for_ever(), 60)
        refusals.append(raised.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(10)
    closing = [threading.Thread(target=loop.close) for _ in range(4)]
    for thread in closing:
        thread.start()
    for thread in [*closing, waiting]:
        thread.join(20)
    assert len(refusals) == 1


class SlowStart(pool.BrowserPool):
    """A set whose browser takes its time, and does not start in the end."""

    def __init__(self, started: asyncio.Event) -> None:
        self.started = started
        self.closed = False
        self.ended = asyncio.Event()

    @property
    def live(self) -> int:
        return 0

    async def acquire(self):
        await self.started.wait()
        raise EnvError("it did not start")

    async def close(self) -> None:
        self.closed = True
        self.ended.set()


def test_a_browser_that_starts_is_not_ended_as_idle():
    owner = pool.ProcessBrowsers(linger_s=0.01)
    options = BrowserConfig()

    async def scene() -> tuple[bool, bool]:
        slow = owner._pools[options] = SlowStart(asyncio.Event())
        taking = asyncio.ensure_future(owner.acquire(options))
        await asyncio.sleep(0)
        await owner._close_idle()
        while_starting = slow.closed
        slow.started.set()
        with pytest.raises(EnvError, match="did not start"):
            await taking
        await asyncio.wait_for(slow.ended.wait(), PATIENCE_S)  # what failed is not left behind
        return while_starting, slow.closed

    try:
        assert owner.run(scene(), 20) == (False, True)
    finally:
        owner.close()


# -- what is allowed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "host", "port", "admitted"),
    [
        ("a.test", "a.test", 80, True),
        ("a.test", "a.test", 443, True),
        ("A.test", "a.test", 443, True),
        ("a.test", "a.test", 22, False),
        ("a.test", "b.a.test", 80, False),
        ("a.test", "xa.test", 80, False),
        ("a.test:8080", "a.test", 8080, True),
        ("a.test:8080", "a.test", 80, False),
        ("*.a.test", "b.a.test", 443, True),
        ("*.a.test", "c.b.a.test", 80, True),
        ("*.a.test", "a.test", 80, False),
        ("*.a.test", "xa.test", 80, False),
        ("[::1]:9", "::1", 9, True),
    ],
)
def test_an_entry_admits_its_host_and_ports(entry, host, port, admitted):
    assert Allowed.read(entry).admits(host, port) is admitted


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "http://a.test", "a.test/x", "a.*.test", "a.test:x", "u@a.test", "a:0x"],
)
def test_an_entry_that_is_none_is_refused(entry):
    with pytest.raises(ConfigError, match="expected 'host'"):
        Allowed.read(entry)


async def test_a_name_below_an_allowed_one_may_not_lead_into_the_own_net():
    with pytest.raises(EnvError, match="no public address"):
        await addresses("localhost", 80, Allowed("host", None, below=True))
    assert await addresses("127.0.0.1", 80, Allowed("127.0.0.1"))


# -- sites and the proxy ------------------------------------------------------------------------


async def requests(network: Network, raw: bytes) -> bytes:
    """What the proxy answers, until it hangs up or 1 s has passed without a word."""
    proxy = Proxy(None)
    address = await proxy.admit(network)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
    writer.write(raw)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        proxy.dismiss(address)
        proxy.close()
        await asyncio.sleep(0.01)  # what was hung up on is closed in the next rounds of the loop


def get(url: str, more: str = "") -> bytes:
    return f"GET {url} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


async def test_a_site_gets_path_query_form_and_headers():
    site = Pages({"/a b": "answer"})
    body = b"x=1&y=%26&x=2"
    raw = (
        b"POST http://Site.test/a%20b?q=%C3%A4 HTTP/1.1\r\nX-One: 1\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 13\r\n\r\n" + body
    )
    answer = await requests(Network({"site.test": site}, ()), raw)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nanswer")
    request: Request = site.requests[0]
    assert (request.method, request.path, request.query) == ("POST", "/a b", {"q": "ä"})
    assert (request.form, request.headers["x-one"], request.body) == (
        {"x": "2", "y": "&"},
        "1",
        body,
    )


async def test_several_requests_go_over_one_connection():
    site = Pages({"/1": "one", "/2": "two"})
    raw = get("http://site.test/1") + get("http://site.test/2")
    answer = await requests(Network({"site.test": site}, ()), raw)
    assert [one.path for one in site.requests] == ["/1", "/2"]
    assert answer.count(b"HTTP/1.1 200 OK") == 2


class Failing:
    def handle(self, request: Request) -> Response:
        if request.path == "/split":
            return Response(headers={"X": "a\r\nSet-Cookie: b=c"})
        raise RuntimeError("secret of the site")

    def state(self) -> None:
        return None


@pytest.mark.parametrize("path", ["/", "/split"])
async def test_a_site_that_fails_answers_500_without_its_reasons(path):
    answer = await requests(Network({"site.test": Failing()}, ()), get(f"http://site.test{path}"))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in answer
    assert b"Set-Cookie" not in answer


class Hanging:
    """Does not answer before it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.calls = 0

    def handle(self, request: Request) -> Response:
        self.calls += 1
        self.let_go.wait(60)
        return Response("late")

    def state(self) -> None:
        return None


async def test_sites_that_hang_hold_up_no_other_episode():
    """On the loop's own few threads, as many as it has would have ended every site."""
    hanging = [Hanging() for _ in range(40)]
    waits = [
        asyncio.create_task(Network({"a.test": site}, ()).answer("a.test", "GET", "/", {}, b""))
        for site in hanging
    ]
    try:
        await asyncio.sleep(0)
        response = await Network({"b.test": Pages({"/": "quick"})}, ()).answer(
            "b.test", "GET", "/", {}, b""
        )
        assert response.body == "quick"
        assert not any(one.done() for one in waits)
    finally:
        for site in hanging:
            site.let_go.set()
    assert {one.body for one in await asyncio.gather(*waits)} == {"late"}


async def test_a_site_that_hangs_is_not_called_again_at_the_same_time(monkeypatch):
    monkeypatch.setattr(network_module, "_SITE_S", 0.1)
    site = Hanging()
    network = Network({"a.test": site}, ())
    try:
        for _ in range(2):
            assert (await network.answer("a.test", "GET", "/", {}, b"")).status == 500
        assert site.calls == 1
        with pytest.raises(EnvError, match="did not answer within"):
            await network.states()
    finally:
        site.let_go.set()
    monkeypatch.setattr(network_module, "_SITE_S", 30.0)
    assert await network.states() == {"a.test": None}


@pytest.mark.parametrize(
    "raw",
    [
        get("http://other.test/"),
        get("http://site.test:81/"),
        get("https://site.test/"),
        get("ftp://site.test/"),
        b"CONNECT site.test:443 HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_site_is_refused_and_told(raw):
    site = Pages({})
    network = Network({"site.test": site}, ())
    assert (await requests(network, raw)).startswith(b"HTTP/1.1 403 ")
    assert site.requests == []
    assert len(network.refusals()) == 1
    assert network.refusals() == []


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01 rubbish\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET http://site.test:99999/ HTTP/1.1\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nX: " + b"a" * (1 << 19),
        b"",
    ],
)
async def test_what_is_no_request_is_hung_up_on(raw):
    site = Pages({})
    try:
        answer = await requests(Network({"site.test": site}, ()), raw)
    except ConnectionError:
        answer = b""
    assert answer == b""
    assert site.requests == []


@pytest.mark.parametrize(
    "header", ["Content-Length: 99999999999", "Content-Length: -1", "Transfer-Encoding: chunked"]
)
async def test_a_body_that_is_too_long_is_refused(header):
    answer = await requests(
        Network({"site.test": Pages({})}, ()), get("http://site.test/", header + "\r\n")
    )
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_an_allowed_host_that_is_not_there_is_a_bad_gateway():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    network = Network({}, (Allowed("127.0.0.1", port),))
    assert (await requests(network, get(f"http://127.0.0.1:{port}/"))).startswith(b"HTTP/1.1 502 ")


async def test_bytes_go_both_ways_through_a_tunnel_to_an_allowed_host():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"echo " + await reader.read(100))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    network = Network({}, (Allowed("127.0.0.1", port),))
    answer = await requests(network, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhello".encode())
    server.close()
    await server.wait_closed()
    assert answer.endswith(b"\r\n\r\necho hello")


def test_many_refusals_are_counted():
    network = Network({}, ())
    for number in range(12):
        network.refuse(f"http://h{number}.test/")
        network.refuse(f"http://h{number}.test/again")
    refusals = network.refusals()
    assert len(refusals) == 6
    assert refusals[-1] == "refused: 7 more addresses"


# -- which program ------------------------------------------------------------------------------


def test_a_named_program_that_is_missing_is_a_config_error_with_the_cure(tmp_path):
    missing = str(tmp_path / "chromium")
    with pytest.raises(ConfigError, match=r"to have one: .*(browser|chromium)"):
        chromium.find(BrowserConfig(executable=missing))


def test_a_named_program_is_taken(tmp_path):
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert chromium.find(BrowserConfig(executable=str(program))) == str(program)


# -- the browsers -------------------------------------------------------------------------------


@pytest.fixture
def _browsers_end() -> Iterator[None]:
    pool.close_all()
    yield
    pool.close_all()


def house(screen: BrowserScreen):
    return screen._episode._browser


@pytest.mark.browser
@pytest.mark.sandbox
@pytest.mark.usefixtures("_browsers_end")
def test_contexts_are_spread_over_browsers():
    options = with_browser(contexts_per_browser=2)
    screens = [BrowserScreen.open(a_task({"/": "x"}), options) for _ in range(3)]
    assert len({house(screen) for screen in screens}) == 2
    for screen in screens:
        screen.close()
        screen.close()


@pytest.mark.browser
@pytest.mark.sandbox
@pytest.mark.usefixtures("_browsers_end")
def test_an_old_browser_takes_no_more_contexts_and_ends_with_its_last():
    options = with_browser(max_contexts=2)
    with a_screen("x", options) as first:
        with a_screen("x", options) as second:
            assert house(second) is house(first)
        with a_screen("x", options) as third:
            assert house(third) is not house(first)
            assert house(first).alive
    assert becomes_true(lambda: not house(first).alive)


@pytest.mark.browser
@pytest.mark.sandbox
@pytest.mark.usefixtures("_browsers_end")
def test_browsers_end_when_nobody_needs_them_and_start_again():
    pool._process = pool.ProcessBrowsers(linger_s=0.1)
    with a_screen("one") as screen:
        first = house(screen)
    assert becomes_true(lambda: not first.alive)
    with a_screen("two") as screen:
        assert house(screen) is not first


@pytest.mark.browser
@pytest.mark.sandbox
@pytest.mark.usefixtures("_browsers_end")
def test_a_forked_child_gets_browsers_of_its_own():
    with a_screen("<title>parent</title>") as screen:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    screen.look()
                except EnvError:
                    with a_screen("<title>child</title>") as own:
                        code = 0 if own.look().title == "child" else 2
                pool.close_all()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert screen.look().title == "parent"


@pytest.mark.browser
@pytest.mark.sandbox
@pytest.mark.usefixtures("_browsers_end")
def test_a_program_that_is_no_browser_is_an_env_error_and_leaves_nothing(tmp_path, monkeypatch):
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho cannot run here >&2\nexit 3\n")
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    with pytest.raises(EnvError, match="cannot run here"):
        BrowserScreen.open(a_task({"/": "x"}), with_browser(executable=str(program)))
    assert list(own.iterdir()) == []


@pytest.mark.browser
@pytest.mark.usefixtures("_browsers_end")
def test_without_isolation_pages_still_reach_their_sites_only():
    options = with_browser(unsafe_no_isolation=True)
    with a_screen("<title>home</title>", options) as one, a_screen("two", options) as two:
        assert one.look().title == "home"
        assert house(one) is house(two)
