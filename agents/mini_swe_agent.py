r"""mini-swe-agent, unmodified, as the agent of an episode: its environment class, and its start.

Runs inside mini-swe-agent's own Python, so it needs nothing but the standard library and
mini-swe-agent. As the agent of a run:

    agent.type=harness
    agent.command=[/path/to/mini/bin/python,'{agents}/mini_swe_agent.py',-c,mini_textbased.yaml,\
        --model-class,litellm_textbased]

Without options it calls tools, as mini-swe-agent does by itself.
What follows the script are mini-swe-agent's own options; task, model, environment, key and base
URL are given by the episode.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import socket
import sys
from pathlib import Path
from typing import TypedDict

_COMMAND_S = 3600.0
"""Longest wait for a step: the environment has its own limits, which are shorter."""


class StepAnswer(TypedDict, total=False):
    """Answer of the episode to an action."""

    observation: str
    info: dict[str, object]
    """`output`, `returncode` and `exception`, where the environment gives them."""
    done: bool
    error: str


class EpisodeEnvironment:
    """Runs each command as a step of the episode; `environment_class` of mini-swe-agent."""

    def __init__(self, **config: object) -> None:
        self.config: dict[str, object] = {"path": os.environ["CLAWRL_SOCKET"]} | config
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_COMMAND_S)
        self._socket.connect(str(self.config["path"]))
        self._lines = self._socket.makefile("rb")

    def execute(self, action: dict[str, object], cwd: str = "") -> dict[str, object]:
        """One step. Ends mini-swe-agent's run when it was the episode's last."""
        answer = self._step(str(action.get("command", "")))
        if answer.get("done"):
            self._leave(str(answer.get("error") or ""))
        if "error" in answer:
            return {"output": answer["error"], "returncode": -1, "exception_info": answer["error"]}
        info = answer.get("info") or {}
        return {
            "output": info.get("output", answer["observation"]),
            "returncode": info.get("returncode", 0),
            "exception_info": info.get("exception", ""),
        }

    def get_template_vars(self, **variables: object) -> dict[str, object]:
        return platform.uname()._asdict() | self.config | variables

    def serialize(self) -> dict[str, object]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": self.config, "environment_type": kind}}}

    def _step(self, command: str) -> StepAnswer:
        self._socket.sendall(json.dumps({"action": command}).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            return {"done": True, "error": "the episode's environment is gone"}
        answer: StepAnswer = json.loads(line)
        return answer

    def _leave(self, error: str) -> None:
        submitted = importlib.import_module("minisweagent.exceptions").Submitted
        status = "Submitted" if not error else "EpisodeEnded"
        extra = {"exit_status": status, "submission": ""}
        raise submitted({"role": "exit", "content": error or "submitted", "extra": extra})


def main(options: list[str]) -> None:
    """Run mini-swe-agent on the episode's task, without questions and without the network."""
    folder = Path(os.environ["HOME"])
    os.environ |= {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "3",
        "MSWEA_GLOBAL_CONFIG_DIR": str(folder / "config"),
        "MSWEA_SILENT_STARTUP": "1",
    }
    task = json.loads(Path(os.environ["CLAWRL_TASK"]).read_text())
    arguments = [f"--task={task['observation']}", "--model", f"openai/{os.environ['CLAWRL_MODEL']}"]
    arguments += ["--environment-class", "__main__.EpisodeEnvironment"]
    arguments += ["--agent-class", "default", "--output", str(folder / "trajectory.json")]
    options = options if {"-c", "--config"} & set(options) else ["-c", "mini.yaml", *options]
    if temperature := os.environ.get("CLAWRL_TEMPERATURE"):
        options = [*options, "-c", f"model.model_kwargs.temperature={temperature}"]
    sys.path.pop(0)  # the agents' own folder: its names are not meant for others
    sys.argv = ["mini", *arguments, *options]
    importlib.import_module("minisweagent.run.mini").app()


if __name__ == "__main__":
    main(sys.argv[1:])
