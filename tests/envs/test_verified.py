"""SWE-bench Verified is recognised in task folders, too, and held out."""

import pytest

from clawrl_gym.envs.selection import selection_of
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.source import open_source
from clawrl_gym.envs.verified import (
    held_out_note,
    verified_commits,
    verified_folder,
    verified_in,
    verified_row,
)
from tests.support.terminal_folders import HELLO, write

COMMIT = verified_commits()["pallets__flask-5014"]
RUN = HELLO["run-tests.sh"]


@pytest.mark.parametrize(
    "changes",
    [
        {"Dockerfile": "FROM host\nWORKDIR /app\n# sweb.eval.x86_64.pallets_1776_flask-5014\n"},
        {"run-tests.sh": f"cd /testbed && git checkout {COMMIT} tests/test_x.py\n{RUN}"},
        {"tests/config.json": f'{{"repo": "pallets/flask", "base_commit": "{COMMIT[:8]}"}}'},
        {
            "task.yaml": f"instruction: Look at https://github.com/Pallets/Flask/tree/{COMMIT[:10]}\n"
        },
        {"metadata/source.md": "instance pallets__flask-5014 of SWE-bench"},
    ],
)
@pytest.mark.parametrize("above", ["", "train/"])
def test_a_folder_of_verified_is_held_out_whatever_its_name(tmp_path, changes, above):
    for number in range(8):
        write(tmp_path / f"{above}task-{number}", HELLO)
    write(tmp_path / f"{above}other-name", HELLO, **changes)
    source = open_source(TerminalEnvConfig.of({"tasks": str(tmp_path)}))
    assert f"{above}other-name" in source.ids("heldout")
    assert source.ids("train")
    (note,) = [line for line in said_of(source) if "Verified" in line]
    assert note.startswith(f"SWE-bench Verified: 1 of 9 tasks, such as {above}other-name, are its")
    config = {"tasks": str(tmp_path), "train_on_verified": True}
    assert not any(
        "Verified" in line for line in said_of(open_source(TerminalEnvConfig.of(config)))
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"repo": "pallets/flask", "base_commit": COMMIT},
        {"repo": "Pallets/Flask", "base_commit": COMMIT.upper()},
        {"repository": "pallets/flask", "commit_id": COMMIT},
        {"repo_url": "git@github.com:pallets/flask.git", "commit_hash": COMMIT[:9]},
        {"repo": "pallets__flask", "base_sha": COMMIT[:8]},
        {"metadata": {"source": {"repo": "pallets/flask", "base_commit": COMMIT[:10]}}},
        {"extra": ["sweb.eval.x86_64.pallets_1776_flask-5014"]},
    ],
)
def test_a_row_of_verified_is_known_whatever_its_id_and_its_fields_are_called(fields):
    assert verified_row({"instance_id": "my-1", **fields}) == "pallets__flask-5014"


@pytest.mark.parametrize(
    "fields",
    [
        {"repo": "other/flask", "base_commit": COMMIT[:8]},
        {"repo": "pallets/flask", "environment_setup_commit": COMMIT},
        {"repo": "pallets/flask", "problem_statement": f"as in pallets__flask-5014 at {COMMIT}"},
        {"repo": "pallets/flask", "base_commit": COMMIT[::-1]},
    ],
)
def test_a_row_that_only_speaks_of_verified_is_another_one(fields):
    assert verified_row({"instance_id": "my-1", **fields}) is None


def said_of(source):
    selection = selection_of(source)
    assert selection is not None
    return selection.lines()


def test_other_folders_are_not(tmp_path):
    for text in ("", COMMIT[:7], COMMIT[::-1], "flask-5014", "pallets__flask-50141"):
        folder = write(tmp_path / f"t{len(text)}", HELLO, **{"notes.md": text})
        assert verified_folder(folder) is None


def test_each_instance_is_known_by_id_image_and_commit():
    assert len(verified_commits()) == 500
    for instance_id, commit in verified_commits().items():
        owner, _, rest = instance_id.partition("__")
        assert verified_in([instance_id]) == instance_id
        assert verified_in([f"sweb.eval.arm64.{owner}_1776_{rest}:latest"]) == instance_id
        found = verified_in([f"git checkout {commit}"])
        assert found is not None
        assert verified_commits()[found] == commit
        repository = f"{owner}/{rest.rpartition('-')[0]}"
        assert verified_in([f"{repository} at {commit[:7]}"]) is not None


@pytest.mark.parametrize(
    ("row", "known"),
    [
        ({"instance_id": "pallets__flask-5014"}, True),
        ({"image": "x/pallets_1776_flask-5014:latest"}, True),
        ({"image_name": "pallets_s_flask-5014", "instance_id": "mine-1"}, True),
        ({"docker_image": "Pallets__Flask-5014"}, True),
        ({"base_commit": COMMIT}, True),
        ({"commit": COMMIT[:12]}, True),
        ({"commit": COMMIT[:11]}, False),
        ({"repo": "pallets/flask", "base_commit": COMMIT[:7]}, True),
        ({"repo_name": "pallets__flask", "commit": COMMIT[:11]}, True),
        ({"repo": "pallets/other", "commit": COMMIT[:11]}, False),
        ({"repo": "pallets/flask", "commit": COMMIT[:6]}, False),
        ({"repo": "pallets/flask", "commit": COMMIT[:10] + "0"}, False),
        ({"problem_statement": "pallets__flask-5014"}, False),
        ({"instance_id": None, "repo": None}, False),
        ({}, False),
    ],
)
def test_a_row_is_known_by_its_names_and_its_commit(row, known):
    assert verified_row(row) == ("pallets__flask-5014" if known else None)


def test_of_a_folder_two_hundred_files_of_a_mebibyte_are_looked_at(tmp_path):
    marked = b"pallets__flask-5014"
    for number in range(199):
        (tmp_path / f"a{number:03}").touch()
    (tmp_path / "b").write_bytes(marked.ljust(1 << 20))
    assert verified_folder(tmp_path) == "pallets__flask-5014"
    (tmp_path / "b").write_bytes(marked.ljust((1 << 20) + 1))
    assert verified_folder(tmp_path) is None
    (tmp_path / "b").write_bytes(marked)
    (tmp_path / "a199").touch()
    assert verified_folder(tmp_path) is None


def test_what_is_held_out_is_told_when_there_is_any():
    assert held_out_note([], 9) == ()
    (note,) = held_out_note(["b", "a"], 9)
    assert note.startswith(
        "SWE-bench Verified: 2 of 9 tasks, such as a, are its instances and held"
    )


def test_a_row_is_searched_a_few_levels_deep_and_may_be_nested_without_end() -> None:
    named: object = "pallets__flask-5014"
    for _ in range(3):
        named = [named]
    assert verified_row({"extra": named}) == "pallets__flask-5014"
    for _ in range(5_000):
        named = {"inner": [named]}
    assert verified_row({"extra": named}) is None
