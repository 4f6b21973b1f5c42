"""An observation with pictures, as text: what environments speak stays `str`.

{"parts": [{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {"url": "data:..."}}]}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from clawrl_gym.core.types import ContentPart as Part

PICTURE = "(picture)"
_JPEG = "data:image/jpeg;base64,"
_START = '{"parts": ['


def encode_parts(text: str, pictures: Sequence[bytes] = ()) -> str:
    """The text, then the JPEG pictures; inverse of `decode_parts`.

    Without pictures it is the text itself, unless that reads like the form.
    """
    if not pictures and _form(text) is None:
        return text
    parts: list[Part] = [{"type": "text", "text": text}] if text else []
    for picture in pictures:
        url = _JPEG + base64.b64encode(picture).decode()
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return json.dumps({"parts": parts})


def decode_parts(observation: str) -> str | list[Part]:
    """The parts of an observation; whatever is not the form is its own text."""
    form = _form(observation)
    if form is None:
        return observation
    texts = [part["text"] for part in form if part["type"] == "text"]
    return form if len(texts) < len(form) else "".join(texts)


def pictures_of(content: str | Sequence[Part] | None) -> list[bytes]:
    """The JPEG pictures among the parts of a content."""
    urls = [] if content is None or isinstance(content, str) else [*map(_url, content)]
    return [base64.b64decode(url.removeprefix(_JPEG)) for url in urls if url.startswith(_JPEG)]


def plain(observation: str) -> str:
    """The observation as text for people: pictures are only mentioned."""
    form = _form(observation)
    if form is None:
        return observation
    return "\n".join(part["text"] if part["type"] == "text" else PICTURE for part in form)


def _form(text: str) -> list[Part] | None:
    if not text.startswith(_START):
        return None
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(form, dict) or set(form) != {"parts"} or not isinstance(form["parts"], list):
        return None
    return form["parts"] if all(_is_part(part) for part in form["parts"]) else None


def _is_part(part: object) -> TypeGuard[Part]:
    """Text, or a picture that is here: nothing is fetched from elsewhere."""
    if not isinstance(part, dict):
        return False
    if part.get("type") == "text":
        return set(part) == {"type", "text"} and isinstance(part["text"], str)
    return set(part) == {"type", "image_url"} and _url(part).startswith(_JPEG)


def _url(part: Mapping[str, object]) -> str:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else None
    return url if isinstance(url, str) else ""
