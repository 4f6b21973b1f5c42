from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure
from clawrl_gym.envs.toolcall.toolsets.mcp import McpToolset, make, read_servers
from clawrl_gym.envs.toolcall.toolsets.mcp_connection import Connection
from tests.support.waiting import becomes_true

SERVER = Path(__file__).parents[1] / "fixtures" / "mcp_server.py"
TIMEOUT_S = 20.0


def server(name: str = "trial", **more: Any) -> dict[str, Any]:
    return {"name": name, "command": sys.executable, "args": [str(SERVER)], **more}


@contextmanager
def opened(*servers: dict[str, Any]) -> Iterator[McpToolset]:
    task = ToolTask("t", "f", "train", "hello", ())
    with closing(
        make(task, ToolContext(ToolCallEnvConfig(mcp=list(servers) or [server()])))
    ) as toolset:
        yield toolset


def names(toolset: McpToolset) -> list[str]:
    return [tool["function"]["name"] for tool in toolset.tools()]


def test_a_server_s_tools_are_offered_as_it_lists_them_and_their_texts_come_back() -> None:
    with opened() as toolset:
        add = toolset.tools()[0]["function"]
        assert (add["name"], add["description"]) == ("add", "Add two numbers")
        assert add["parameters"]["properties"]["a"]["type"] == "integer"
        assert add["parameters"]["required"] == ["a", "b"]
        assert toolset.call("add", {"a": 2, "b": 3}, TIMEOUT_S) == "5"
        assert toolset.call("note", {"text": "one"}, TIMEOUT_S) == "one"
        assert toolset.call("note", {"text": "two"}, TIMEOUT_S) == "one two"


def test_an_episode_sees_nothing_of_the_one_before() -> None:
    for _ in range(2):
        with opened() as toolset:
            assert toolset.call("note", {"text": "one"}, TIMEOUT_S) == "one"


def test_a_tool_s_own_error_and_wrong_arguments_are_results() -> None:
    with opened() as toolset:
        with pytest.raises(ToolFailure, match="fail"):
            toolset.call("fail", {"why": "x"}, TIMEOUT_S)
        with pytest.raises(ToolFailure, match="integer"):
            toolset.call("add", {"a": "x", "b": 1}, TIMEOUT_S)
        with pytest.raises(ToolFailure, match="no such tool"):
            toolset.call("steal", {}, TIMEOUT_S)
        assert toolset.call("add", {"a": 1, "b": 1}, TIMEOUT_S) == "2"


def test_a_late_answer_fails_the_call_and_not_the_server() -> None:
    with opened() as toolset:
        with pytest.raises(ToolFailure, match=r"longer than 0\.3 s"):
            toolset.call("wait", {"seconds": 3600}, 0.3)
        assert toolset.call("add", {"a": 1, "b": 1}, TIMEOUT_S) == "2"


@pytest.mark.parametrize(
    ("tool", "arguments", "timeout_s", "why"),
    [
        ("die", {}, TIMEOUT_S, "'trial' is gone.*this is the end"),
        ("flood", {"line": True}, TIMEOUT_S, "a line of more than"),
        ("flood", {"line": False}, TIMEOUT_S, "bytes at once"),
        ("hang", {}, 0.3, "hangs: no answer within 0.3 s"),
    ],
)
def test_a_server_that_dies_floods_or_hangs_fails_the_call_and_is_started_again(
    tool: str, arguments: dict[str, Any], timeout_s: float, why: str
) -> None:
    with opened() as toolset:
        for _ in range(2):
            with pytest.raises(ToolFailure, match=f"{why}.*it was started again"):
                toolset.call(tool, arguments, timeout_s)
        assert toolset.call("add", {"a": 1, "b": 1}, TIMEOUT_S) == "2"
        toolset.state()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"name": "a", "command": "there-is-no-such-program"}, "no program"),
        ({"name": "b", "command": "false"}, "'b' could not be used"),
        ({"name": "c", "command": "cat"}, "'c' could not be used"),
        ({"name": "d", "command": sys.executable, "args": ["-c", "raise SystemExit('no key')"]},
         "no key"),
        ({"name": "e", "url": "http://127.0.0.1:9/mcp"}, "'e' could not be used"),
    ],
)  # fmt: skip
def test_a_server_that_cannot_be_used_is_an_env_error_that_names_it(
    config: dict[str, Any], why: str
) -> None:
    with pytest.raises(EnvError, match=why):
        Connection.open(read_servers([config])[0], TIMEOUT_S)


