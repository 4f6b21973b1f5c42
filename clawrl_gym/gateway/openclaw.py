"""The snippet that points OpenClaw at the gateway: a provider in its `openclaw.json`.

Paste it, or pipe it into `openclaw config patch --stdin`, which leaves everything else as it is.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

PROVIDER = "clawrl"
"""Its name in OpenClaw; the plugin in `agents/openclaw` adds to calls of this provider only."""
LEAST_CONTEXT = 32768
"""OpenClaw counts some 16,000 tokens for its own prompt and keeps 8,192 for the reply. Told of
less, it shortens the history at every turn; told of less than 4,000, it does not ask at all."""
_PATIENCE_S = 600
"""Seconds that OpenClaw waits between two pieces of a reply: longer than a policy's restart."""


def snippet(
    base_url: str,
    key: str,
    model: str = "policy",
    context_window: int = LEAST_CONTEXT,
    max_tokens: int = 1024,
) -> str:
    """The JSON text for a gateway at `base_url`, with or without its `/v1`.

    `context_window` and `max_tokens` are what OpenClaw plans with: tokens of prompt and reply
    together (at least `LEAST_CONTEXT` is told), and of one reply at most.
    """
    entry = {
        "id": model,
        "name": f"{model} (learning)",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": max(context_window, LEAST_CONTEXT),
        "maxTokens": max_tokens,
    }
    provider = {
        "baseUrl": _checked_url(base_url),
        "apiKey": _checked_key(key),
        "api": "openai-completions",
        "timeoutSeconds": _PATIENCE_S,
        "models": [entry],
    }
    config = {
        "models": {"providers": {PROVIDER: provider}},
        "agents": {"defaults": {"model": {"primary": f"{PROVIDER}/{model}"}}},
    }
    return json.dumps(config, indent=2)


def _checked_url(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"got base URL {base_url!r}, expected one such as http://127.0.0.1:8808")
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path if path.endswith('/v1') else path + '/v1'}"


def _checked_key(key: str) -> str:
    """OpenClaw reads `${NAME}` and secret markers out of a key; ours must be taken as it is."""
    if not key or not key.isascii() or not key.isprintable() or " " in key or "$" in key:
        raise ValueError("expected a key of printable ASCII without spaces and '$'")
    return key
