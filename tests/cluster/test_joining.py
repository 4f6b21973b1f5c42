"""Joining a cluster: what is refused before Ray is asked, what is compared, what travels."""

import socket
from pathlib import Path

import pytest

from clawrl_gym.cluster import admission, joining, machine
from clawrl_gym.cluster.modules import foreign_modules, stage
from clawrl_gym.cluster.nodes import Node
from clawrl_gym.cluster.ray_probe import Answer
from clawrl_gym.config import EnvConfig, RayConfig, RunConfig
from clawrl_gym.core.errors import ConfigError, ConfigErrors
from clawrl_gym.envs.conversation.config import ConversationEnvConfig
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.run.policy import reachable, url_for


@pytest.mark.parametrize("address", ["", "here", "host:", ":6379", "host:0", "host:70000", "a b:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="expected local, auto, or HOST:PORT"):
        RayConfig.of({"address": address}, "ray.")


@pytest.mark.parametrize("address", ["local", "auto", "head-0.svc:6379", "[fe80::1]:6379"])
def test_addresses(address: str) -> None:
    assert RayConfig(address=address).is_joined == (address != "local")


def test_the_token_comes_from_where_it_is_said(tmp_path: Path) -> None:
    file, other = tmp_path / "token", tmp_path / "other"
    file.write_text("abc\n")
    other.write_text("def")
    assert joining.token_of(str(file), {"RAY_AUTH_TOKEN": "env"}) == "abc"
    assert joining.token_of(None, {"RAY_AUTH_TOKEN": "env"}) == "env"
    assert joining.token_of(None, {"RAY_AUTH_TOKEN_PATH": str(other)}) == "def"
    with pytest.raises(ConfigError, match=r"got no token of the cluster \(.*/none: No such file"):
        joining.token_of(str(tmp_path / "none"), {})
    other.write_text("\n")
    with pytest.raises(ConfigError, match="empty token"):
        joining.token_of(str(other), {})


def test_nobody_at_the_address_and_no_token_are_both_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    config = RayConfig(address=f"127.0.0.1:{port}", token_file=str(tmp_path / "none"))
    with pytest.raises(ConfigErrors) as refused:
        joining.membership(config)
    address, token = refused.value.lines
    assert "set RAY_AUTH_TOKEN, or give ray.token_file=PATH" in token
    assert f"127.0.0.1:{port}, where nothing answers (Connection refused)" in address


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": "RpcError: Unauthenticated: InvalidAuthToken"}, "refused this token"),
        ({"error": "no answer within 15 s"}, "no head of a Ray cluster, or one of another version"),
        ({"address": "h:1", "members": [], "is_open": True}, "asks for no token"),
        ({"address": "h:1", "members": [], "is_open": False}, "not a node of the cluster at h:1"),
    ],
)
def test_what_a_cluster_answers_becomes_a_line(
    answer: Answer, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "ask", lambda address, environment: answer)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(ConfigError, match=words) as refused,
    ):
        joining.membership(RayConfig(address=f"127.0.0.1:{server.getsockname()[1]}"))
    assert "\n" not in str(refused.value)


def test_versions_are_compared_in_one_line() -> None:
    here = machine.describe()["versions"]
    assert here.keys() == {"Python", "ray", "clawrl_gym"}
    assert "(code " in here["clawrl_gym"]
    admission.check_versions(here, here)
    with pytest.raises(ConfigError, match=r"it has clawrl_gym none, expected clawrl_gym 0"):
        admission.check_versions(here | {"clawrl_gym": "none"}, here)


def test_rays_page_on_versions_becomes_a_line() -> None:
    page = "Version mismatch: The cluster was started with:\n    Ray: 2.1\n    Python: 3.11.1\n"
    line = joining.versions_differ(RuntimeError(page))
    assert line is not None
    assert "\n" not in line
    assert "Ray: 2.1; Python: 3.11.1: install" in line
    assert joining.versions_differ(RuntimeError("else")) is None


@pytest.mark.parametrize(
    ("there_s", "words"),
    [(1003.0, None), (996.0, None), (1020.0, "12 s ahead of"), (900.0, "100 s behind")],
)
def test_a_clock_that_is_wrong_is_told(there_s: float, words: str | None) -> None:
    line = admission.clock_line(there_s, began_s=1000.0, took_s=8.0)
    assert (line is None) == (words is None)
    assert words is None or (line is not None and words in line)


