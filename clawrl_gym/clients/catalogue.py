"""The clients that `connect` knows: their files, and what points each at a gateway."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

import yaml

from clawrl_gym.clients.client import Client, Gateway, Home, SettingsFile
from clawrl_gym.clients.json_settings import JsonSettings
from clawrl_gym.clients.marked_lines import MarkedLines
from clawrl_gym.core.types import JsonObject
from clawrl_gym.gateway.openclaw import LEAST_CONTEXT, snippet

PROVIDER = "clawrl"
"""The gateway's name in clients that have several."""
Files = tuple[SettingsFile, ...]


def _openclaw(home: Home, gateway: Gateway) -> Files:
    folder = home.path("OPENCLAW_STATE_DIR", ".openclaw")
    path = Path(home.variables.get("OPENCLAW_CONFIG_PATH") or folder / "openclaw.json")
    context = gateway.context or LEAST_CONTEXT
    told: JsonObject = json.loads(snippet(gateway.v1, gateway.key, gateway.model, context))
    return (SettingsFile(path, JsonSettings(told)),)


def _claude_code(home: Home, gateway: Gateway) -> Files:
    path = home.path("CLAUDE_CONFIG_DIR", ".claude", "settings.json")
    families = ("OPUS", "SONNET", "HAIKU")
    variables: dict[str, str] = {
        "ANTHROPIC_BASE_URL": gateway.url,
        "ANTHROPIC_AUTH_TOKEN": gateway.key,
        "ANTHROPIC_MODEL": gateway.model,
        **{f"ANTHROPIC_DEFAULT_{family}_MODEL": gateway.model for family in families},
        # Headers that say what each request is for, and no line in the prompt that names a version.
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    }
    if gateway.told_context is not None:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(gateway.told_context)
    return (SettingsFile(path, JsonSettings({"env": {**variables}})),)


def _codex(home: Home, gateway: Gateway) -> Files:
    first = {"model": gateway.model, "model_provider": PROVIDER}
    context = gateway.told_context
    window = () if context is None else (f"model_context_window = {context}",)
    provider = {
        "name": "clawrl_gym",
        "base_url": gateway.v1,
        "wire_api": "responses",
        "experimental_bearer_token": gateway.key,
    }
    lines = MarkedLines(
        tomllib.loads,
        first=(*_assignments(first, " = "), *window),
        last=("", f"[model_providers.{PROVIDER}]", *_assignments(provider, " = ")),
        replaces=(*first, "model_context_window") if window else tuple(first),
    )
    return (SettingsFile(home.path("CODEX_HOME", ".codex", "config.toml"), lines),)


def _opencode(home: Home, gateway: Gateway) -> Files:
    provider: JsonObject = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "clawrl_gym",
        "options": {"baseURL": gateway.v1, "apiKey": gateway.key},
        "models": {gateway.model: {"name": f"{gateway.model} (learning)"}},
    }
    entries: JsonObject = {
        "provider": {PROVIDER: provider},
        "model": f"{PROVIDER}/{gateway.model}",
        "small_model": f"{PROVIDER}/{gateway.model}",
    }
    path = home.path("XDG_CONFIG_HOME", ".config", "opencode", "opencode.json")
    return (SettingsFile(path, JsonSettings(entries)),)


def _pi(home: Home, gateway: Gateway) -> Files:
    folder = home.path("PI_CODING_AGENT_DIR", ".pi/agent")
    provider: JsonObject = {
        "baseUrl": gateway.v1,
        "api": "openai-completions",
        "apiKey": gateway.key,
        "models": [{"id": gateway.model}],
    }
    chosen: JsonObject = {"defaultProvider": PROVIDER, "defaultModel": gateway.model}
    return (
        SettingsFile(folder / "models.json", JsonSettings({"providers": {PROVIDER: provider}})),
        SettingsFile(folder / "settings.json", JsonSettings(chosen)),
    )


def _aider(home: Home, gateway: Gateway) -> Files:
    settings = {
        "model": f"openai/{gateway.model}",
        "weak-model": f"openai/{gateway.model}",
        "openai-api-base": gateway.v1,
        "openai-api-key": gateway.key,
    }
    lines = MarkedLines(_check_yaml, last=_assignments(settings, ": "), replaces=tuple(settings))
    return (SettingsFile(home.folder / ".aider.conf.yml", lines),)


def _open_webui(home: Home, gateway: Gateway) -> Files:
    variables = {
        "ENABLE_OPENAI_API": "True",
        "OPENAI_API_BASE_URL": gateway.v1,
        "OPENAI_API_KEY": gateway.key,
        "DEFAULT_MODELS": gateway.model,
    }
    lines = MarkedLines(str, last=_assignments(variables, "=", quoted=False))
    path = home.path("XDG_CONFIG_HOME", ".config", "clawrl_gym", "open-webui.env")
    return (SettingsFile(path, lines),)


def _librechat(home: Home, gateway: Gateway) -> Files:
    endpoint: JsonObject = {
        "name": PROVIDER,
        "apiKey": gateway.key,
        "baseURL": gateway.v1,
        "models": {"default": [gateway.model], "fetch": False},
        "titleConvo": True,
        "titleModel": gateway.model,
    }
    lines = MarkedLines(
        _check_yaml,
        last=("endpoints:", "  custom:", f"    - {json.dumps(endpoint)}"),
        defaults=(("version", "version: 1.2.1"),),
    )
    path = home.variables.get("CONFIG_PATH") or "librechat.yaml"
    return (SettingsFile(Path(path).absolute(), lines),)


def _assignments(settings: Mapping[str, str], between: str, quoted: bool = True) -> tuple[str, ...]:
    """One line a setting; a JSON string is one in TOML and YAML, too."""
    return tuple(
        f"{key}{between}{json.dumps(value) if quoted else value}" for key, value in settings.items()
    )


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is there twice, of which PyYAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = [key.value for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} is there twice")
        return super().construct_mapping(node, deep)


def _check_yaml(text: str) -> None:
    try:
        settings = yaml.load(text, _UniqueKeys)  # a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    if settings is not None and not isinstance(settings, dict):
        raise ValueError("got YAML that is no mapping")


CLIENTS = {
    "openclaw": Client("OpenClaw", "openclaw", _openclaw, "openclaw"),
    "claude-code": Client("Claude Code", "claude", _claude_code, "claude"),
    "codex": Client("Codex", "codex", _codex, "codex"),
    "opencode": Client("opencode", "opencode", _opencode, "opencode"),
    "pi": Client("pi", "pi", _pi, "pi"),
    "aider": Client("Aider", "aider", _aider, "aider"),
    "open-webui": Client(
        "Open WebUI", "open-webui", _open_webui, "set -a; . {files}; open-webui serve"
    ),
    "librechat": Client(
        "LibreChat", "librechat", _librechat, "CONFIG_PATH={files} npm run backend"
    ),
}