def test_a_server_that_says_nothing_is_not_waited_for_longer_than_the_limit() -> None:
    config = {"name": "mute", "command": "sleep", "args": ["3600"]}
    with pytest.raises(EnvError, match=r"no answer within 0\.5 s"):
        Connection.open(read_servers([config])[0], 0.5)


def test_one_server_that_fails_takes_the_others_with_it() -> None:
    before = our_children()
    with pytest.raises(EnvError, match="'bad'"), opened(server(), {"name": "bad", "command": "no"}):
        pass
    assert our_children() <= before


def test_nothing_is_left_behind_even_of_a_server_that_starts_others() -> None:
    mark = f"clawrl-mcp-{os.getpid()}"
    with opened(server(env={"MCP_MARK": mark})) as toolset:
        toolset.call("spawn", {}, TIMEOUT_S)
        assert marked(mark)
    assert becomes_true(lambda: not marked(mark))


def test_nothing_is_left_behind_when_the_owner_is_killed() -> None:
    mark = f"clawrl-mcp-owner-{os.getpid()}"
    program = (
        "import sys, time\n"
        "from clawrl_gym.envs.toolcall.toolsets.mcp import McpToolset, read_servers\n"
        f"config = {server(env={'MCP_MARK': mark})!r}\n"
        "toolset = McpToolset(read_servers([config]))\n"
        "toolset.call('spawn', {}, 20.0)\n"
        "print('ready', flush=True)\n"
        "time.sleep(3600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        assert marked(mark)
        owner.kill()
    assert becomes_true(lambda: not marked(mark))


def test_a_server_sees_path_and_home_and_what_it_was_given_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_SECRET", "hush")
    with opened(server(env={"GIVEN": "yes"})) as toolset:
        assert toolset.call("see", {"name": "A_SECRET"}, TIMEOUT_S) == ""
        assert toolset.call("see", {"name": "GIVEN"}, TIMEOUT_S) == "yes"
        assert toolset.call("see", {"name": "PATH"}, TIMEOUT_S) == os.environ["PATH"]


def test_names_that_clash_get_the_server_s_name_in_front() -> None:
    with opened(server("one"), server("two")) as toolset:
        assert "one_add" in names(toolset)
        assert "add" not in names(toolset)
        assert toolset.call("one_note", {"text": "1"}, TIMEOUT_S) == "1"
        assert toolset.call("two_note", {"text": "2"}, TIMEOUT_S) == "2"


def test_a_server_behind_a_url_works_like_one_on_a_pipe() -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(SERVER), "http", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            assert becomes_true(lambda: listens(port))
            with opened({"name": "web", "url": f"http://127.0.0.1:{port}/mcp"}) as toolset:
                assert toolset.call("add", {"a": 2, "b": 3}, TIMEOUT_S) == "5"
                with pytest.raises(ToolFailure, match="fail"):
                    toolset.call("fail", {"why": "x"}, TIMEOUT_S)
                with pytest.raises(ToolFailure, match=r"'web'.*does not start again"):
                    toolset.call("die", {}, 2.0)
                with pytest.raises(EnvError, match="'web' could not be used"):
                    toolset.state()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ([{"name": "a"}], "exactly one"),
        ([{"name": "a", "command": "x", "url": "http://x"}], "exactly one"),
        ([{"name": "a", "url": "ftp://x"}], "expected http"),
        ([{"name": "a", "command": "x"}, {"name": "a", "command": "y"}], "a name of its own"),
        ([{"command": "x"}], "wrong at 'name'"),
        ([{"name": "a", "command": "x", "shell": True}], "wrong at 'shell'"),
    ],
)
def test_a_wrong_configuration_is_a_config_error(servers: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_servers(servers)


def listens(port: int) -> bool:
    with closing(socket.socket()) as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def our_children() -> set[str]:
    """Processes whose parent is this one."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if text.rpartition(")")[2].split()[1] == str(os.getpid()):
            found.add(status.parent.name)
    return found


def marked(mark: str) -> list[str]:
    """Processes that have the mark in their environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"MCP_MARK={mark}".encode() in environ.read_bytes():
                found.append(environ.parent.name)
        except OSError:
            continue
    return found
