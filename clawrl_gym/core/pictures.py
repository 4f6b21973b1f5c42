"""Pictures in messages, as the project stores them: parts that name a picture by its hash.

    {"type": "image_url", "image_url": {"url": "sha256:HEX"}}

The bytes lie in the run's folder of pictures; only the policy and the learner look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clawrl_gym.core.types import ContentPart, ImagePart, Message

PREFIX = "sha256:"
PLACEHOLDER = "(picture)"
"""Stands for a picture where only words can be read."""


def picture_part(digest: str) -> ImagePart:
    """The part that names a picture."""
    return {"type": "image_url", "image_url": {"url": PREFIX + digest}}


def digest_of_part(part: object) -> str | None:
    """The picture that a part names; None for any other part."""
    if not isinstance(part, dict) or part.get("type") != "image_url":
        return None
    image_url = part.get("image_url")
    url = image_url.get("url") if isinstance(image_url, dict) else None
    return url.removeprefix(PREFIX) if isinstance(url, str) and url.startswith(PREFIX) else None


def parts_of(message: Message) -> list[ContentPart]:
    """The parts of a message's content; none when it is plain text."""
    content = message.get("content")
    return content if isinstance(content, list) else []


def pictures_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """The pictures of messages in order, once for each time they are shown."""
    return tuple(_digests(messages))


def text_of(message: Message) -> str:
    """A message's text; of content in parts, the text parts, with a word for each picture."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(filter(None, map(_words, content)))


def _digests(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                digest = digest_of_part(part)
                if digest is not None:
                    yield digest


def _words(part: object) -> str:
    if not isinstance(part, dict):
        return ""
    text = part.get("text")
    if isinstance(text, str):
        return text
    return PLACEHOLDER if part.get("type") == "image_url" else ""
