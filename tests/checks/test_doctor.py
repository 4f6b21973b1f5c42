from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

import pytest
from rich.console import Console

from clawrl_gym.checks import MachineCheck, Status, host, software
from clawrl_gym.checks.check import version
from clawrl_gym.doctor import is_ready, main, show
from tests.support.fake_engine import FakeEngine

GOOD = MachineCheck("Python", Status.OK, "3.11.7", "everything")
BAD = MachineCheck(
    "bubblewrap", Status.MISSING, "not installed", "sandboxes", "apt-get install bubblewrap"
)
SPARE = MachineCheck("Docker", Status.OPTIONAL, "no engine", "images", "apt-get install docker.io")


def printed(checks: list[MachineCheck], width: int = 80) -> str:
    out = io.StringIO()
    show(checks, Console(file=out, width=width, color_system=None))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_missing_is_shown_with_its_cure_and_the_verdict(width: int) -> None:
    words = printed([GOOD, BAD, SPARE], width)
    assert "✗ missing" in words
    assert "      apt-get install bubblewrap\n" in words
    assert "      apt-get install docker.io\n" in words
    assert "cannot run `make train` yet: bubblewrap." in words
    assert max(len(line) for line in words.splitlines()) <= width


def test_a_machine_that_only_lacks_optional_things_is_ready() -> None:
    assert is_ready([GOOD, SPARE])
    assert not is_ready([GOOD, BAD])
    assert "This machine can run `make train`." in printed([GOOD, SPARE])


def test_a_long_cure_stays_on_one_line_to_be_copied() -> None:
    cure = "sysctl -w " + "kernel.something=1 " * 12 + "x"
    check = MachineCheck("user namespaces", Status.MISSING, "no", "all", cure)
    assert f"      {cure}\n" in printed([check])


def test_json_says_the_same_and_the_exit_code_follows(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == (0 if answer["ok"] else 1)
    assert answer["ok"] == all(check["status"] != "missing" for check in answer["checks"])
    names = [check["name"] for check in answer["checks"]]
    for name in ("Python", "vLLM", "memory", "disk", "/dev/shm", "bubblewrap", "GPU", "Docker"):
        assert name in names
    assert all(check["cure"] for check in answer["checks"] if check["status"] != "ok")


def test_the_doctor_loads_no_heavy_package() -> None:
    code = (
        "import sys; from clawrl_gym.doctor import main; main(['--json']); "
        "sys.exit(' '.join({'torch', 'ray', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stderr.strip() == ""


def test_the_heavy_packages_are_looked_at_one_by_one() -> None:
    checks = {check.name: check for check in software.check_packages()}
    assert set(checks) == {"vLLM", "torch", "ray", "transformers", "gymnasium", "hydra-core"}
    assert checks["torch"].status is Status.OK
    assert version("torch") in astuple(checks["torch"])


def test_an_old_python_is_missing() -> None:
    assert software.check_python((3, 10, 2)).status is Status.MISSING
    assert software.check_python((3, 12, 0)).status is Status.OK
    assert software.check_python((3, 14, 0)).status is Status.MISSING


def test_a_processor_without_vectors_is_missing() -> None:
    assert host.check_cpu({"sse2"}, "x86_64").status is Status.MISSING
    assert "avx512f" in host.check_cpu({"avx2", "avx512f"}, "x86_64").finding
    assert host.check_cpu(set(), "aarch64").status is Status.OK


def test_little_memory_is_missing() -> None:
    low = host.check_memory(16.0, 2.0)
    assert low.status is Status.MISSING
    assert low.finding == "2.0 GiB free of 16.0"
    assert host.check_memory(16.0, 12.0).status is Status.OK
    assert host.check_memory(16.0, host.MIN_MEMORY_GB).status is Status.OK


def test_the_disk_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    finding = host.check_disk(tmp_path / "runs" / "later").finding
    free_gb = shutil.disk_usage(tmp_path).free / 1024**3
    assert finding.endswith(f"at {tmp_path}")
    assert float(finding.split()[0]) == pytest.approx(free_gb, abs=1.0)


def test_a_missing_dev_shm_is_optional_with_a_cure(tmp_path: Path) -> None:
    check = host.check_shm(tmp_path / "no")
    assert check.status is Status.OPTIONAL
    assert "remount" in check.cure


def test_docker_is_looked_for_as_a_run_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    check = software.check_docker()
    assert (check.status, "no such socket" in check.finding) == (Status.OPTIONAL, True)
    assert "make engine" in check.cure
    with FakeEngine(tmp_path / "docker.sock"):
        check = software.check_docker()
    assert (check.status, check.cure) == (Status.OK, "")
    assert check.finding.startswith("DOCKER_HOST (unix://")


def test_a_gpu_without_the_build_for_it_is_said() -> None:
    check = host.check_gpu(["NVIDIA H200, 143771 MiB"])
    if version("vllm"):
        assert check.status is Status.OK
    else:
        assert "cannot use it" in check.finding
        assert check.cure == "make setup BUILD=gpu"
    assert host.check_gpu([]).status is Status.OPTIONAL


def test_a_browser_that_was_downloaded_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "chromium_headless_shell-1/linux/headless_shell"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    check = software.check_browser()
    assert (check.status, check.cure) == (Status.OK, "")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "nothing"))
    check = software.check_browser()
    assert (check.status is Status.OK) is ("no Chromium" not in check.finding)
