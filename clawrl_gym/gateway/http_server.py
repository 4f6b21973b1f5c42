"""The HTTP server's own errors, as OpenAI errors too: what is not HTTP, and what escaped a handler.

aiohttp answers these before or after any middleware, in several lines of plain text, and logs each
with its traceback. A stranger could fill the log that way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from clawrl_gym.gateway.wire.refusals import Refusal, refusal_of

Answer = Callable[[Refusal], web.Response]
_Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_MOST_CHARS = 300


class Runner(web.AppRunner):
    """Runs an application whose server words its own errors by `answer`."""

    __slots__ = ("_answer",)

    def __init__(self, app: web.Application, answer: Answer, **options: Any) -> None:
        """`options`: those of `web.AppRunner`, which takes any."""
        super().__init__(app, **options)
        self._answer = answer

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        server = _Server(
            _refusing(made.request_handler, self._answer),
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,
            **made._kwargs,
        )
        server.answer = self._answer
        return server


class _Server(web.Server):
    answer: Answer

    def __call__(self) -> web.RequestHandler:
        connection = _Connection(self, loop=self._loop, **self._kwargs)
        connection.answer = self.answer
        return connection


class _Connection(web.RequestHandler):
    __slots__ = ("answer",)
    answer: Answer

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Log an exception, unless a client sent an unreadable request."""
        if not isinstance(kwargs.get("exc_info"), HttpProcessingError | web.RequestPayloadError):
            super().log_exception(*args, **kwargs)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc  # nobody is there to read it
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, so that no error can follow")
        if status >= 500:
            self.log_exception("%s failed", request.path, exc_info=exc)
            response = self.answer(refusal_of(exc if isinstance(exc, Exception) else Exception()))
        else:
            response = self.answer(Refusal(status, _reason(message or "")))
        response.force_close()
        return response


def _reason(message: str) -> str:
    """Without what aiohttp quotes below its first line, and without its advice to who serves."""
    first = message.strip().partition("\n")[0].partition(". ")[0].rstrip(":")
    return f"the request is not valid HTTP: {first[:_MOST_CHARS]}"


def _refusing(handle: _Handle, answer: Answer) -> _Handle:
    """The handler, which is asked for no `Expect` that aiohttp would refuse in its own words."""

    async def refusing(request: web.BaseRequest) -> web.StreamResponse:
        expect = request.headers.get("Expect", "")
        if expect and expect.lower() != "100-continue":
            return answer(Refusal(417, f"got Expect: {expect[:40]!a}, expected 100-continue"))
        return await handle(request)

    return refusing
