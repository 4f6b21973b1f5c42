"""Rows of R2E-Gym, written by hand in the schema of its code (`DatasetRow`, `ParsedCommit`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits, Sandbox
from clawrl_gym.envs.selection import selection_of
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.evaluation import Evaluations
from clawrl_gym.envs.swe.modules import module_mounts
from clawrl_gym.envs.swe.patch import Patch
from clawrl_gym.envs.swe.patch_reader import parse_patch
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.logs import grade_log
from clawrl_gym.envs.swe.rows.protected_files import without_tests
from clawrl_gym.envs.swe.rows.r2e import is_r2e, swebench_row
from clawrl_gym.envs.swe.rows.repository import hide
from clawrl_gym.envs.swe.rows.row import RowDefaults, instance_of
from clawrl_gym.envs.swe.rows.runners import runner_of
from clawrl_gym.envs.swe.rows.script import swebench_log
from clawrl_gym.envs.swe.source import lives_in_images, open_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TESTS = """\
from shop import total


class TestTotal:
    def test_sum(self):
        assert total([1, 2]) == 3

    def test_empty(self):
        assert total([]) == 0


def test_known_to_fail():
    assert total([1]) == 2
"""
OLD = """\
\x1b[31mFAILED\x1b[0m lines are coloured
=========================== short test summary info ============================
PASSED r2e_tests/test_1.py::TestTotal::test_empty
FAILED r2e_tests/test_1.py::TestTotal::test_sum - assert 2 == 3
FAILED r2e_tests/test_1.py::test_known_to_fail - assert 1 == 2
"""
NEW = OLD.replace("FAILED r2e_tests/test_1.py::TestTotal", "PASSED r2e_tests/test_1.py::TestTotal")


def file_diff(path: str, *lines: tuple[str, str], old: str | None = None) -> dict[str, Any]:
    count = {
        kind: sum(type_ in ("context", kind) for type_, _ in lines) for kind in ("deleted", "added")
    }
    return {
        "old_file_content": "...",
        "new_file_content": "...",
        "header": {"file": {"path": path}, "misc_line": None},
        "index_line": {"old_commit_hash": "a1", "new_commit_hash": "b2", "mode": "100644"},
        "is_binary_file": False,
        "binary_line": None,
        "minus_file": {"path": old or f"a/{path}"},
        "plus_file": {"path": f"b/{path}"},
        "hunks": [
            {
                "descriptor": {
                    "old_range": {"start": 1, "length": count["deleted"]},
                    "new_range": {"start": 1, "length": count["added"]},
                    "section": "",
                },
                "line_group": {
                    "all_lines": [{"content": text, "type": kind} for kind, text in lines]
                },
                "modified_entities": [],
                "added_entities": [],
                "deleted_entities": [],
            }
        ],
    }


def row(**fields: Any) -> dict[str, Any]:
    source = file_diff(
        "shop.py",
        ("context", "def total(prices):"),
        ("deleted", "    return max(prices, default=0)"),
        ("added", "    return sum(prices)"),
    )
    commit = {
        "file_diffs": [
            source,
            file_diff("tests/test_shop.py", ("added", "x = 1")),
            file_diff("CHANGES.rst", ("added", "- mended")),
        ],
        "old_commit_hash": "a" * 40,
        "new_commit_hash": COMMIT,
        "commit_message": "mend the total",
        "commit_date": "2020-01-01T00:00:00",
        "metadata": {},
    }
    runs = {
        "repo_name": "shop",
        "new_commit_hash": COMMIT,
        "test_file_codes": [TESTS],
        "test_file_names": ["test_1.py"],
        "setup_res_code": 0,
        "setup_res_stdout": "",
        "setup_res_stderr": "",
        "new_commit_res_code": 1,
        "new_commit_res_stdout": NEW,
        "new_commit_res_stderr": "",
        "old_commit_res_code": 1,
        "old_commit_res_stdout": OLD,
        "old_commit_res_stderr": "",
    }
    expected = {
        "TestTotal.test_sum": "PASSED",
        "\x1b[1mTestTotal.test_empty\x1b[0m": "PASSED",
        "test_known_to_fail": "FAILED",
    }
    return {
        "repo_name": "shop",
        "docker_image": f"namanjain12/shop_final:{COMMIT}",
        "commit_hash": COMMIT,
        "parsed_commit_content": json.dumps(commit),
        "execution_result_content": json.dumps(runs),
        "modified_files": ["shop.py"],
        "modified_entity_summaries": [],
        "relevant_files": ["shop.py"],
        "num_non_test_files": 1,
        "num_non_test_func_methods": 1,
        "num_non_test_lines": 2,
        "prompt": "Write an issue ...",
        "problem_statement": "Here it is:\n[ISSUE]\nThe total is wrong.\n[/ISSUE]",
        "expected_output_json": json.dumps(expected),
    } | fields


def read(**fields: Any) -> Instance:
    return instance_of(swebench_row(row(**fields)), "train", RowDefaults())


def test_a_row_is_an_instance() -> None:
    instance = read()
    assert instance.id == f"shop__{COMMIT}"
    assert instance.image == f"namanjain12/shop_final:{COMMIT}"
    assert instance.problem_statement == "The total is wrong."
    assert instance.fail_to_pass == ("r2e_tests/test_1.py::TestTotal::test_sum",)
    assert instance.pass_to_pass == ("r2e_tests/test_1.py::TestTotal::test_empty",)
    assert parse_patch(instance.patch).paths == {"shop.py"}
    assert "+    return sum(prices)\n" in instance.patch
    assert instance.env["PATH"].startswith("/testbed/.venv/bin:")
    assert {"/r2e_tests", "/testbed/run_tests.sh"} <= set(instance.hidden)


def test_a_file_of_rows_is_a_source_and_what_is_wrong_is_left_out(tmp_path: Path) -> None:
    rows = [row(), row(commit_hash="1" * 40, parsed_commit_content="{}"),
            row(commit_hash="2" * 40, execution_result_content="{}")]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    config = SweEnvConfig(instances=str(path))
    assert lives_in_images(config)
    source = open_source(config)
    assert source.ids("train") == [f"shop__{COMMIT}"]
    selection = selection_of(source)
    assert selection is not None
    reasons = " ".join(entry.reason for entry in selection.left_out)
    assert "file_diffs: Field required; expected the fields of R2E-Gym's rows" in reasons
    assert "'FAIL_TO_PASS'" in reasons


def test_other_rows_are_none_of_its() -> None:
    assert is_r2e(row())
    assert not is_r2e({"instance_id": "a", "FAIL_TO_PASS": []})
    assert not is_r2e(row(FAIL_TO_PASS=[]))
    assert not is_r2e([])
    with pytest.raises(TaskError, match="expected the fields of R2E-Gym's rows"):
        swebench_row(row(expected_output_json=None))


@pytest.fixture
def image() -> Iterator[Sandbox]:
    """As an image of R2E-Gym is laid out, with this machine's Python."""
    sandbox = open_sandbox(
        Limits(disk_mb=256), workdir="/testbed", mounts=module_mounts(runner_of("pytest").modules)
    )
    try:
        run = "PYTHONPATH=/opt/clawrl/python python3 -W ignore -m pytest -rA r2e_tests\n"
        sandbox.write(
            "/testbed/shop.py", b"def total(prices):\n    return max(prices, default=0)\n"
        )
        sandbox.exec(
            "cd /testbed && git init -q && git add . && "
            "git -c user.name=a -c user.email=a@b commit -qm base",
            20.0,
        )
        sandbox.write("/testbed/run_tests.sh", run.encode())
        sandbox.write("/r2e_tests/test_1.py", TESTS.encode())
        yield sandbox
    finally:
        sandbox.close()


@pytest.mark.sandbox
def test_its_tests_lie_in_the_image_and_an_agent_is_not_shown_them(image: Sandbox) -> None:
    instance = read()
    hide(instance, image, 20.0)
    assert image.exec("ls / /testbed", 5.0).output.split("/testbed:")[1].split() == ["shop.py"]
    assert "r2e_tests" not in image.exec("ls /", 5.0).output


@pytest.mark.sandbox
@pytest.mark.parametrize("is_solved", [True, False])
def test_they_are_run_for_a_grade(image: Sandbox, is_solved: bool) -> None:
    instance = read()
    patch = parse_patch(instance.patch) if is_solved else Patch()
    output = Evaluations(instance, lambda: image, 60.0).run(patch, instance.eval_script)
    report = grade_log(instance, swebench_log(output))
    assert (report.resolved, output.exit_code) == (is_solved, 1)
    assert report.tests["r2e_tests/test_1.py::TestTotal::test_empty"] == "PASSED"


def test_a_patch_that_brings_a_script_or_tests_of_its_own_loses_them() -> None:
    instance = read()
    own = "".join(
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+exit 0\n"
        for path in ("run_tests.sh", "r2e_tests/helper.py", "shop2.py")
    )
    assert without_tests(parse_patch(own), instance).paths == {"shop2.py"}
