"""The agents that are known by name, one recipe each.

Their versions stand in the lock files beside this module. None of them asks anybody for
permission, looks for updates or reports anywhere: the sandbox is what confines them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawrl_gym.agents.cli.recipe import KEY, PYTHON_FOLDER, Recipe, Room

_LARGE = Room(memory_mb=2048, disk_mb=256, pids=256)
"""For Node with its threads, and what the agent runs beside itself."""

_CODEX = Recipe(
    command=(
        "{node}", "{agent}/node_modules/@openai/codex/bin/codex.js", "exec",
        "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
        "--color", "never", "-",
    ),
    env={"CODEX_HOME": "{home}"},
    files={
        "config.toml": """\
model = "{model}"
model_provider = "gateway"
check_for_update_on_startup = false

[model_providers.gateway]
name = "gateway"
base_url = "{base_url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2

[analytics]
enabled = false
"""
    },
    packages="npm",
    room=_LARGE,
)  # fmt: skip

_CLAUDE_CODE = Recipe(
    command=(
        "{agent}/node_modules/@anthropic-ai/claude-code-linux-{arch}/claude",
        "-p", "--dangerously-skip-permissions",
    ),
    env={
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "ANTHROPIC_MODEL": "{model}",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "{model}",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "{model}",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{model}",
        "CLAUDE_CODE_SUBAGENT_MODEL": "{model}",
        "CLAUDE_CONFIG_DIR": "{home}",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    },
    packages="npm",
    room=_LARGE,
)  # fmt: skip

_OPENCODE = Recipe(
    command=(
        "{agent}/node_modules/opencode-linux-{arch}/bin/opencode", "run",
        "--model", "gateway/{model}", "{instruction}",
    ),
    env={
        "OPENCODE_CONFIG": "{home}/opencode.json",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "XDG_CACHE_HOME": "{home}/cache",
        "XDG_CONFIG_HOME": "{home}/config",
        "XDG_DATA_HOME": "{home}/data",
        "XDG_STATE_HOME": "{home}/state",
    },
    files={
        "opencode.json": """\
{
  "autoupdate": false,
  "share": "disabled",
  "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
  "provider": {
    "gateway": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "gateway",
      "options": {"baseURL": "{base_url}", "apiKey": "inside-a-sandbox"},
      "models": {"{model}": {"name": "{model}"}}
    }
  }
}
"""
    },
    packages="npm",
    room=_LARGE,
)  # fmt: skip

_PI = Recipe(
    command=(
        "{node}", "{agent}/node_modules/@mariozechner/pi-coding-agent/dist/cli.js",
        "-p", "--no-session", "--provider", "gateway", "--model", "{model}", "{instruction}",
    ),
    env={"PI_CODING_AGENT_DIR": "{home}", "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"},
    files={
        "models.json": """\
{
  "providers": {
    "gateway": {
      "baseUrl": "{base_url}",
      "api": "openai-completions",
      "apiKey": "OPENAI_API_KEY",
      "compat": {
        "supportsStore": false,
        "supportsDeveloperRole": false,
        "supportsReasoningEffort": false,
        "maxTokensField": "max_tokens"
      },
      "models": [{"id": "{model}", "name": "{model}"}]
    }
  }
}
"""
    },
    packages="npm",
    room=_LARGE,
)  # fmt: skip

_OPENCLAW = Recipe(
    command=(
        "{node}", "{agent}/node_modules/openclaw/openclaw.mjs", "agent", "--local",
        "--session-id", "episode", "--message", "{instruction}",
    ),
    completed_by=("{node}", "{agent}/node_modules/openclaw/openclaw.mjs", "--version"),
    env={"OPENCLAW_STATE_DIR": "{home}", "OPENCLAW_CONFIG_PATH": "{home}/openclaw.json"},
    files={
        "openclaw.json": """\
{
  "models": {
    "providers": {
      "gateway": {
        "baseUrl": "{base_url}",
        "apiKey": "inside-a-sandbox",
        "api": "openai-completions",
        "models": [{"id": "{model}", "name": "{model}"}]
      }
    }
  },
  "agents": {
    "defaults": {
      "workspace": "{workdir}",
      "skipBootstrap": true,
      "model": {"primary": "gateway/{model}"}
    }
  }
}
"""
    },
    packages="npm",
    room=_LARGE,
)  # fmt: skip

_MINI_SWE_AGENT = Recipe(
    command=(
        "{python}", "-I", "-c",
        "import os, sys; del os.environ['LD_LIBRARY_PATH']; "
        "sys.path.insert(0, '{agent}/site'); "
        "from minisweagent.run.mini import app; app()",
        "--yolo", "--exit-immediately", "--model", "openai/{model}",
        "--output", "{home}/trajectory.json", "--task", "{instruction}",
    ),
    env={
        "LD_LIBRARY_PATH": f"{PYTHON_FOLDER}/lib",  # until it has begun, and not for what it runs
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": "{home}",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    packages="pypi",
    room=Room(memory_mb=1024, disk_mb=128, pids=128),
)  # fmt: skip

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "claude-code": _CLAUDE_CODE,
        "codex": _CODEX,
        "mini-swe-agent": _MINI_SWE_AGENT,
        "openclaw": _OPENCLAW,
        "opencode": _OPENCODE,
        "pi": _PI,
    }
)
