"""Instances come from wherever people keep them; train and held-out share none."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.selection import selection_of
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.patch_reader import parse_patch
from clawrl_gym.envs.swe.rows import script
from clawrl_gym.envs.swe.rows.images import image_of
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.swe.rows.row import RowDefaults, instance_of
from clawrl_gym.envs.swe.source import open_source
from clawrl_gym.envs.verified import verified_commits, verified_row

PATCH = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+b\n"
FIFTH = f"#!/bin/bash\nset -uxo pipefail\n: '{script.START}'\npytest -rA\n: '{script.END}'\n"

Row = dict[str, Any]


def classic(number: int = 1, **fields: Any) -> Row:
    """A row as SWE-bench had them before 5.x."""
    row = {
        "instance_id": f"pallets__flask-{number}",
        "repo": "pallets/flask",
        "base_commit": "0123abc",
        "patch": PATCH.format(f"src/flask/f{number}.py"),
        "test_patch": PATCH.format("tests/test_basic.py"),
        "problem_statement": f"It fails in way {number}.",
        "hints_text": "",
        "created_at": "2020-01-01",
        "version": "2.0",
        "FAIL_TO_PASS": '["tests/test_basic.py::test_new"]',
        "PASS_TO_PASS": '["tests/test_basic.py::test_old"]',
        "environment_setup_commit": "4567def",
    }
    return row | fields


def fifth(number: int = 1, **fields: Any) -> Row:
    """A row of swebench 5.x."""
    own = {"image": "me/image:1", "eval_script": FIFTH, "log_parser": "parse_log_pytest_v2",
           "eval_type": "pass_and_fail"}  # fmt: skip
    return classic(number) | own | fields


def smith(**fields: Any) -> Row:
    """A row of SWE-smith: the patch makes the bug."""
    row = {
        "instance_id": "oauthlib__oauthlib.1fd5253.combine_file__09vlzwgc",
        "repo": "swesmith/oauthlib__oauthlib.1fd5253",
        "image_name": "jyangballin/swesmith.x86_64.oauthlib_1776_oauthlib.1fd5253",
        "patch": PATCH.format("oauthlib/common.py"),
        "problem_statement": "Signing fails.",
        "FAIL_TO_PASS": ["tests/test_common.py::Case::test_a"],
        "PASS_TO_PASS": ["tests/oauth/test_b.py::test_b"],
    }
    return row | fields


def read(row: Row, **defaults: Any) -> Instance:
    return instance_of(row, "train", RowDefaults(**defaults))


def write(path: Path, rows: Sequence[Row] | Mapping[str, Row]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    else:
        path.write_text(json.dumps(rows))
    return str(path)


def test_a_row_of_5x_says_how_it_is_run_and_graded() -> None:
    made = read(fifth(eval_type="fail_only"))
    assert (made.image, made.eval_script) == ("me/image:1", FIFTH)
    assert (made.log_parser, made.eval_type) == ("parse_log_pytest_v2", "fail_only")
    assert made.fail_to_pass == ("tests/test_basic.py::test_new",)
    assert (made.base_commit, made.version, made.split) == ("0123abc", "2.0", "train")


def test_a_classic_row_gets_script_parser_and_image_by_its_repository() -> None:
    made = read(classic())
    assert made.image == "swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest"
    assert made.log_parser == "parse_log_pytest"
    assert "\ngit checkout 0123abc -- tests/test_basic.py\n" in made.eval_script
    assert "\npytest -rA tests/test_basic.py\n" in made.eval_script
    assert made.eval_type == "pass_and_fail"


def test_a_row_of_django_runs_modules() -> None:
    ids = ["test_a (admin_scripts.tests.Case)"]
    row = classic(repo="django/django", FAIL_TO_PASS=ids, PASS_TO_PASS=[],
                  test_patch=PATCH.format("tests/admin_scripts/tests.py"))  # fmt: skip
    made = read(row)
    assert made.log_parser == "parse_log_django"
    assert "--parallel 1 admin_scripts.tests\n" in made.eval_script


def test_a_row_of_swe_gym_has_its_own_image() -> None:
    row = classic(repo="Project-MONAI/MONAI", instance_id="Project-MONAI__MONAI-3715")
    made = read(row)
    assert made.image == "xingyaoww/sweb.eval.x86_64.project-monai_s_monai-3715:latest"
    assert made.log_parser == "parse_log_pytest"
    assert "\npytest -rA tests/test_basic.py\n" in made.eval_script


def test_the_bug_of_a_row_of_swe_smith_is_set_up_and_its_reverse_is_gold() -> None:
    made = read(smith())
    assert made.image == "jyangballin/swesmith.x86_64.oauthlib_1776_oauthlib.1fd5253"
    assert made.setup_patch == PATCH.format("oauthlib/common.py")
    (hunk,) = parse_patch(made.patch).files[0].hunks
    assert sorted(hunk.split("\n")[1:]) == ["+a", "-b"]
    assert made.log_parser == "parse_log_pytest"
    assert "\npytest -rA tests/oauth/test_b.py tests/test_common.py\n" in made.eval_script


def test_a_row_of_multilingual_has_swebenchs_parser_and_needs_a_command() -> None:
    row = classic(repo="caddyserver/caddy", FAIL_TO_PASS=["TestA"], PASS_TO_PASS=[])
    with pytest.raises(TaskError, match=r"'eval_script'.*env\.test_command"):
        read(row)
    made = read(row, test_command="go test -v ./...")
    assert (made.log_parser, made.image) == (
        "parse_log_gotest",
        "swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest",
    )


def test_a_parser_that_tells_only_failures_is_known_by_its_repository() -> None:
    assert read(fifth(repo="eslint/eslint", eval_type=None)).eval_type == "fail_only"


def test_an_unknown_repository_needs_a_parser_and_a_command() -> None:
    with pytest.raises(TaskError, match=r"'pallets__flask-1'.*'eval_script'"):
        read(classic(repo="me/shop"), log_parser="parse_log_tap")
    with pytest.raises(TaskError, match=r"'log_parser'.*missing.*env\.log_parser"):
        read(classic(repo="me/shop"), test_command="make test")
    made = read(classic(repo="me/shop"), test_command="make", log_parser="parse_log_tap")
    assert made.log_parser == "parse_log_tap"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"problem_statement": None}, "'problem_statement': got None"),
        ({"problem_statement": "  "}, "'problem_statement'"),
        ({"repo": 7}, "'repo': got 7"),
        ({"FAIL_TO_PASS": "[]"}, "'FAIL_TO_PASS'.*at least one test"),
        ({"FAIL_TO_PASS": "tests/a.py"}, "'FAIL_TO_PASS'.*list of tests"),
        ({"FAIL_TO_PASS": {"a": 1}}, "'FAIL_TO_PASS'.*list of tests"),
        ({"PASS_TO_PASS": [1, 2]}, "'PASS_TO_PASS'.*tests as texts"),
        ({"PASS_TO_PASS": "[" * 9000}, "'PASS_TO_PASS'.*list of tests"),
        ({"patch": 3}, "'patch': got 3"),
        ({"test_patch": PATCH.format("../up.py"), "eval_script": ""}, "'test_patch'.*leads out"),
        ({"eval_script": "make test"}, "'eval_script'.*Start Test Output"),
        ({"eval_type": "any"}, "'eval_type'.*pass_and_fail"),
        ({"image_assets": '{"test_patch": [{"path": "a.png"}]}'}, "'image_assets'.*pictures"),
    ],
)
def test_a_wrong_field_is_named_with_its_row_and_a_cure(fields: Row, why: str) -> None:
    with pytest.raises(TaskError, match=rf"(?s)'pallets__flask-1': .*{why}"):
        read(fifth(**fields))


@pytest.mark.parametrize("name", ["problem_statement", "repo", "FAIL_TO_PASS", "PASS_TO_PASS"])
def test_a_missing_field_is_named(name: str) -> None:
    row = fifth()
    del row[name]
    with pytest.raises(TaskError, match=rf"{name}.*missing.*add it to the row"):
        read(row)


def test_r2e_rows_have_an_image_but_no_lists_of_tests() -> None:
    row = {"instance_id": "r", "docker_image": "namanjain12/aiohttp_final:1", "repo": "a/b"}
    assert image_of(row) == "namanjain12/aiohttp_final:1"
    with pytest.raises(TaskError, match="FAIL_TO_PASS"):
        read(row)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_a_file_is_read_in_each_form(tmp_path: Path, suffix: str) -> None:
    where = write(tmp_path / f"rows{suffix}", [fifth(number) for number in range(20)])
    source = open_source(SweEnvConfig.of({"instances": where}))
    train, heldout = source.ids("train"), source.ids("heldout")
    assert len(train) + len(heldout) == 20
    assert 1 <= len(heldout) <= 8
    assert set(train).isdisjoint(heldout)
    assert source.load(heldout[0]).split == "heldout"
    assert open_source(SweEnvConfig.of({"instances": where})).ids("train") == train


def test_rows_by_id_are_read(tmp_path: Path) -> None:
    rows = {"a": fifth(1), "b": fifth(2)}
    for row in rows.values():
        del row["instance_id"]
    source = open_source(SweEnvConfig.of({"instances": write(tmp_path / "rows.json", rows)}))
    assert sorted([*source.ids("train"), *source.ids("heldout")]) == ["a", "b"]


def test_a_folder_of_files_says_its_splits_by_their_names(tmp_path: Path) -> None:
    write(tmp_path / "data/train-00000-of-00001.parquet", [fifth(1), fifth(2)])
    write(tmp_path / "data/test-00000-of-00001.parquet", [fifth(3)])
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/more.json").write_text("not JSON")
    source = open_source(SweEnvConfig.of({"instances": str(tmp_path)}))
    assert source.ids("heldout") == ["pallets__flask-3"]
    assert source.ids("train") == ["pallets__flask-1", "pallets__flask-2"]


def task_folder(root: Path, row: Row) -> Path:
    folder = root / "tasks" / str(row["instance_id"])
    folder.mkdir(parents=True)
    files = {"patch": "gold.patch", "test_patch": "test.patch", "eval_script": "eval.sh",
             "problem_statement": "problem_statement.md"}  # fmt: skip
    for field, name in files.items():
        (folder / name).write_text(row[field])
    lists = {name: json.loads(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    (folder / "tests.json").write_text(json.dumps(lists))
    left = {name: row[name] for name in ("instance_id", "repo", "base_commit", "version", "image",
                                         "log_parser", "eval_type")}  # fmt: skip
    (folder / "task.yaml").write_text("".join(f"{name}: '{text}'\n" for name, text in left.items()))
    return folder


def test_a_task_repository_of_swebench_is_read_as_swebench_reads_it(tmp_path: Path) -> None:
    for number in range(3):
        folder = task_folder(tmp_path, fifth(number))
        (folder / "Dockerfile").write_text("FROM scratch\n")
    source = open_source(SweEnvConfig.of({"instances": str(tmp_path)}))
    made = source.load("pallets__flask-1")
    assert made.context == str(tmp_path / "tasks/pallets__flask-1")
    from swebench.task.repo import load_task

    theirs = load_task(tmp_path / "tasks/pallets__flask-1")
    assert (made.patch, made.eval_script, list(made.fail_to_pass)) == (
        theirs["patch"], theirs["eval_script"], theirs["FAIL_TO_PASS"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("task.yaml", "!!python/object/apply:os.system ['true']"),
        ("task.yaml", "[1, 2]"),
        ("tests.json", "{"),
        ("tests.json", "[" * 100_000),
        ("eval.sh", None),
    ],
)
def test_a_wrong_task_folder_is_an_error_that_names_it(
    tmp_path: Path, name: str, text: str | None
) -> None:
    folder = task_folder(tmp_path, fifth(1))
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(TaskError, match="pallets__flask-1"):
        open_source(SweEnvConfig.of({"instances": str(tmp_path)}))


def test_a_task_folder_reads_no_file_through_a_link_out_of_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not yours")
    folder = task_folder(tmp_path / "set", fifth(1))
    (folder / "gold.patch").unlink()
    os.symlink(secret, folder / "gold.patch")  # noqa: PTH211
    with pytest.raises(TaskError, match="of its own"):
        open_source(SweEnvConfig.of({"instances": str(tmp_path / "set")}))


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.json", "{", "not JSON"),
        ("a.json", '"x"', "expected a list"),
        ("a.json", "[]", "there is none"),
        ("a.json", "[1]", r"no 'instance_id'.*row 1"),
        ("a.json", '[{"repo": "a"}]', r"no 'instance_id'.*row 1"),
        ("a.jsonl", '{"instance_id": "a"}\n{"instance_id": "a"}', "field 'repo'"),
        ("a.jsonl", '{"instance_id": "a"}\nnot', "line 2"),
        ("a.json", "[" * 100_000, "not JSON"),
        ("a.jsonl", b"\xff\xfe", "UTF-8"),
        ("a.parquet", "no parquet", "not a readable Parquet"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(
    tmp_path: Path, name: str, text: str | bytes, why: str
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(TaskError, match=rf"a\.json.*{why}|a\.parquet.*{why}|{why}.*a\.json"):
        open_source(SweEnvConfig.of({"instances": str(path)}))


@pytest.mark.parametrize(
    ("bad", "name", "why"),
    [
        ("{", "rows.jsonl: row 2", "line 2: not JSON"),
        ("[1]", "rows.jsonl: row 2", "it has no 'instance_id'"),
        (json.dumps(fifth(1)), "pallets__flask-1", "it is a second row of this id"),
        (json.dumps(fifth(2, FAIL_TO_PASS=[])), "pallets__flask-2", "at least one test"),
        (json.dumps(fifth(2, log_parser="magic")), "pallets__flask-2", "one of swebench's parsers"),
        (json.dumps(fifth(2, patch=7)), "pallets__flask-2", "field 'patch'"),
        (
            json.dumps(classic(2, repo="me/shop")),
            "pallets__flask-2",
            "knows none for this repository",
        ),
    ],
)
def test_one_bad_row_is_left_out_and_never_drawn(
    tmp_path: Path, bad: str, name: str, why: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(fifth(1))}\n{bad}\n{json.dumps(fifth(3))}\n")
    config = SweEnvConfig.of({"instances": str(path)})
    source = open_source(config)
    drawn = {*source.ids("train"), *source.ids("heldout")}
    assert drawn == {"pallets__flask-1", "pallets__flask-3"}
    selection = selection_of(source)
    assert selection is not None
    assert selection.summary == "2 tasks used, 1 left out"
    assert selection.left_out[0].name.endswith(name)
    assert why in selection.left_out[0].reason
    assert why in config.left_out()[1]
    if name not in drawn:
        with pytest.raises(TaskError, match=r"cannot be used here|expected one of 2"):
            source.load(name)


def test_one_bad_file_or_folder_does_not_refuse_the_others(tmp_path: Path) -> None:
    write(tmp_path / "rows" / "good.json", [fifth(1)])
    (tmp_path / "rows" / "bad.json").write_text("{")
    config = SweEnvConfig.of({"instances": str(tmp_path / "rows")})
    assert config.left_out()[0] == "1 task used, 1 left out:"
    assert "not JSON" in config.left_out()[1]


def test_what_is_left_out_of_rows_beside_the_corpus_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [fifth(1), fifth(2, FAIL_TO_PASS=[])])
    config = SweEnvConfig.of({"instances": path, "heldout": "corpus"})
    assert config.left_out()[0] == "1 task used, 1 left out:"


def test_a_parser_that_swebench_has_not_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [classic(1)])
    with pytest.raises(ConfigError, match=r"env\.log_parser='magic', expected one of"):
        open_source(SweEnvConfig.of({"instances": path, "log_parser": "magic"}))


def test_a_place_that_is_none_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected 'corpus', a file, a folder"):
        open_source(SweEnvConfig.of({"instances": str(tmp_path / "none")}))
    with pytest.raises(TaskError, match="without instances"):
        open_source(SweEnvConfig.of({"instances": str(tmp_path)}))
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ConfigError, match=r"a\.csv"):
        open_source(SweEnvConfig.of({"instances": str(tmp_path / "a.csv")}))
    with pytest.raises(ConfigError, match="families chooses from the corpus"):
        open_source(SweEnvConfig.of({"instances": str(tmp_path), "families": ["shop"]}))


@pytest.mark.slow
def test_a_data_set_that_the_hub_does_not_give_is_an_error_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"'dev' of the data set 'no-such/data-set'"):
        open_source(SweEnvConfig.of({"instances": "no-such/data-set", "hub_split": "dev"}))


def test_an_unknown_id_is_an_error(tmp_path: Path) -> None:
    source = open_source(SweEnvConfig.of({"instances": write(tmp_path / "a.json", [fifth(1)])}))
    with pytest.raises(TaskError, match=r"'x'.*pallets__flask-1"):
        source.load("x")


def test_rows_that_are_one_problem_stay_in_one_split(tmp_path: Path) -> None:
    rows = [fifth(number, instance_id=f"x-{number}-{twin}") for number in range(30)
            for twin in range(3)]  # fmt: skip
    source = open_source(SweEnvConfig.of({"instances": write(tmp_path / "a.json", rows)}))
    train = {name[:-2] for name in source.ids("train")}
    heldout = {name[:-2] for name in source.ids("heldout")}
    assert train.isdisjoint(heldout)
    assert train
    assert heldout


def test_a_single_instance_is_for_training(tmp_path: Path) -> None:
    source = open_source(SweEnvConfig.of({"instances": write(tmp_path / "a.json", [fifth(1)])}))
    assert source.ids("train") == ["pallets__flask-1"]
    assert source.ids("heldout") == []


def test_held_out_instances_of_their_own_are_taken(tmp_path: Path) -> None:
    own = write(tmp_path / "a.json", [fifth(1), fifth(2)])
    other = write(tmp_path / "b.json", [fifth(3)])
    source = open_source(SweEnvConfig.of({"instances": own, "heldout": other}))
    assert source.ids("train") == ["pallets__flask-1", "pallets__flask-2"]
    assert source.ids("heldout") == ["pallets__flask-3"]


@pytest.mark.parametrize(
    "shared",
    [
        fifth(1),
        fifth(1, instance_id="other", problem_statement="In other words."),
        fifth(1, instance_id="other", patch=PATCH.format("other.py"),
              problem_statement=" It fails\n in way 1. "),
    ],
)  # fmt: skip
def test_a_held_out_instance_that_is_trained_on_is_an_error(tmp_path: Path, shared: Row) -> None:
    own = write(tmp_path / "a.json", [fifth(1), fifth(2)])
    other = write(tmp_path / "b.json", [fifth(3), shared])
    with pytest.raises(TaskError, match=r"is the train instance 'pallets__flask-1'"):
        open_source(SweEnvConfig.of({"instances": own, "heldout": other}))


VERIFIED = "pallets__flask-5014"


def test_training_on_verified_has_to_be_asked_for(tmp_path: Path) -> None:
    """Defect 4.4 of the reference: the shipped script trains on a subset of Verified."""
    where = write(tmp_path / "train_subset.json", [fifth(1, instance_id=VERIFIED)])
    with pytest.raises(ConfigError, match=r"Verified.*env\.heldout.*train_on_verified=true"):
        open_source(SweEnvConfig.of({"instances": where}))
    assert open_source(SweEnvConfig.of({"instances": where, "train_on_verified": True})).ids(
        "train"
    ) == [VERIFIED]
    other = write(tmp_path / "b.json", [fifth(2)])
    with pytest.raises(ConfigError, match="Verified"):
        open_source(SweEnvConfig.of({"instances": where, "heldout": other}))
    with pytest.raises(ConfigError, match="Verified"):
        open_source(SweEnvConfig.of({"instances": where, "heldout": "corpus"}))
    source = open_source(SweEnvConfig.of({"instances": other, "heldout": where}))
    assert source.ids("heldout") == [VERIFIED]


def test_instances_of_verified_in_a_larger_set_are_held_out(tmp_path: Path) -> None:
    rows = [fifth(number) for number in range(20)] + [fifth(30, instance_id=VERIFIED)]
    source = open_source(SweEnvConfig.of({"instances": write(tmp_path / "full.json", rows)}))
    assert VERIFIED in source.ids("heldout")
    assert source.ids("train")


@pytest.mark.parametrize(
    "fields",
    [
        {"base_commit": "7ee9ceb71e868944a46e1ff00b506772a53a4f1d"},
        {"base_commit": "7ee9ceb71e86"},
        {"base_commit": "7ee9ceb"},
        {"image_name": "swebench/sweb.eval.x86_64.pallets_1776_flask-5014:v1"},
        {"instance_id": "again/Pallets__Flask-5014"},
        {"repo": "swesmith/pallets__flask.7ee9ceb7"},
    ],
)
def test_verified_is_known_under_another_name(tmp_path: Path, fields: Row) -> None:
    rows = [fifth(number) for number in range(20)] + [fifth(30, **fields)]
    source = open_source(SweEnvConfig.of({"instances": write(tmp_path / "full.json", rows)}))
    name = str(rows[-1]["instance_id"])
    assert name in source.ids("heldout")
    selection = selection_of(source)
    assert selection is not None
    assert selection.lines() == (
        f"SWE-bench Verified: 1 of 21 tasks, such as {name}, are its instances and held out "
        "(env.train_on_verified=true trains on them)",
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"base_commit": "7ee9ceb", "repo": "me/flask"},
        {"base_commit": "7ee9cec71e868944a46e1ff00b506772a53a4f1d"},
        {"instance_id": "pallets__flask-50140"},
    ],
)
def test_what_only_looks_like_verified_is_not(fields: Row) -> None:
    assert verified_row(classic(30, **fields)) is None


def test_verified_has_five_hundred_instances() -> None:
    assert len(verified_commits()) == 500


def test_corpus_and_rows_can_be_held_against_each_other(tmp_path: Path) -> None:
    where = write(tmp_path / "a.json", [fifth(1)])
    source = open_source(SweEnvConfig.of({"heldout": where}))
    assert source.ids("heldout") == ["pallets__flask-1"]
    assert source.load("pallets__flask-1").split == "heldout"
    assert source.load(source.ids("train")[0]).split == "train"
    source = open_source(SweEnvConfig.of({"instances": where, "heldout": "corpus"}))
    assert source.ids("train") == ["pallets__flask-1"]
    assert source.load(source.ids("heldout")[0]).split == "heldout"
    assert open_source(SweEnvConfig.of({})).ids("train")[0].startswith("swe-")


def test_easy_is_a_part_of_the_corpus():
    easy, whole = (
        open_source(SweEnvConfig.of({"instances": "easy"})),
        open_source(SweEnvConfig.of({})),
    )
    families = {task_id.split("-")[1] for task_id in easy.ids("train")[:50]}
    assert families == {"compare", "constant", "key", "operator"}
    assert len(easy.ids("heldout")) < len(whole.ids("heldout"))
    assert easy.load(easy.ids("heldout")[0]) == whole.load(easy.ids("heldout")[0])
