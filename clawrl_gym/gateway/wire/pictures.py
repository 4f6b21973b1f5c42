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
from dataclasses import dataclass

from clawrl_gym.config import ImagesConfig
from clawrl_gym.core.pictures import parts_of, picture_part
from clawrl_gym.core.types import Message
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.store import Store

_DATA_URL = re.compile(r"data:([^;,]{0,80});base64,")
_FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
"""File types by Pillow's name; the type in a URL is not trusted."""
_KINDS = ("image/jpeg", "image/jpg", "image/png", "image/webp")
_EXPECTED = "expected a data URL of image/jpeg, image/png or image/webp in base64"


class Pictures:
    """The border for pictures."""

    def __init__(self, store: Store, config: ImagesConfig | None) -> None:
        """`config` None: the policy reads text only, and every picture is refused."""
        self._store = store
        self._config = config

    @asynccontextmanager
    async def stored(self, messages: list[Message]) -> AsyncIterator[list[Message]]:
        """The messages with hashes in place of pictures, whose files are on disk inside.

        A picture that no recorded turn shows is gone afterwards. Raises Refusal (400).
        """
        pictures = list(_pictures_in(messages))
        if not pictures:
            yield messages
            return
        limits = self._limits(pictures)
        for picture in pictures:
            role = messages[picture.message]["role"]
            if role not in ("user", "tool"):
                wrong = f"got a picture of {role!r}, expected of 'user' or 'tool'"
                raise _refused(picture.where, wrong)
        digests: list[str] = []
        try:
            with ExitStack() as kept_files:
                for picture in pictures:
                    data = _decoded(picture.url, picture.where, limits)
                    digests.append(hashlib.sha256(data).hexdigest())
                    kept_files.enter_context(self._store.pictures.pinned(digests[-1:]))
                    await asyncio.to_thread(self._keep, data, picture.where, limits)
                yield _with_digests(messages, pictures, digests)
        finally:
            if digests:
                await asyncio.shield(self._store.forget_pictures(digests))

    def _limits(self, pictures: Sequence[_Picture]) -> ImagesConfig:
        if self._config is None:
            raise Refusal(
                400,
                f"{pictures[0].where}: got a picture, expected text: this policy reads text only",
                param="messages",
            )
        if len(pictures) > self._config.max_count:
            raise Refusal(
                400,
                f"got {len(pictures)} pictures, expected at most {self._config.max_count} in a "
                "request (policy.images.max_count)",
                param="messages",
            )
        return self._config

    def _keep(self, data: bytes, where: str, limits: ImagesConfig) -> None:
        self._store.pictures.add(data, _format_of(data, where, limits))


@dataclass(frozen=True, slots=True)
class _Picture:
    """A picture in a request."""

    message: int
    part: int
    url: str

    @property
    def where(self) -> str:
        """Its place, for an error."""
        return f"messages.{self.message}.content.{self.part}"


def _pictures_in(messages: list[Message]) -> Iterator[_Picture]:
    for at, message in enumerate(messages):
        for index, part in enumerate(parts_of(message)):
            if part["type"] == "image_url":
                yield _Picture(at, index, part["image_url"]["url"])


def _decoded(url: str, where: str, limits: ImagesConfig) -> bytes:
    """The bytes in a data URL; Refusal for any other."""
    header = _DATA_URL.match(url)
    if header is None:
        kind = "a picture to be fetched" if "://" in url[:16] else "something else"
        raise _refused(where, f"got {kind} ({url[:60]!r}), {_EXPECTED}: nothing is fetched")
    if header[1].lower() not in _KINDS:
        raise _refused(where, f"got {header[1]!r}, {_EXPECTED}")
    most_bytes = int(limits.max_mb * 2**20)
    base64_chars = len(url) - header.end()
    if base64_chars * 3 // 4 > most_bytes + 2:
        raise _refused(
            where,
            f"got a picture of {base64_chars * 3 / 4 / 2**20:.1f} MB, expected at most "
            f"{limits.max_mb:g} MB (policy.images.max_mb)",
        )
    try:
        return base64.b64decode(url[header.end() :], validate=True)
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
        reason = str(error) if isinstance(error, OSError) else type(error).__name__
        raise _refused(
            where, f"got a picture that cannot be read ({reason[:80]}), {_EXPECTED}"
        ) from None
    raise _refused(
        where,
        f"got a picture of {size} pixels, expected at most {limits.max_pixels} in all "
        "(policy.images.max_pixels)",
    )


def _with_digests(
    messages: list[Message], pictures: Sequence[_Picture], digests: Sequence[str]
) -> list[Message]:
    changed = [*messages]
    for picture, digest in zip(pictures, digests, strict=True):
        message = changed[picture.message]
        parts = [*parts_of(message)]
        parts[picture.part] = picture_part(digest)
        changed[picture.message] = {**message, "content": parts}
    return changed


def _refused(where: str, reason: str) -> Refusal:
    return Refusal(400, f"{where}: {reason}", "invalid_image", "messages")