@pytest.mark.parametrize(
    ("env", "resource"),
    [
        (TerminalEnvConfig(), "sandbox"),
        (TerminalEnvConfig.of({"sandbox": {"type": "docker"}}), "docker"),
        (ToolCallEnvConfig(), "sandbox"),
        (SweEnvConfig.of({"sandbox": {"type": "docker"}}), "docker"),
        (GuiEnvConfig(), "browser"),
        (ConversationEnvConfig(), None),
        (GymEnvConfig(target="a:B"), None),
    ],
)
def test_what_a_node_must_have(env: EnvConfig, resource: str | None) -> None:
    assert env.node_resource == resource


def test_task_files_travel_and_what_is_shipped_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "generated").mkdir()
    (tmp_path / "tasks.jsonl").write_text('{"a": 1}\n')
    assert not admission.archives_of(ToolCallEnvConfig(tasks="generated"))
    assert not admission.archives_of(ToolCallEnvConfig(tasks="nothing/there"))
    env = GymEnvConfig(target="tests.support.fakes:Nothing")
    assert not admission.archives_of(env)
    archives = admission.archives_of(ToolCallEnvConfig(tasks="tasks.jsonl"))
    assert [(key, archive.name) for key, archive in archives.items()] == [("tasks", "tasks.jsonl")]


def test_modules_of_a_folder_travel_with_their_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, staged = tmp_path / "project", tmp_path / "staged"
    (project / "helpers" / "deep").mkdir(parents=True)
    (project / "runs" / "first").mkdir(parents=True)
    for name in (".git", "clawrl_gym"):  # as beside a module in a checkout of ours
        (project / name).mkdir()
    own = ("my_env.py", "other.py", "helpers/__init__.py")
    for name in (*own, "runs/first/x.py", ".git/x.py", "clawrl_gym/__init__.py"):
        (project / name).write_text("")
    (project / "helpers" / "deep" / "words.txt").write_text("data of a package")
    (project / "big.bin").write_text("no module")
    monkeypatch.syspath_prepend(str(project))
    env = GymEnvConfig(target="my_env:Env")
    modules = foreign_modules(RunConfig(env=env), [env, TerminalEnvConfig()])
    assert modules == {"my_env"}
    assert stage({*modules, "yaml", "json", "no_such_module"}, staged)
    files = {str(path.relative_to(staged)) for path in staged.rglob("*") if path.is_file()}
    assert files == {"my_env.py", "other.py", "helpers/__init__.py", "helpers/deep/words.txt"}
    assert not stage({"yaml", "json"}, tmp_path / "nothing")
    monkeypatch.setattr("clawrl_gym.cluster.modules._MAX_MB", 0)
    with pytest.raises(ConfigError, match="put yours into a folder of their own"):
        stage(modules, tmp_path / "more")


def test_the_gateway_listens_beyond_loopback_only_for_other_machines() -> None:
    config = RunConfig().gateway
    assert reachable(config, "127.0.0.1") == config
    joined = reachable(config, "10.0.0.7")
    assert (joined.host, len(joined.key or "") > 20) == ("10.0.0.7", True)
    own = config.model_copy(update={"host": "192.168.1.2", "key": "a key of mine"})
    assert reachable(own, "10.0.0.7") == own
    assert url_for("http://0.0.0.0:80", "10.0.0.7") == "http://10.0.0.7:80"
    assert url_for("http://0.0.0.0:80", "127.0.0.1") == "http://0.0.0.0:80"


def test_what_a_node_says_of_itself() -> None:
    resources = {
        "CPU": 2.0, "memory": 1e9, "object_store_memory": 1e9, "node:10.0.0.1": 1.0,
        "node:__internal_head__": 1.0, "sandbox": 256.0, "accelerator_type:H200": 1.0, "GPU": 1.0,
    }  # fmt: skip
    words = Node("id", "10.0.0.1", "host", resources).words()
    assert words == "host (10.0.0.1): CPU 2, GPU 1, sandbox 256"
