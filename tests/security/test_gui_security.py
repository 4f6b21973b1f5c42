"""Attacks of pages on the browser they are shown in, on this host and on other episodes (S24).

Each probe opens only what this file made; what listens here is counted, and nothing may connect.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any

import psutil
import pytest

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.browser.pool import close_all
from clawrl_gym.envs.gui.browser.screen import BrowserScreen
from clawrl_gym.envs.gui.site import Response
from clawrl_gym.envs.sandbox.cgroup import find_cgroup_home
from tests.support.gui_pages import PATIENT, QUICK, a_screen, id_of, text, with_browser

pytestmark = [pytest.mark.browser, pytest.mark.sandbox]


@pytest.fixture(scope="module", autouse=True)
def _browsers_end() -> Iterator[None]:
    yield
    close_all()


class Listener:
    """Counts who connects to a port of this host."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.05)
        self.port = self._socket.getsockname()[1]
        self.visitors = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count)
        self._thread.start()

    def _count(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            with connection:
                self.visitors += 1
                connection.settimeout(1.0)
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def script_page(body: str) -> str:
    """A page whose title says how an attempt went."""
    return f"<title>trying</title><p>page</p><script>{body}</script>"


def outcome(screen: BrowserScreen) -> str:
    """The title, once it is none that waits."""
    deadline = time.monotonic() + 60.0
    while (title := screen.look().title) == "trying" and time.monotonic() < deadline:
        time.sleep(0.02)
    return title


ATTEMPT = """
const no = e => {{ document.title = "no"; }}, yes = t => {{ document.title = "got " + t; }};
fetch({url!r}, {{mode: "no-cors"}}).then(r => r.text()).then(t => yes(t)).catch(no);
"""


def test_a_page_cannot_read_files_of_the_host():
    with a_screen(script_page(ATTEMPT.format(url="file:///etc/passwd"))) as screen:
        assert outcome(screen) == "no"
        assert "no address" in str(screen.act(GuiAction("goto", text="file:///etc/passwd")))
        assert screen.look().url == "http://site.test/"


def test_the_model_cannot_go_to_files_scripts_or_the_browser_itself():
    with a_screen("<title>home</title>") as screen:
        for url in (
            "file:///proc/self/environ",
            "javascript:document.title='owned'",
            "chrome://crash",
            "data:text/html,owned",
            "view-source:http://site.test/",
            "blob:http://site.test/1",
            "about:srcdoc",
            "http://",
            "http://[::1",
            "http://site.test:99999/",
        ):
            assert screen.act(GuiAction("goto", text=url)) is not None
            assert screen.act(GuiAction("new_tab", text=url)) is not None
        view = screen.look()
        assert (view.url, view.title, view.tabs) == ("http://site.test/", "home", ())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "2130706433"])
def test_a_page_cannot_reach_a_port_of_this_host(listener, host):
    with a_screen(script_page(ATTEMPT.format(url=f"http://{host}:{listener.port}/"))) as screen:
        assert "secret" not in outcome(screen)
    assert listener.visitors == 0


def test_no_redirect_leads_outside(listener):
    """Routing rules of the driver do not see redirects: the second hop went out unasked."""
    away = Response("", 302, headers={"Location": f"http://127.0.0.1:{listener.port}/"})
    pages: dict[str, str | Response] = {
        "/": "<title>home</title><a href=/away>away</a>",
        "/away": away,
    }
    with a_screen(pages) as screen:
        screen.act(GuiAction("click", id=id_of(screen, "away")))
        assert "secret" not in text(screen.look())
        assert any("outside of this task" in told for told in screen.notices())
    assert listener.visitors == 0


