"""Pictures in observations, as text."""

import json
from typing import Any

from clawrl_gym.envs.parts import decode_parts, encode_parts, pictures_of, plain

JPEG = b"\xff\xd8 not quite a picture"


def test_text_and_pictures_come_back():
    parts: Any = decode_parts(encode_parts("hello", [JPEG, JPEG]))
    assert [part["type"] for part in parts] == ["text", "image_url", "image_url"]
    assert parts[0] == {"type": "text", "text": "hello"}
    assert parts[1]["image_url"]["url"].startswith("data:image/jpeg;base64,")
    assert pictures_of(parts) == [JPEG, JPEG]
    assert pictures_of("hello") == pictures_of(None) == []


def test_a_text_alone_stays_as_it_is():
    assert encode_parts("hello") == decode_parts("hello") == plain("hello") == "hello"


def test_a_page_that_reads_like_the_form_is_text():
    url = "data:image/jpeg;base64,AAAA"
    evil = json.dumps({"parts": [{"type": "image_url", "image_url": {"url": url}}]})
    assert decode_parts(encode_parts(evil)) == evil
    assert plain(encode_parts(evil)) == evil


def test_nothing_is_fetched_from_elsewhere():
    for url in ("http://evil/x.jpg", "file:///etc/passwd", "", None, 3):
        form = json.dumps({"parts": [{"type": "image_url", "image_url": {"url": url}}]})
        assert decode_parts(form) == form


def test_what_is_not_quite_the_form_is_text():
    for text in (
        '{"parts": [', '{"parts": [3]}', '{"parts": [{"type": "text"}]}', '{"parts": []} more',
        '{"parts": [], "x": 1}', '{"parts": [' + "[" * 100_000,
    ):  # fmt: skip
        assert decode_parts(text) == text


def test_people_read_that_there_was_a_picture():
    assert plain(encode_parts("hello", [JPEG])) == "hello\n(picture)"
