"""Pictures that clients send: checked, kept as files, and named by their hash from then on.

Behind this border a conversation holds names only; the policy's client puts the bytes back in.
Nothing is fetched: a picture comes inside the request or not at all.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
import re
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from clawrl_gym.config import ImagesConfig
from clawrl_gym.core.pictures import picture_part
from clawrl_gym.core.types import Message
from clawrl_gym.gateway.wire import Refusal
from clawrl_gym.store import Store

_DATA_URL = re.compile(r"data:([^;,]{0,80});base64,")
_FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
"""By Pillow's name; what a URL says of its kind is not believed."""
_KINDS = ("image/jpeg", "image/jpg", "image/png", "image/webp")
_EXPECTED = "expected a data URL of image/jpeg, image/png or image/webp in base64"


class Pictures:
    """The border for pictures."""

    def __init__(self, store: Store, config: ImagesConfig | None) -> None:
        """`config` None: the policy reads text only, and every picture is refused."""
        self._store = store
        self._config = config

    @asynccontextmanager
    async def taken(self, messages: list[Message]) -> AsyncIterator[list[Message]]:
        """The messages with hashes in place of pictures, whose files are on disk inside.

        A picture that no recorded turn shows is gone afterwards. Raises Refusal (400).
        """
        shown = list(_places(messages))
        if not shown:
            yield messages
            return
        limits = self._limits(shown)
        for at, _, where in shown:
            if messages[at]["role"] not in ("user", "tool"):
                role = messages[at]["role"]
                raise _refused(where, f"got a picture of {role!r}, expected of 'user' or 'tool'")
        urls = [(where, messages[at]["content"][part]) for at, part, where in shown]
        digests: list[str] = []
        try:
            with ExitStack() as held:
                for where, part in urls:
                    data = _decoded(_url_of(part), where, limits)
                    digests.append(hashlib.sha256(data).hexdigest())
                    held.enter_context(self._store.album.held(digests[-1:]))
                    await asyncio.to_thread(self._keep, data, where, limits)
                yield _named(messages, shown, digests)
        finally:
            if digests:
                await asyncio.shield(self._store.forget_pictures(digests))

    def _limits(self, shown: Sequence[tuple[int, int, str]]) -> ImagesConfig:
        where = shown[0][2]
        if self._config is None:
            raise Refusal(
                400,
                f"{where}: got a picture, expected text: this policy reads text only",
                param="messages",
            )
        if len(shown) > self._config.max_count:
            raise Refusal(
                400,
                f"got {len(shown)} pictures, expected at most {self._config.max_count} in a "
                "request (policy.images.max_count)",
                param="messages",
            )
        return self._config

    def _keep(self, data: bytes, where: str, limits: ImagesConfig) -> None:
        self._store.album.keep(data, _format_of(data, where, limits))


def _places(messages: list[Message]) -> Iterator[tuple[int, int, str]]:
    """Where pictures are: message, part, and both as an error says it."""
    for at, message in enumerate(messages):
        content = message.get("content")
        for part, told in enumerate(content if isinstance(content, list) else ()):
            if told["type"] == "image_url":
                yield at, part, f"messages.{at}.content.{part}"


def _url_of(part: dict[str, Any]) -> str:
    return str(part["image_url"]["url"])


def _decoded(url: str, where: str, limits: ImagesConfig) -> bytes:
    """The bytes in a data URL; Refusal for any other."""
    found = _DATA_URL.match(url)
    if found is None:
        kind = "a picture to be fetched" if "://" in url[:16] else "something else"
        raise _refused(where, f"got {kind} ({url[:60]!r}), {_EXPECTED}: nothing is fetched")
    if found[1].lower() not in _KINDS:
        raise _refused(where, f"got {found[1]!r}, {_EXPECTED}")
    most_bytes = int(limits.max_mb * 2**20)
    if (len(url) - found.end()) * 3 // 4 > most_bytes + 2:
        raise _refused(
            where,
            f"got a picture of {(len(url) - found.end()) * 3 / 4 / 2**20:.1f} MB, expected at most "
            f"{limits.max_mb:g} MB (policy.images.max_mb)",
        )
    try:
        return base64.b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused(where, f"got a data URL that is not base64 ({error}), {_EXPECTED}") from None


def _format_of(data: bytes, where: str, limits: ImagesConfig) -> str:
    """Decodes the picture, because the policy must; Refusal for one that cannot be. Blocks."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata and of large pictures: checked below
            with Image.open(io.BytesIO(data), formats=tuple(_FORMATS)) as image:
                pixels = image.width * image.height
                if pixels <= limits.max_pixels:
                    image.load()
                    return _FORMATS[str(image.format)]
                size = f"{image.width}x{image.height}"
    except Exception as error:  # noqa: BLE001 (Pillow's readers raise nearly anything)
        what = str(error) if isinstance(error, OSError) else type(error).__name__
        raise _refused(
            where, f"got a picture that cannot be read ({what[:80]}), {_EXPECTED}"
        ) from None
    raise _refused(
        where,
        f"got a picture of {size} pixels, expected at most {limits.max_pixels} in all "
        "(policy.images.max_pixels)",
    )


def _named(
    messages: list[Message], shown: Sequence[tuple[int, int, str]], digests: Sequence[str]
) -> list[Message]:
    named = [*messages]
    for (at, part, _), digest in zip(shown, digests, strict=True):
        content = [*named[at]["content"]]
        content[part] = picture_part(digest)
        named[at] = {**named[at], "content": content}
    return named


def _refused(where: str, what: str) -> Refusal:
    return Refusal(400, f"{where}: {what}", "invalid_image", "messages")