@pytest.mark.parametrize(
    "body",
    [
        '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:{port}/">',
        '<iframe src="http://127.0.0.1:{port}/"></iframe>',
        '<img src="http://127.0.0.1:{port}/"><link rel=stylesheet href="//127.0.0.1:{port}/">',
        '<link rel=preconnect href="http://127.0.0.1:{port}">'
        '<link rel=prefetch href="http://127.0.0.1:{port}/">',
        "<script>new WebSocket('ws://127.0.0.1:{port}/')</script>",
        "<script>new EventSource('http://127.0.0.1:{port}/')</script>",
        "<script>navigator.sendBeacon('http://127.0.0.1:{port}/', 'x')</script>",
        "<script>new Worker(URL.createObjectURL(new Blob(["
        "'fetch(`http://127.0.0.1:{port}/`)'])))</script>",
        "<script>window.open('http://127.0.0.1:{port}/')</script>",
        "<form action='http://127.0.0.1:{port}/' method=post></form>"
        "<script>document.forms[0].submit()</script>",
        "<script>const c = new RTCPeerConnection({{iceServers: [{{urls: "
        "'turn:127.0.0.1:{port}?transport=tcp', username: 'u', credential: 'c'}}]}});"
        "c.createDataChannel('x'); c.createOffer().then(o => c.setLocalDescription(o))</script>",
    ],
)
def test_no_element_of_a_page_leads_outside(listener, body):
    with a_screen(f"<title>home</title>{body.format(port=listener.port)}") as screen:
        for _ in range(3):
            screen.look()
            screen.act(GuiAction("wait", seconds=0.1))
        assert "secret" not in text(screen.look())
    assert listener.visitors == 0


@pytest.mark.parametrize(("family", "host"), [(AF_INET, "127.0.0.1"), (AF_INET6, "::1")])
def test_no_datagram_of_a_page_reaches_this_host(family, host):
    with socket.socket(family, socket.SOCK_DGRAM) as listening:
        listening.bind((host, 0))
        listening.setblocking(False)
        there = f"{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        body = (
            f"const c = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{there}'}}]}});"
            "c.createDataChannel('x'); c.createOffer().then(o => c.setLocalDescription(o))"
            ".finally(() => { document.title = 'offered' })"
        )
        with a_screen(script_page(body)) as screen:
            assert outcome(screen) == "offered"
            screen.act(GuiAction("wait", seconds=0.5))
        with pytest.raises(BlockingIOError):
            listening.recv(1)


def test_names_are_not_looked_up_for_pages():
    with a_screen(script_page(ATTEMPT.format(url="http://example.com/"))) as screen:
        outcome(screen)
        assert screen.notices() == ["refused: http://example.com is outside of this task"]


def test_pages_do_not_reach_the_proxies_of_other_contexts():
    with a_screen("<title>mine</title>") as other:
        proxy = other._episode._proxy
        with a_screen(script_page(ATTEMPT.format(url=f"{proxy}/"))) as screen:
            assert "mine" not in outcome(screen)


def test_what_is_allowed_is_reached_and_nothing_beside_it(listener):
    options = PATIENT.model_copy(update={"allow": [f"127.0.0.1:{listener.port}"]})
    with a_screen("<title>home</title>", options) as screen:
        assert screen.act(GuiAction("goto", text=f"http://127.0.0.1:{listener.port}/x?y")) is None
        assert text(screen.look()) == "secret"
        assert screen.act(GuiAction("goto", text="http://127.0.0.1:1/")) is not None
    assert listener.visitors == 1


def test_allowed_hosts_cannot_redirect_outside(listener):
    forbidden = Listener()
    answer = f"HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:{forbidden.port}/\r\n"
    server = socket.create_server(("127.0.0.1", 0))

    def once() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(f"{answer}Content-Length: 0\r\n\r\n".encode())

    thread = threading.Thread(target=once)
    thread.start()
    port = server.getsockname()[1]
    try:
        options = PATIENT.model_copy(update={"allow": [f"127.0.0.1:{port}"]})
        with a_screen("home", options) as screen:
            screen.act(GuiAction("goto", text=f"http://127.0.0.1:{port}/"))
            assert "secret" not in text(screen.look())
    finally:
        thread.join()
        server.close()
        forbidden.close()
    assert forbidden.visitors == 0


def test_storage_of_another_context_is_absent():
    leave = "document.cookie = 'a=1; max-age=9999'; localStorage.b = 2; document.title = 'left'"
    look = "document.title = 'found ' + document.cookie + (localStorage.b ?? '')"
    with a_screen(script_page(leave)) as first:
        assert outcome(first) == "left"
        with a_screen(script_page(look)) as second:
            assert outcome(second).strip() == "found"


