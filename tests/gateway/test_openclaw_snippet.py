"""The snippet for `openclaw.json`. That OpenClaw takes it is tested in e2e/serve/."""

import json
from typing import Any

import pytest

from clawrl_gym.gateway.openclaw import LEAST_CONTEXT, snippet


def provider_of(text: str) -> dict[str, Any]:
    provider: dict[str, Any] = json.loads(text)["models"]["providers"]["clawrl"]
    return provider


def test_the_gateways_model_becomes_openclaws_first_choice() -> None:
    config = json.loads(snippet("http://127.0.0.1:8808", "sk-1", "policy", 65536, 512))
    assert config["agents"]["defaults"]["model"]["primary"] == "clawrl/policy"
    provider = config["models"]["providers"]["clawrl"]
    assert provider["api"] == "openai-completions"
    assert provider["apiKey"] == "sk-1"
    [model] = provider["models"]
    assert (model["id"], model["contextWindow"], model["maxTokens"]) == ("policy", 65536, 512)


def test_a_context_that_openclaw_would_refuse_is_not_told() -> None:
    [model] = provider_of(snippet("http://127.0.0.1:8808", "sk-1", "policy", 2048, 48))["models"]
    assert model["contextWindow"] == LEAST_CONTEXT


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("http://127.0.0.1:8808", "http://127.0.0.1:8808/v1"),
        ("http://127.0.0.1:8808/", "http://127.0.0.1:8808/v1"),
        ("http://127.0.0.1:8808/v1", "http://127.0.0.1:8808/v1"),
        ("https://box.lan/clawrl/v1/", "https://box.lan/clawrl/v1"),
        ("http://[::1]:8808", "http://[::1]:8808/v1"),
    ],
)
def test_the_base_url_ends_with_v1_once(given: str, told: str) -> None:
    assert provider_of(snippet(given, "sk-1"))["baseUrl"] == told


@pytest.mark.parametrize("url", ["", "127.0.0.1:8808", "ftp://box", "http://", "http://box?x=1"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected one such as http://127\.0\.0\.1:8808"):
        snippet(url, "sk-1")


@pytest.mark.parametrize("key", ["", "two words", "line\n", "${HOME}", "schlüssel"])
def test_a_key_that_openclaw_would_read_otherwise_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        snippet("http://127.0.0.1:8808", key)


def test_quotes_and_backslashes_in_a_key_stay_what_they_are() -> None:
    assert provider_of(snippet("http://127.0.0.1:8808", 'a"\\b'))["apiKey"] == 'a"\\b'
