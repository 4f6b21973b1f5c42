"""A machine that joins a cluster: what it says that it holds, what is refused before Ray starts."""

import stat
from pathlib import Path

import pytest

from clawrl_gym import node
from clawrl_gym.checks.check import MachineCheck, Status
from clawrl_gym.cluster import ray_node
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.provenance import usable_cores

FINE = MachineCheck("bubblewrap", Status.OK, "there", "sandboxes")
LESS = MachineCheck("memory limits", Status.OPTIONAL, "no cgroups", "limits", "mount them")
NONE = MachineCheck("bubblewrap", Status.MISSING, "not there", "sandboxes", "apt-get install it")


def test_a_machine_holds_so_many_a_core_unless_it_is_said() -> None:
    cores = usable_cores()
    assert node.resource_of("sandbox", [FINE, LESS], None)[0] == 128 * cores
    assert node.resource_of("sandbox", [FINE], 7) == (7, "sandbox: 7 environments")
    assert node.resource_of("browser", [FINE], None)[0] == 16 * cores


def test_what_is_missing_is_one_line_and_an_error_where_it_was_asked_for() -> None:
    count, line = node.resource_of("sandbox", [FINE, NONE], None)
    assert (count, line) == (0, "sandbox: none (bubblewrap: not there; apt-get install it)")
    assert node.resource_of("docker", [LESS], None)[0] == 0
    with pytest.raises(ConfigError, match="got --sandbox=5 on a machine that can hold none"):
        node.resource_of("sandbox", [NONE], 5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "one of the arguments --address --head is required"),
        (["--address=here"], "expected local, auto, or HOST:PORT"),
        (["--address=auto"], "expected HOST:PORT"),
        (["--address=10.0.0.1:99999"], "expected local, auto, or HOST:PORT"),
        (["--head", "--address=10.0.0.1:1"], "not allowed with"),
        (["--head", "--sandbox=-1"], "expected a number, 0 or more"),
        (["--head", "--port=0"], "expected 1 to 65535"),
    ],
)
def test_arguments_that_are_wrong(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        node.main(arguments)
    assert words in capsys.readouterr().err


def test_refusals_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    nothing = f"--token-file={tmp_path / 'none'}"
    assert node.main(["--address=127.0.0.1:1", nothing]) == 2
    assert "got no token of the cluster" in capsys.readouterr().err
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
    assert node.main(["--address=127.0.0.1:1"]) == 2
    assert "127.0.0.1:1, where nothing answers (Connection refused)" in capsys.readouterr().err
    assert node.main(["--head", "--host=127.0.0.1"]) == 2
    assert "which no other machine reaches: give --host=ADDRESS" in capsys.readouterr().err


def test_a_new_head_makes_a_token_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    file = tmp_path / "below" / "token"
    token = ray_node.made_token(str(file))
    assert len(token) == 64
    assert ray_node.made_token(str(file)) == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("")
    with pytest.raises(ConfigError, match="empty token"):
        ray_node.made_token(str(file))