def test_service_workers_are_refused():
    pages: dict[str, str | Response] = {
        "/": "<script>navigator.serviceWorker.register('/sw.js')</script>",
        "/sw.js": Response("fetch('/hello')", content_type="text/javascript"),
    }
    with a_screen(pages) as screen:
        screen.act(GuiAction("wait", seconds=0.2))
        requests: Any = screen.final_state(None, False, False).states["site.test"]
        asked = [path for _, path, _ in requests]
        assert asked == ["/"]


# -- what keeps a page busy ---------------------------------------------------------------------


def test_ten_thousand_alerts_are_closed_and_told():
    page = "<button onclick='for (let i = 0; i < 1e4; i++) alert(i)'>go</button><p>still here</p>"
    with a_screen(page) as screen:
        screen.act(GuiAction("click", id=id_of(screen, "go")))
        assert "still here" in text(screen.look())
        told = screen.notices()
        assert "alert dialog '0': closed" in told
        assert 5 < len(told) < 15


def test_questions_are_dismissed_and_told():
    page = "<button onclick='document.title = confirm(1) + \"/\" + prompt(2)'>go</button>"
    with a_screen(page) as screen:
        screen.act(GuiAction("click", id=id_of(screen, "go")))
        assert screen.look().title == "false/null"
        assert screen.notices() == ["confirm dialog '1': dismissed", "prompt dialog '2': dismissed"]


def test_a_page_cannot_hold_the_model_back_when_it_leaves():
    stay = "<a href=/two>two</a><script>onbeforeunload = e => { e.preventDefault() }</script>"
    with a_screen({"/": stay, "/two": "<title>two</title>"}) as screen:
        screen.act(GuiAction("click", id=id_of(screen, "two")))
        assert screen.look().title == "two"


def test_windows_become_tabs_and_the_ninth_is_refused():
    page = "<button onclick='for (let i = 0; i < 20; i++) window.open(`/${i}`)'>go</button>"
    with a_screen(page) as screen:
        screen.act(GuiAction("click", id=id_of(screen, "go")))
        assert len(screen.look().tabs) == 8
        assert any("8 tabs are open" in told for told in screen.notices())


def test_a_chain_of_windows_ends():
    page = "<title>chain</title><script>open('/')</script>"
    with a_screen(page) as screen:
        screen.act(GuiAction("wait", seconds=0.3))
        assert len(screen.look().tabs) <= 8


def test_downloads_are_refused_and_told():
    file = Response("x" * 100, headers={"Content-Disposition": "attachment; filename=evil.exe"})
    with a_screen({"/": "<a href=/file>file</a>", "/file": file}) as screen:
        screen.act(GuiAction("click", id=id_of(screen, "file")))
        screen.act(GuiAction("wait", seconds=0.2))
        assert screen.look().url == "http://site.test/"
        assert screen.notices() == ["a download was refused: 'evil.exe'"]


def test_a_script_that_never_ends_is_stopped_and_the_episode_goes_on():
    page = "<title>home</title><button onclick='for (;;);'>go</button>"
    with a_screen(page, QUICK) as screen, a_screen("<title>other</title>") as other:
        button = id_of(screen, "go")
        failed: list[str | None] = []
        stuck = threading.Thread(
            target=lambda: failed.append(screen.act(GuiAction("click", id=button)))
        )
        stuck.start()
        began = time.monotonic()
        assert other.look().title == "other"
        assert time.monotonic() - began < 5  # it did not wait for the stuck one
        stuck.join()
        assert "script was stopped" in str(failed) + str(screen.notices())
        assert screen.look().title == "home"
        assert screen.act(GuiAction("goto", text="http://site.test/")) is None


def test_a_page_that_hangs_again_and_again_is_closed():
    hang = "<script>setInterval(() => { for (;;); }, 0)</script>"
    with a_screen({"/": "<title>home</title>", "/hang": hang}, QUICK) as screen:
        told = [screen.act(GuiAction("goto", text="http://site.test/hang"))]
        screen.look()
        assert any("did not answer" in str(one) for one in told + screen.notices())
        assert screen.act(GuiAction("goto", text="http://site.test/")) is None
        assert screen.look().title == "home"


