"""What real clients sent, see fixtures/openclaw/README.md and fixtures/clients/README.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from clawrl_gym.config import LiveConfig, ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.types import Message
from clawrl_gym.gateway.dialects.table import DIALECTS
from clawrl_gym.gateway.wire.requests import ChatRequest

FOLDER = Path(__file__).parents[1] / "fixtures" / "openclaw"
NAMES = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.json"))
CLIENTS = Path(__file__).parents[1] / "fixtures" / "clients"
CLIENT_NAMES = sorted(
    str(path.relative_to(CLIENTS).with_suffix("")) for path in CLIENTS.rglob("*.json")
)
"""Requests of other releases and other clients: CLIENT-RELEASE/WHAT."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One request, and what the server answered."""

    headers: dict[str, str]
    body: dict[str, Any]
    """As a chat request, whatever its dialect."""
    messages: list[Message]
    reply: Message | None
    """None where it answered with an error."""


def recorded(name: str, folder: Path = FOLDER) -> Recording:
    told = json.loads((folder / f"{name}.json").read_text())
    dialect = DIALECTS[told.get("path", "/v1/chat/completions")]
    request = dialect.read(told["body"])
    assert isinstance(request.fields, ChatRequest)
    messages = request.fields.plain_messages()
    return Recording(told["headers"], request.body, messages, told.get("reply"))


def conversation(folder: str) -> list[Recording]:
    """All requests of a folder, in order."""
    return [recorded(name) for name in NAMES if name.startswith(f"{folder}/")]


@cache
def shipped() -> LiveConfig:
    """What `serve` runs with by default."""
    return compose("serve", [], ServeConfig).live
