"""Where an engine is looked for, in which order, and what is said of each place."""

import grp
import hashlib
import json
import os
import socket
import tempfile
from pathlib import Path

import pytest

from clawrl_gym.envs.sandbox.docker.addresses import (
    engine_addresses,
    find_engine,
    knock,
    start_command,
)
from tests.support.fake_engine import FakeEngine, without_engines


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_engines(tmp_path, monkeypatch)
    return tmp_path


def write_context(home: Path, name: str, meta: str, *, current: bool = True) -> Path:
    key = hashlib.sha256(name.encode()).hexdigest()
    folder = home / "config" / "contexts" / "meta" / key
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(meta)
    if current:
        (home / "config" / "config.json").write_text(json.dumps({"currentContext": name}))
    return home / "config" / "contexts" / "tls" / key / "docker"


def context_of(url: str, **endpoint: object) -> str:
    return json.dumps({"Name": "x", "Endpoints": {"docker": {"Host": url, **endpoint}}})


def write_host(folder: Path, url: str) -> None:
    (folder / ".docker").mkdir(parents=True)
    (folder / ".docker" / "host").write_text(f"{url}\n")


def found() -> str:
    address = find_engine().address
    return "" if address is None else address.url


def test_the_system_and_a_rootless_engine_are_found(home: Path) -> None:
    assert found() == ""
    with FakeEngine(home / "docker.sock") as rootless:
        assert found() == rootless.url
        with FakeEngine(home / "system.sock") as system:
            assert found() == system.url


def test_the_engine_of_the_folder_or_the_checkout_comes_before_the_system(home: Path) -> None:
    with FakeEngine(home / "system.sock"), FakeEngine(home / "mine.sock") as mine:
        write_host(home / "checkout", mine.url)
        assert found() == mine.url
        with FakeEngine(home / "here.sock") as here:
            write_host(home, here.url)
            assert found() == here.url


def test_the_current_context_is_asked_and_its_certificates_are_used(home: Path) -> None:
    with FakeEngine(home / "context.sock") as engine:
        certificates = write_context(home, "mine", context_of(engine.url))
        certificates.mkdir(parents=True)
        address = find_engine().address
        assert address is not None
        assert str(address) == f"the docker context 'mine' ({engine.url})"
        assert address.environment == {
            "DOCKER_CERT_PATH": str(certificates),
            "DOCKER_TLS_VERIFY": "1",
        }


def test_what_the_user_names_is_the_only_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeEngine(home / "system.sock") as system:
        monkeypatch.setenv("DOCKER_CONTEXT", "none-such")
        assert [address.problem for address in engine_addresses()] == [
            "there is none of that name; docker context ls"
        ]
        monkeypatch.setenv("DOCKER_CONTEXT", "default")
        assert found() == system.url
        monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/wrong.sock")
        refusal = find_engine().refusal()
    assert f"DOCKER_HOST (unix://{home}/wrong.sock): no such socket" in refusal
    assert "mend DOCKER_HOST, or unset it" in refusal
    assert "system" not in refusal


def test_a_refusal_names_every_place_with_its_reason_and_the_cure(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home / "dead.sock"))
    write_host(home, f"unix://{home}/dead.sock")
    write_context(home, "torn", "{")
    with FakeEngine(home / "docker.sock", b"HTTP/1.0 404 Not Found\r\n\r\n"):
        refusal = find_engine().refusal()
    for part in (
        f"the engine of {home}/.docker (unix://{home}/dead.sock): nobody listens there",
        "the docker context 'torn': it cannot be read",
        f"the system's engine (unix://{home}/system.sock): no such socket",
        "a rootless engine",
        "answers 'HTTP/1.0 404 Not Found', expected Docker's ping",
        f"to start one of this folder's own: {start_command()}",
        "sandbox=bubblewrap",
    ):
        assert part in refusal


@pytest.mark.parametrize("text", ["[]", "{}", '{"Endpoints": {"docker": "x"}}', '"x"', "\udcff"])
def test_a_context_that_is_none_is_told(home: Path, text: str) -> None:
    write_context(home, "odd", "", current=True)
    (meta,) = home.glob("config/contexts/meta/*/meta.json")
    meta.write_bytes(os.fsencode(text))
    (address, *_) = engine_addresses()
    assert "it cannot be read" in address.problem


@pytest.mark.parametrize("text", ["[1]", "{", '{"currentContext": null}'])
def test_a_configuration_of_docker_that_says_nothing_counts_for_nothing(
    home: Path, text: str
) -> None:
    (home / "config").mkdir()
    (home / "config" / "config.json").write_text(text)
    assert [address.origin for address in engine_addresses()] == [
        "the system's engine", "a rootless engine"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("unix:///no/such.sock", "no such socket"),
        (f"unix:///{'x' * 200}", "too long"),
        ("ftp://x", "expected unix://PATH or tcp://HOST:PORT"),
        ("tcp://127.0.0.1:1", "nobody listens"),
        ("127.0.0.1:1", "nobody listens"),
        ("tcp://127.0.0.1:none", "Port could not be cast"),
    ],
)
def test_an_address_that_does_not_answer_says_why(url: str, reason: str) -> None:
    assert reason in knock(url)


@pytest.mark.parametrize(
    ("url", "tls", "way"),
    [
        ("ssh://me@there", {}, "ssh"),
        ("https://there:2376", {}, "TLS"),
        ("tcp://127.0.0.1:PORT", {"DOCKER_TLS_VERIFY": "1"}, "TLS"),
        ("127.0.0.1:PORT", {"DOCKER_CERT_PATH": "/certificates"}, "TLS"),
        ("tcp://127.0.0.1:PORT", {"DOCKER_TLS_VERIFY": ""}, ""),
    ],
)
def test_an_engine_over_ssh_or_tls_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, url: str, tls: dict[str, str], way: str
) -> None:
    """A shell's stream is read from the bare socket, where there is a cipher or nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = url.replace("PORT", str(server.getsockname()[1]))
        for name, value in {"DOCKER_HOST": url, **tls}.items():
            monkeypatch.setenv(name, value)
        search = find_engine()
    if way:
        assert (
            f"DOCKER_HOST ({url}): got an engine over {way}, expected unix://" in search.refusal()
        )
        assert "ssh -NL /tmp/docker.sock" in search.refusal()
    else:
        assert search.address is not None


def test_the_certificates_of_a_context_on_another_machine_refuse_it(home: Path) -> None:
    write_context(home, "far", context_of("tcp://127.0.0.1:1")).mkdir(parents=True)
    assert "the docker context 'far' (tcp://127.0.0.1:1): got an engine over TLS" in (
        find_engine().refusal()
    )


def test_another_machines_port_that_is_open_is_left_to_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert knock(f"tcp://127.0.0.1:{server.getsockname()[1]}") == ""


@pytest.mark.root
def test_who_may_not_ask_is_told_the_group() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        path = Path(folder, "docker.sock")
        with FakeEngine(path) as engine:
            path.chmod(0o660)
            os.chown(path, 0, grp.getgrnam("users").gr_gid)
            os.seteuid(65534)
            try:
                reason, command = knock(engine.url), start_command()
            finally:
                os.seteuid(0)
    assert command.startswith("sudo ")
    assert reason.startswith("permission denied; have root type `usermod -aG users ")
