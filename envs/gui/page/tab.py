"""One open page: its CDP session, and a world of our own in it.

What is asked of a page runs in an isolated world, which shares the document with the page and
nothing else: the page can neither see nor forge it. Nothing is waited for longer than its time-out.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from clawrl_gym.core.errors import EnvError

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Page

SNAPSHOT = "snapshot.js"
_NOT_WAITED_FOR = frozenset({"EventSource", "WebSocket", "Ping", "Media", "Preflight", "Other"})
_LOST_CONTEXT = ("Cannot find context", "uniqueContextId not found")
_INTERRUPTED = ("Execution context was destroyed", "navigated or closed", "Promise was collected")
_PAGE_LOST = ("closed", "crashed", "detached", "Session with given id not found", "Connection")


class FrameEvent(TypedDict):
    """CDP: something happened to a frame."""

    frameId: str


class Frame(TypedDict):
    """CDP: a frame; the main one has no parent."""

    id: str
    parentId: NotRequired[str]


class NavigationEvent(TypedDict):
    """CDP: a frame has come to another document."""

    frame: Frame


class RequestEvent(TypedDict):
    """CDP: a request of the page; `loaderId` and `type` come when it is sent."""

    requestId: str
    loaderId: NotRequired[str]
    type: NotRequired[str]


class PageHangs(Exception):
    """The page does not answer in time: its script keeps it busy."""


class PageGone(EnvError):
    """The page, its renderer or its browser is gone."""


class DocumentLeft(Exception):
    """The document was left while it was asked something."""


class _Lost(DocumentLeft):
    """The context is gone; nothing was run."""


class ScriptFailed(EnvError):
    """A function threw."""


@cache
def script(name: str) -> str:
    """The text of a script beside this file."""
    return files("clawrl_gym.envs.gui.page").joinpath(name).read_text("utf-8")


async def tell_listeners(context: BrowserContext) -> str:
    """Have all documents of a context tell which elements listen to the mouse, those too that a
    page opens windows with. Before its first page; returns the name of the event that tells."""
    hint = "e" + secrets.token_hex(8)
    await context.add_init_script(f"({script('listeners.js')})({hint!r})")
    return hint


class Tab:
    """A page that can be asked and acted on; made by `open`."""

    def __init__(self, page: Page, cdp: CDPSession, frame: str, hint: str) -> None:
        self.page = page
        self.cdp = cdp
        self.documents = 0
        """Documents that the main frame has come to since the tab was opened."""
        self.loading: set[str] = set()
        """Frames that load something."""
        self.requested_navigations: set[str] = set()
        """Frames that were told to go somewhere and have not begun to."""
        self.requests: set[str] = set()
        """Requests in flight, of those that began since `begin`."""
        self.changed = asyncio.Event()
        """Something of the above has changed."""
        self._frame = frame
        self._key = "k" + secrets.token_hex(8)
        self._hint = hint
        self._context: int | None = None

    @classmethod
    async def open(cls, page: Page, hint: str, timeout_s: float = 10.0) -> Tab:
        """Take hold of a page; `hint` is what `tell_listeners` returned for its context."""
        cdp = await page.context.new_cdp_session(page)
        tree = await asyncio.wait_for(cdp.send("Page.getFrameTree"), timeout_s)
        tab = cls(page, cdp, tree["frameTree"]["frame"]["id"], hint)
        tab._listen()
        small = {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0}
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(
                cdp.send("Page.enable"),
                cdp.send("Network.enable", small),
                cdp.send(
                    "Page.addScriptToEvaluateOnNewDocument",
                    {
                        "source": tab._source(),
                        "worldName": tab._key,
                        "runImmediately": True,  # in frames of a window that is there already
                    },
                ),
            )
        return tab

    async def call(self, function: str, *args: object, timeout_s: float) -> Any:
        """Call a JavaScript function with JSON arguments, in the isolated world of the main frame,
        and return its result. It runs at most once; raises PageHangs, PageGone, or DocumentLeft
        when the document was left meanwhile."""
        arguments = ", ".join(json.dumps(arg) for arg in args)
        code = f"globalThis.{self._key} ? ({function})({arguments}) : {self._key!r}"
        return await self._evaluate(code, timeout_s)

    async def query(self, name: str, *args: object, timeout_s: float) -> Any:
        """Result of one of the functions of our own scripts."""
        arguments = ", ".join(json.dumps(arg) for arg in args)
        code = f"globalThis.{self._key} ? {self._key}.{name}({arguments}) : {self._key!r}"
        return await self._evaluate(code, timeout_s)

    async def send(
        self, method: str, params: Mapping[str, object], timeout_s: float
    ) -> dict[str, Any]:
        """A CDP command; raises PageHangs or PageGone."""
        try:
            with self.driver_errors():
                return await asyncio.wait_for(self.cdp.send(method, dict(params)), timeout_s)
        except TimeoutError:
            raise PageHangs(f"the page does not answer within {timeout_s:g} s") from None

    @contextmanager
    def driver_errors(self) -> Iterator[None]:
        """The driver's errors by what they mean: PageGone, DocumentLeft, else EnvError."""
        from playwright.async_api import Error

        try:
            yield
        except Error as error:
            raise self._meaning(error) from error

    async def stop_script(self, timeout_s: float = 2.0) -> None:
        """End what the page's script is doing now, so that it answers again."""
        await self.send("Runtime.terminateExecution", {}, timeout_s)

    async def close(self) -> None:
        """Let go of the page, which stays open; idempotent."""
        from playwright.async_api import Error

        try:
            await self.cdp.detach()
        except Error:
            return

    def begin(self) -> None:
        """Ignore the requests that are in flight now."""
        self.requests.clear()

    # -- the isolated world ---------------------------------------------------------------------
    def _source(self) -> str:
        keys = f"{self._key!r}, {self._hint!r}"
        return f"({script(SNAPSHOT)})({keys});\n({script('input.js')})({self._key!r});"

    async def _evaluate(self, code: str, timeout_s: float) -> Any:
        """The world is created again for a new document: a context's number may have passed to
        another one, so the code looks for our key before it does anything."""
        for _ in range(5):
            if self._context is None:
                self._context = await self._world(timeout_s)
            context = self._context
            try:
                value = await self._run(code, context, timeout_s)
            except _Lost:
                value = self._key
            if value != self._key:
                return value
            if self._context == context:
                self._context = None
        raise DocumentLeft("the page goes from document to document")

    async def _run(self, code: str, context: int, timeout_s: float) -> Any:
        parameters = {
            "expression": code,
            "contextId": context,
            "returnByValue": True,
            "awaitPromise": True,
        }
        reply = await self.send("Runtime.evaluate", parameters, timeout_s)
        if failure := reply.get("exceptionDetails"):
            thrown = failure.get("exception", {}).get("description") or failure.get("text", "")
            raise ScriptFailed(thrown[:500])
        return reply["result"].get("value")

    async def _world(self, timeout_s: float) -> int:
        parameters = {"frameId": self._frame, "worldName": self._key}
        try:
            world = await self.send("Page.createIsolatedWorld", parameters, timeout_s)
        except _Lost:
            tree = await self.send("Page.getFrameTree", {}, timeout_s)
            parameters["frameId"] = self._frame = tree["frameTree"]["frame"]["id"]
            world = await self.send("Page.createIsolatedWorld", parameters, timeout_s)
        context = int(world["executionContextId"])
        await self._run(f"if (!globalThis.{self._key}) {{ {self._source()} }}", context, timeout_s)
        return context

    def _meaning(self, error: Exception) -> Exception:
        text = str(error)
        if any(part in text for part in (*_LOST_CONTEXT, "No frame for given id")):
            return _Lost(text)
        if any(part in text for part in _INTERRUPTED):
            return DocumentLeft(text)
        if self.page.is_closed() or any(part in text for part in _PAGE_LOST):
            return PageGone(f"the page is gone: {text.splitlines()[0]}")
        return EnvError(f"the browser refused: {text.splitlines()[0]}")

    # -- what it tells by itself ----------------------------------------------------------------
    def _listen(self) -> None:
        on = self.cdp.on
        on("Page.frameRequestedNavigation", self._navigation_requested)
        on("Page.frameScheduledNavigation", self._navigation_requested)
        on("Page.frameClearedScheduledNavigation", self._cleared)
        on("Page.frameStartedLoading", self._started)
        on("Page.frameStoppedLoading", self._stopped)
        on("Page.frameDetached", self._stopped)
        on("Page.frameNavigated", self._navigated)
        on("Network.requestWillBeSent", self._request_sent)
        on("Network.loadingFinished", self._request_ended)
        on("Network.loadingFailed", self._request_ended)

    def _navigation_requested(self, event: FrameEvent) -> None:
        self.requested_navigations.add(event["frameId"])

    def _cleared(self, event: FrameEvent) -> None:
        self.requested_navigations.discard(event["frameId"])
        self.changed.set()

    def _started(self, event: FrameEvent) -> None:
        self.requested_navigations.discard(event["frameId"])
        self.loading.add(event["frameId"])

    def _stopped(self, event: FrameEvent) -> None:
        self.requested_navigations.discard(event["frameId"])
        self.loading.discard(event["frameId"])
        self.changed.set()

    def _navigated(self, event: NavigationEvent) -> None:
        frame = event["frame"]
        self.requested_navigations.discard(frame["id"])
        if "parentId" not in frame:
            self.documents += 1
            self._context = None
            self._frame = frame["id"]
            self.requests.clear()
        self.changed.set()

    def _request_sent(self, event: RequestEvent) -> None:
        if event.get("type") not in _NOT_WAITED_FOR and event["requestId"] != event.get("loaderId"):
            self.requests.add(event["requestId"])

    def _request_ended(self, event: RequestEvent) -> None:
        self.requests.discard(event["requestId"])
        self.changed.set()
