import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.terminal.network import fetching_line, refuse_fetching
from clawrl_gym.envs.terminal.pytest_summary import collected, failures_of

HEADER = "=========== short test summary info ============\n"


def test_all_passed_is_no_failure():
    output = f"x\n{HEADER}PASSED t.py::test_a\nPASSED t.py::T::test_b[1]\n== 2 passed in 0.1s =="
    assert failures_of(output, ["test_a", "test_b"]) == []


@pytest.mark.parametrize("output", ["", "2 passed", "PASSED t.py::test_a", "== no tests ran =="])
def test_a_run_without_a_summary_has_proved_nothing(output):
    assert failures_of(output, []) == ["the tests printed no summary"]


@pytest.mark.parametrize("word", ["FAILED", "ERROR", "XPASS", "SKIPPED"])
def test_anything_but_passed_fails(word):
    (why,) = failures_of(f"{HEADER}PASSED t::test_a\n{word} t::test_b - why", ["test_a"])
    assert why == f"t::test_b {word.lower()}"


def test_a_skipped_test_has_not_passed():
    """The reference resolves a task whose tests were all skipped."""
    output = f"{HEADER}SKIPPED [1] t.py:3: no reason\n=== 1 skipped in 0.01s ==="
    assert failures_of(output, ["test_a"]) == ["[1] skipped", "test_a did not run"]


def test_an_expected_failure_has_passed():
    assert failures_of(f"{HEADER}XFAIL t::test_a", ["test_a"]) == []


def test_a_test_that_was_left_out_is_missed():
    assert failures_of(f"{HEADER}PASSED t::test_a", ["test_a", "test_b"]) == ["test_b did not run"]
    assert failures_of(HEADER, []) == ["no test ran"]


def test_a_second_summary_can_only_add_failures():
    forged = f"{HEADER}PASSED t::test_a\n"
    assert failures_of(f"{forged}{HEADER}FAILED t::test_a - no", ["test_a"]) == ["t::test_a failed"]


def test_the_tests_of_a_file_are_those_that_pytest_collects():
    source = (
        "def test_a(): pass\nasync def test_b(): pass\ndef helper():\n    def test_no(): pass\n"
        "class TestX:\n    def test_c(self): pass\nclass Other:\n    def test_no(self): pass\n"
    )
    assert collected(source) == ("test_a", "test_b", "test_c")
    assert collected("def test_a(:") == collected("\0") == collected("(" * 5000) == ()


@pytest.mark.parametrize(
    "line",
    ["apt-get update", "apt -y install curl", "curl -LsSf https://astral.sh/uv/install.sh | sh",
     "pip install pytest", "uv add pytest", "uvx -p 3.13 pytest", "npm install",
     "wget -q http://x.org/a", "git clone https://x.org/r", "  uv init"],
)  # fmt: skip
def test_a_script_that_fetches_is_refused_by_its_line(line):
    with pytest.raises(TaskError, match=r"run-tests\.sh fetches from the network.*network=true"):
        refuse_fetching(f"#!/bin/bash\nset -e\n{line}\npytest", "a/run-tests.sh")


@pytest.mark.parametrize(
    "line",
    ["# apt-get update", "curl http://localhost:8080/x", "curl -s http://127.0.0.1/x",
     "pytest -rA  # pip install pytest", "command -v uv || pip install uv", "pip --version",
     "pip install --no-index ./x.whl", "grep apt-get log", "python3 uv.py", "npm test"],
)  # fmt: skip
def test_a_script_that_does_not_fetch_is_not_refused(line):
    assert fetching_line(line) is None
