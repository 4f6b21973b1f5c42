from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from clawrl_gym.core import redact
from clawrl_gym.core.redact import HIDDEN, Redactor

KEY = "gW-92hf_0dd4kd9f"


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """What a handler writes while the process' records are cleaned."""
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(logging.LogRecord)  # not with secrets that other tests taught it
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logger = logging.getLogger("clawrl_gym.tests.redact")
    logger.addHandler(handler)
    redact.install([KEY])
    yield written
    logger.removeHandler(handler)
    logging.setLogRecordFactory(before)


LOG = logging.getLogger("clawrl_gym.tests.redact")


def test_a_known_key_leaves_messages_and_arguments(out: io.StringIO) -> None:
    LOG.warning(f"got {KEY}")
    LOG.warning("got %s and %r", KEY, {"key": KEY})
    assert KEY not in out.getvalue()
    assert out.getvalue().count(HIDDEN) == 3


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc.def-ghi_jkl", "abc.def-ghi_jkl"),
        ("{'authorization': 'bearer 0123456789'}", "0123456789"),
        ("key sk-proj-abcdefghijklmnop was refused", "sk-proj-abcdefghijklmnop"),
        ("hf_AbCdEfGhIjKlMnOpQrStUvWx", "hf_AbCdEfGhIjKlMnOpQrStUvWx"),
        ("https://me:pa55w0rd@host/v1", "pa55w0rd"),
        ("POST /?api_key=topsecret&x=1", "topsecret"),
        ("Authorization: Basic bWU6cGFzcw==", "bWU6cGFzcw=="),
    ],
)
def test_keys_are_known_by_how_they_are_written(out: io.StringIO, text: str, secret: str) -> None:
    LOG.error(text)
    assert secret not in out.getvalue()
    assert HIDDEN in out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "expected 'Authorization: Bearer KEY' with the gateway's key",
        "http://127.0.0.1:8000/v1 user@example.org",
        "a task about the risk-averse and hf_hub_download",
        "session sk-1 has ended",
    ],
)
def test_ordinary_words_stay(out: io.StringIO, text: str) -> None:
    LOG.error(text)
    assert out.getvalue() == text + "\n"


def test_a_traceback_hides_what_its_messages_hold(out: io.StringIO) -> None:
    try:
        try:
            raise KeyError(f"Bearer {KEY}")
        except KeyError as error:
            raise ValueError(f"sent {KEY}") from error
    except ValueError:
        LOG.exception("it failed")
    told = out.getvalue()
    assert KEY not in told
    assert f"ValueError: sent {HIDDEN}" in told
    assert "Traceback" in told
    assert "direct cause" in told


def test_a_traceback_without_secrets_is_left_to_its_handlers(out: io.StringIO) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[assignment, method-assign]
    LOG.addHandler(handler)
    try:
        raise ValueError("plain")
    except ValueError:
        LOG.exception("it failed")
    LOG.removeHandler(handler)
    assert records[0].exc_info is not None


def test_handlers_and_loggers_made_later_are_clean_too(out: io.StringIO) -> None:
    later = io.StringIO()
    logger = logging.getLogger("clawrl_gym.tests.redact.later")
    handler = logging.StreamHandler(later)
    logger.addHandler(handler)
    logger.error("key=%s", KEY)
    logger.removeHandler(handler)
    assert later.getvalue() == f"key={HIDDEN}\n"


def test_installing_again_only_learns_more(out: io.StringIO) -> None:
    factory = logging.getLogRecordFactory()
    assert redact.install(["another-key"]) is factory
    LOG.error("%s another-key", KEY)
    assert out.getvalue() == f"{HIDDEN} {HIDDEN}\n"


def test_secrets_too_short_to_tell_from_words_are_left_out() -> None:
    redactor = Redactor(logging.LogRecord)
    redactor.add(["k", "", None, "longer-one"])
    assert redactor.clean("keen on a longer-one") == f"keen on a {HIDDEN}"


def test_wrong_arguments_do_not_break_logging(out: io.StringIO) -> None:
    record = logging.getLogRecordFactory()("n", logging.INFO, "f", 1, "%d of %d", (1,), None)
    assert record.msg == "%d of %d"


@pytest.mark.parametrize(
    "name",
    ["key", "gateway.key", "user_key", "apikey", "OPENAI_API_KEY", "HF_TOKEN", "hub.access-token",
     "AWS_SECRET_ACCESS_KEY", "options.Password", "Authorization", "db.credentials"],
)  # fmt: skip
def test_a_secret_says_its_name(name: str) -> None:
    assert redact.is_secret(name)


@pytest.mark.parametrize(
    "name", ["keys", "max_tokens", "monkey", "tokenizer", "key_place", "SSH_AUTH_SOCK", "author"]
)
def test_other_names_hold_none(name: str) -> None:
    assert not redact.is_secret(name)


def test_secrets_are_found_and_hidden_at_any_depth() -> None:
    values = {
        "seed": 3,
        "endpoint": {"key": "none", "model": "m"},
        "judge": {"key": None, "options": {"headers": [{"Authorization": "Bearer 1"}]}},
        "token": ["first-1", "second-2"],
    }
    assert list(redact.secrets_in(values)) == ["Bearer 1", "first-1", "second-2"]
    assert redact.hidden(values) == {
        "seed": 3,
        "endpoint": {"key": "none", "model": "m"},
        "judge": {"key": None, "options": {"headers": [{"Authorization": HIDDEN}]}},
        "token": [HIDDEN, HIDDEN],
    }


def test_an_argument_is_shown_without_its_secret() -> None:
    assert redact.hidden_argument("+judge.key=abc") == f"+judge.key={HIDDEN}"
    assert redact.hidden_argument("judge.key=none") == "judge.key=none"
    assert redact.hidden_argument("seed=3") == "seed=3"
    assert redact.hidden_argument("judge.base_url=http://me:abc@h/v1").count("abc") == 0


def test_a_short_word_in_the_environment_is_no_secret() -> None:
    given = {"HF_TOKEN": "hf-0123456789", "MY_KEY": "escape", "PATH": "/a-long-enough-path"}
    arguments = ["env=terminal", "judge.key=sesame"]
    assert list(redact.secrets_of_process(arguments, given)) == ["sesame", "hf-0123456789"]
