"""mini-swe-agent's environment and its start, with a mini-swe-agent that only says what it got."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import clawrl_gym.agents
from clawrl_gym.agents.mini_swe_agent import EpisodeEnvironment

SCRIPT = Path(clawrl_gym.agents.__file__).parent / "mini_swe_agent.py"
EXCEPTIONS = """\
class Submitted(Exception):
    pass
"""
MINI = """\
import json, os, sys
from minisweagent.exceptions import Submitted

def app():
    environment = sys.modules["__main__"].EpisodeEnvironment(cwd="/repo")
    said = {"argv": sys.argv, "path": sys.path, "environ": dict(os.environ),
            "serialized": environment.serialize(), "results": []}
    try:
        for command in json.loads(os.environ["COMMANDS"]):
            said["results"].append(environment.execute({"command": command}, cwd="/"))
    except Submitted as end:
        said["end"] = end.args
    print(json.dumps(said))
"""


@contextmanager
def episode(folder: Path, *answers: dict[str, Any]) -> Iterator[list[object]]:
    """Answers actions in order, then hangs up; yields what it was asked."""
    asked: list[object] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket"))
    listener.listen(1)

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            for one, line in zip(answers, lines, strict=False):
                asked.append(json.loads(line))
                connection.sendall(json.dumps(one).encode() + b"\n")
            lines.readline()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield asked
    finally:
        thread.join(20)
        listener.close()


def started(
    folder: Path, options: Sequence[str] = (), commands: Sequence[str] = (), **more: str
) -> dict[str, Any]:
    """What the program says that stands in mini-swe-agent's place."""
    package = folder / "packages" / "minisweagent"
    (package / "run").mkdir(parents=True)
    (package / "exceptions.py").write_text(EXCEPTIONS)
    (package / "run" / "mini.py").write_text(MINI)
    (folder / "task.json").write_text(json.dumps({"observation": "Mend it.\nSoon."}))
    environ = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(package.parent), "HOME": str(folder),
        "CLAWRL_SOCKET": str(folder / "socket"), "CLAWRL_TASK": str(folder / "task.json"),
        "CLAWRL_MODEL": "tiny", "COMMANDS": json.dumps(list(commands)), **more,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-S", str(SCRIPT), *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environ,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_it_is_started_on_the_episodes_task_and_model_and_asks_nobody(tmp_path: Path) -> None:
    with episode(tmp_path):
        said = started(tmp_path)
    assert said["argv"] == [
        "mini", "--task=Mend it.\nSoon.", "--model", "openai/tiny",
        "--environment-class", "__main__.EpisodeEnvironment", "--agent-class", "default",
        "--output", str(tmp_path / "trajectory.json"), "-c", "mini.yaml",
    ]  # fmt: skip
    assert str(SCRIPT.parent) not in said["path"]
    assert {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "3",
        "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path / "config"),
        "MSWEA_SILENT_STARTUP": "1",
    }.items() <= said["environ"].items()
    config = {"path": str(tmp_path / "socket"), "cwd": "/repo"}
    assert said["serialized"] == {
        "info": {
            "config": {"environment": config, "environment_type": "__main__.EpisodeEnvironment"}
        }
    }


@pytest.mark.parametrize(
    ("options", "temperature", "last"),
    [
        (["-x"], None, ["-c", "mini.yaml", "-x"]),
        (["-c", "own.yaml"], None, ["-c", "own.yaml"]),
        (["--config", "own.yaml"], "0.5",
         ["--config", "own.yaml", "-c", "model.model_kwargs.temperature=0.5"]),
        ([], "0", ["-c", "mini.yaml", "-c", "model.model_kwargs.temperature=0"]),
        ([], "", ["-c", "mini.yaml"]),
    ],
)  # fmt: skip
def test_its_own_options_and_the_temperature_come_last(
    tmp_path: Path, options: list[str], temperature: str | None, last: list[str]
) -> None:
    more = {} if temperature is None else {"CLAWRL_TEMPERATURE": temperature}
    with episode(tmp_path):
        argv = started(tmp_path, options, **more)["argv"]
    assert argv[argv.index("--output") + 2 :] == last


ENDS: list[tuple[list[dict[str, Any]], str, str]] = [
    ([{"observation": "bye", "done": True}], "Submitted", "submitted"),
    ([{"done": True, "error": "out of steps"}], "EpisodeEnded", "out of steps"),
    ([{"done": True, "error": ""}], "Submitted", "submitted"),
    ([], "EpisodeEnded", "the episode's environment is gone"),
]


@pytest.mark.parametrize(("answers", "status", "content"), ENDS)
def test_the_end_of_the_episode_ends_its_run(
    tmp_path: Path, answers: list[dict[str, Any]], status: str, content: str
) -> None:
    first = {"observation": "a\n", "done": False}
    with episode(tmp_path, first, *answers) as asked:
        said = started(tmp_path, commands=["ls", "exit", "never"])
    assert asked == [{"action": "ls"}, {"action": "exit"}][: 1 + len(answers)]
    assert [one["output"] for one in said["results"]] == ["a\n"]
    extra = {"exit_status": status, "submission": ""}
    assert said["end"] == [{"role": "exit", "content": content, "extra": extra}]


def test_a_step_s_result_is_what_the_environment_says_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWRL_SOCKET", str(tmp_path / "socket"))
    info = {"output": "o", "returncode": 7, "exception": "e"}
    with episode(
        tmp_path,
        {"observation": "<o>", "info": info},
        {"observation": "seen", "info": {}},
        {"observation": "seen"},
        {"error": "too long"},
    ) as asked:
        environment = EpisodeEnvironment()
        results = [environment.execute({"command": name}) for name in "ab"]
        results += [environment.execute({}), environment.execute({"command": "c"})]
        variables = environment.get_template_vars(path="mine", more=1)
        assert environment.get_template_vars()["path"] == str(tmp_path / "socket")
        del environment
    plain = {"output": "seen", "returncode": 0, "exception_info": ""}
    assert results == [
        {"output": "o", "returncode": 7, "exception_info": "e"}, plain, plain,
        {"output": "too long", "returncode": -1, "exception_info": "too long"},
    ]  # fmt: skip
    assert asked == [{"action": action} for action in ("a", "b", "", "c")]
    assert variables == {**platform.uname()._asdict(), "path": "mine", "more": 1}


def test_the_socket_can_be_given_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWRL_SOCKET", "/nowhere")
    with episode(tmp_path, {"observation": "here"}):
        environment = EpisodeEnvironment(path=str(tmp_path / "socket"))
        assert environment.execute({"command": "ls"})["output"] == "here"
        del environment