def test_an_episode_does_not_begin_on_a_page_that_hangs():
    with (
        pytest.raises(EnvError, match="does not answer"),
        a_screen("<script>for (;;);</script>", QUICK),
    ):
        pass


def press_until_it_ends(screen: BrowserScreen, button: int) -> None:
    for _ in range(3):
        screen.act(GuiAction("click", id=button))
        screen.look()


FOR_EVER = PATIENT.model_copy(update={"action_timeout_s": 3600.0})
"""A crash ends an action: nobody waits for its deadline."""


def test_a_memory_hog_ends_its_own_renderer_only():
    hog = "<button onclick='const a = []; for (;;) a.push(new Array(1e6).fill(1.5))'>go</button>"
    with a_screen("<title>other</title>") as other:
        with a_screen(hog, FOR_EVER) as screen:
            button = id_of(screen, "go")
            with pytest.raises(EnvError, match="crashed"):
                press_until_it_ends(screen, button)
        assert other.look().title == "other"


ARRAYS = "new Uint8Array(1 << 25).fill(1)"
"""32 MiB that V8's limit does not count."""


@pytest.mark.skipif(find_cgroup_home() is None, reason="cgroups cannot be written")
def test_memory_outside_of_the_script_engine_ends_its_own_renderer_only():
    hog = f"<button onclick='const a = []; for (;;) a.push({ARRAYS})'>go</button>"
    options = with_browser(FOR_EVER, memory_mb=900)
    with a_screen("<title>other</title>", options) as other:
        with a_screen(hog, options) as screen:
            assert screen._episode._browser is other._episode._browser
            button = id_of(screen, "go")
            with pytest.raises(EnvError, match="crashed"):
                press_until_it_ends(screen, button)
        assert other.look().title == "other"
        assert other._episode._browser is not None
        assert other._episode._browser.alive


