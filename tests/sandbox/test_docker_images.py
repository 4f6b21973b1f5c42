"""Images: a task's is named by what it is made of; ours are there when they are asked for."""

import hashlib
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from clawrl_gym.core.errors import SandboxError, TaskError
from clawrl_gym.envs.sandbox.docker.images import (
    SWE_IMAGE,
    TERMINAL_IMAGE,
    _exclusive,
    build_image,
    ensure_image,
)
from clawrl_gym.envs.sandbox.interface import Limits, SandboxSpec

DOCKER = Path(__file__).resolve().parents[2] / "docker"


def context_of(folder: Path, dockerfile: str, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(dockerfile)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def remove(name: str) -> None:
    from clawrl_gym.envs.sandbox.docker.engine import engine

    engine().images.remove(name, force=True)


@pytest.mark.docker
@pytest.mark.parametrize("name", [TERMINAL_IMAGE, SWE_IMAGE])
def test_our_images_hold_what_tasks_need(name):
    from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox

    ensure_image(name)
    with open_docker_sandbox(Limits(pids=128), SandboxSpec("/tmp"), image=name) as sandbox:
        for program in ("python3 -m pytest", "git", "node", "ruby", "jq", "sqlite3", "patch"):
            done = sandbox.exec(f"{program} --version", 30.0)
            assert done.exit_code == 0, done.output


@pytest.mark.docker
def test_a_built_image_holds_the_context_and_is_built_once(tmp_path):
    said: list[str] = []
    context = context_of(
        tmp_path / "c", f"FROM {TERMINAL_IMAGE}\nCOPY a.txt /a.txt\nRUN echo made >> /a.txt\n",
        a__txt="hello\n",
    )  # fmt: skip
    name = build_image(context, say=said.append)
    try:
        from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox

        with open_docker_sandbox(Limits(), SandboxSpec("/"), image=name) as sandbox:
            assert sandbox.exec("cat /a.txt", 10.0).output == "hello\nmade\n"
        assert build_image(context, say=said.append) == name
        assert len(said) == 1
        (context / "a.txt").write_text("other\n")
        other = build_image(context)
        assert other != name
        remove(other)
    finally:
        remove(name)


@pytest.mark.docker
def test_what_dockerignore_leaves_out_changes_nothing(tmp_path):
    context = context_of(
        tmp_path / "c", f"FROM {TERMINAL_IMAGE}\nCOPY . /c\n", secret__txt="1", a__txt="a"
    )
    (context / ".dockerignore").write_text("# not for the image\nsecret.txt\n")
    name = build_image(context)
    try:
        (context / "secret.txt").write_text("2")
        assert build_image(context) == name
        from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox

        with open_docker_sandbox(Limits(), SandboxSpec("/c"), image=name) as sandbox:
            assert "secret" not in sandbox.exec("ls -a /c", 10.0).output
    finally:
        remove(name)


@pytest.mark.docker
def test_many_who_want_one_image_get_the_same(tmp_path):
    context = context_of(tmp_path / "c", f"FROM {TERMINAL_IMAGE}\nRUN sleep 0.5\n")
    said: list[str] = []
    names: list[str] = []
    threads = [
        threading.Thread(target=lambda: names.append(build_image(context, say=said.append)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    try:
        assert len(names) == 4
        assert len(set(names)) == 1
        assert len(said) == 1
    finally:
        remove(names[0])


@pytest.mark.docker
def test_a_build_that_fails_says_what_the_build_said(tmp_path):
    context = context_of(tmp_path / "c", f"FROM {TERMINAL_IMAGE}\nRUN echo almost && exit 3\n")
    with pytest.raises(TaskError, match=r"(?s)returned a non-zero code: 3.*almost"):
        build_image(context)


@pytest.mark.docker
def test_a_build_that_does_not_end_is_given_up(tmp_path):
    context = context_of(tmp_path / "c", f"FROM {TERMINAL_IMAGE}\nRUN sleep 30\n")
    with pytest.raises(TaskError, match="building"):
        build_image(context, timeout_s=1.0)


@pytest.mark.docker
def test_an_image_that_is_nowhere_is_named():
    with pytest.raises(SandboxError, match=r"no image 'clawrl/nothing:0' here.*docker load"):
        ensure_image("clawrl/nothing:0")


def test_a_dockerfile_outside_its_context_is_refused(tmp_path):
    context_of(tmp_path / "c", "FROM x\n")
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    with pytest.raises(TaskError, match="inside"):
        build_image(tmp_path / "c", "../Dockerfile")
    with pytest.raises(TaskError, match="there is no 'Other'"):
        build_image(tmp_path / "c", "Other")


def test_the_stack_listens_on_loopback_alone_and_drops_what_it_can():
    stack = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    for service in stack["services"].values():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert not service.get("privileged")
        assert service["cap_drop"] == ["ALL"]
        build = service["build"]
        assert ((DOCKER / build["context"]).resolve() / build["dockerfile"]).is_file()


def test_the_stacks_command_is_one_that_serve_takes():
    from clawrl_gym.config import ServeConfig
    from clawrl_gym.config.compose import compose

    stack = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    module, *overrides = stack["services"]["serve"]["command"]
    assert module == "clawrl_gym.serve"
    plain = [o.split("${")[0] + "secret" if "${" in o else o for o in overrides]
    config = compose("serve", plain, ServeConfig)
    assert config.gateway.key == "secret"
    assert config.gateway.port == 8808


def test_one_at_a_time_makes_an_image_and_no_lock_stays():
    name = f"clawrl/of-test:{secrets.token_hex(4)}"
    inside, most = 0, 0

    def make(_):
        nonlocal inside, most
        with _exclusive(name):
            inside += 1
            most = max(most, inside)
            time.sleep(0.002)
            inside -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(make, range(40)))
    assert most == 1
    key = hashlib.sha256(name.encode()).hexdigest()[:16]
    assert list(Path("/tmp").glob(f"clawrl-image-*-{key}.lock")) == []