@pytest.mark.skipif(find_cgroup_home() is None, reason="cgroups cannot be written")
def test_a_browser_has_a_memory_limit_by_default():
    with a_screen("home"):
        limits = [limit_bytes(each.pid) for each in chromiums(os.getpid()) if is_inside(each)]
    assert limits
    assert all(0 < limit <= psutil.virtual_memory().total // 2 for limit in limits)


def limit_bytes(pid: int) -> int:
    """What the process's own cgroup allows."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return int(Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text())
        if controllers == "" and (own := Path(f"/sys/fs/cgroup{path}/memory.max")).exists():
            return int(own.read_text().replace("max", "0"))
    return 0


def is_inside(process: psutil.Process) -> bool:
    try:
        return "--type=" in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False


def test_no_webgl_is_there_to_take_memory():
    body = "document.title = document.createElement('canvas').getContext('webgl') ? 'yes' : 'no'"
    with a_screen(script_page(body)) as screen:
        assert outcome(screen) == "no"


def test_a_hundred_thousand_nodes_are_looked_at():
    body = "document.body.innerHTML = '<p>x</p>'.repeat(1e5); document.title = 'many'"
    with a_screen(f"<body><script>{body}</script>") as screen:
        assert screen.look().title == "many"


# -- what breaks --------------------------------------------------------------------------------


def test_a_crashed_renderer_ends_its_own_episode_only():
    with a_screen("<title>other</title>") as other:
        with a_screen("<title>home</title>") as screen:
            episode = screen._episode
            tab = episode._tabs.current
            screen._owner.run(crash(tab), 10)
            with pytest.raises(EnvError, match="crashed"):
                screen.look()
        assert other.look().title == "other"


async def crash(tab):
    import asyncio

    crashing = asyncio.ensure_future(tab.cdp.send("Page.crash"))
    await asyncio.wait([crashing], timeout=2)
    crashing.cancel()
    await asyncio.gather(crashing, return_exceptions=True)


def chromiums(owner: int) -> list[psutil.Process]:
    """Every process below this one that lives and has to do with browsers."""
    below = psutil.Process(owner).children(recursive=True)
    return [each for each in below if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def test_a_dead_browser_ends_its_episodes_and_is_replaced():
    options = with_browser(contexts_per_browser=1)
    with a_screen("<title>one</title>", options) as one, a_screen("two", options) as two:
        assert one._episode._browser is not None
        browser = one._episode._browser.browser
        one._owner.run(end(browser), 10)
        with pytest.raises(EnvError, match="browser has died"):
            one.look()
        assert text(two.look()) == "two"
        with a_screen("<title>three</title>", options) as three:
            assert three.look().title == "three"


async def end(browser):
    session = await browser.new_browser_cdp_session()
    await session.send("Browser.close")


def test_a_dead_driver_ends_episodes_and_is_replaced():
    with a_screen("<title>one</title>") as screen:
        driver = next(
            each for each in psutil.Process().children() if "run-driver" in each.cmdline()
        )
        driver.kill()
        with pytest.raises(EnvError, match="died"):
            screen.look()
        with a_screen("<title>two</title>") as again:
            assert again.look().title == "two"


OWNER = """
import sys, time
from tests.support.gui_pages import a_task, with_browser
from clawrl_gym.envs.gui.browser.screen import BrowserScreen
screens = [BrowserScreen.open(a_task({"/": "x"}), with_browser(memory_mb=2000)) for _ in range(2)]
print("open", flush=True)
time.sleep(600)
"""


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=60)
    return not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("deadly", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_an_owner_that_was_killed(deadly):
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        started = chromiums(owner.pid)
        assert len(started) > 5
        profiles = [
            argument.partition("=")[2]
            for each in started
            for argument in each.cmdline()
            if argument.startswith("--user-data-dir=")
        ]
        owner.send_signal(deadly)
    assert gone(started)
    assert profiles
    assert not [profile for profile in profiles if Path(profile).exists()]


def test_nothing_is_left_when_the_process_ends_by_itself():
    code = OWNER.replace("time.sleep(600)", "sys.stdin.read()")
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        started = chromiums(owner.pid)
        owner.stdin.close()
    assert owner.returncode == 0
    assert gone(started)


# -- what the host shows ------------------------------------------------------------------------


def test_the_kernel_ends_a_page_before_the_browser_and_the_browser_before_its_owner():
    with a_screen("home"):
        score = {"renderer": 0, "": 0}
        for each in chromiums(os.getpid()):
            kind = [a for a in each.cmdline() if a.startswith("--type=")]
            name = kind[0].removeprefix("--type=") if kind else ""
            if name or "chrom" in each.cmdline()[0]:
                own = int(Path(f"/proc/{each.pid}/oom_score_adj").read_text())
                score[name] = max(own, score.get(name, 0))
        owner = int(Path("/proc/self/oom_score_adj").read_text())
    assert owner < score[""] < score["renderer"]


@pytest.mark.root
def test_no_process_of_a_browser_is_the_real_root():
    with a_screen("home"):
        inside = [each for each in chromiums(os.getpid()) if "--type=" in " ".join(each.cmdline())]
        assert inside
        assert all(0 not in (each.uids().real, each.uids().effective) for each in inside)


def test_a_browser_has_no_variables_files_or_net_of_the_host():
    with a_screen("home"):
        inside = [each for each in chromiums(os.getpid()) if "--type=" in " ".join(each.cmdline())]
        zygote = inside[0].pid
        assert set(inside[0].environ()) <= {"HOME", "PATH", "TMPDIR", "PWD", "CHROME_HEADLESS"} | {
            name for name in inside[0].environ() if name.startswith(("SBX_", "FONTCONFIG"))
        }
        own = {kind: Path(f"/proc/self/ns/{kind}").readlink() for kind in NAMESPACES}
        its = {kind: Path(f"/proc/{zygote}/ns/{kind}").readlink() for kind in NAMESPACES}
        assert not [kind for kind in NAMESPACES if own[kind] == its[kind]]


NAMESPACES = ("user", "pid", "net", "ipc", "mnt", "uts")
