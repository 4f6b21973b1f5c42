"""The users of a serving folder: their names, their keys, and how they are removed at rest."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clawrl_gym import users as command
from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.ownership import OWNER, id_range, name_of, stored_id, user_of
from clawrl_gym.serving.users import remove_user, user_folder
from clawrl_gym.store import Store
from clawrl_gym.store.allowance_file import Taken, write_taken
from clawrl_gym.store.users import USERS_FILE, Users
from tests.store.test_store import make_group, make_sample, update
from tests.store.test_store_delete import fill
from tests.store.test_store_delete import session as session_row


@pytest.mark.parametrize("user", [OWNER, "anna", "a.b-c_d", "0"])
@pytest.mark.parametrize("name", ["s", "a:b", "anna", "x" * 200])
def test_a_stored_id_says_whose_it_is_and_how_they_call_it(user: str, name: str) -> None:
    stored = stored_id(user, name)
    assert (user_of(stored), name_of(stored)) == (user, name)
    others = [stored_id(other, name) for other in ("ann", "anna0", "anna.", "b") if other != user]
    if user != OWNER:
        begin, end = id_range(user)
        assert begin <= stored < end
        assert not any(begin <= other < end for other in [name, *others])


def test_a_key_opens_for_its_user_alone_and_is_not_in_the_file(tmp_path: Path) -> None:
    users = Users(tmp_path)
    anna, ben = users.add("anna"), users.add("Ben", retention_days=3)
    assert [(u.name, u.retention_days) for u in users.all()] == [("anna", None), ("Ben", 3)]
    beside = Users(tmp_path)  # another process
    for key, name in ((anna, "anna"), (ben, "Ben")):
        user = beside.of_key(key)
        assert user is not None
        assert user.name == name
        assert key.encode() not in (tmp_path / USERS_FILE).read_bytes()
    for wrong in ("", anna[:-1], anna + " ", "\ud800", "anna"):
        assert beside.of_key(wrong) is None
    assert (tmp_path / USERS_FILE).stat().st_mode & 0o777 == 0o600


def test_another_key_shuts_out_the_one_before(tmp_path: Path) -> None:
    users, beside = Users(tmp_path), Users(tmp_path)
    old = users.add("anna")
    assert beside.of_key(old) is not None
    new = users.renew_key("anna")
    assert new != old
    assert beside.of_key(old) is None
    assert beside.of_key(new) is not None


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "../x", "a/b", "a@7", "-x", ".x", "x" * 33, "é", "小明", "a\n", "a\0", "owner",
     "Policy", "OWNER"],
)  # fmt: skip
def test_what_cannot_be_a_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="got the user name"):
        Users(tmp_path).add(name)
    assert not (tmp_path / USERS_FILE).exists()


def test_names_that_differ_by_case_alone_are_one(tmp_path: Path) -> None:
    users = Users(tmp_path)
    users.add("anna")
    for name in ("anna", "Anna"):
        with pytest.raises(ConfigError, match="already"):
            users.add(name)
    with pytest.raises(ConfigError, match="there are: anna"):
        users.renew_key("ben")
    with pytest.raises(ConfigError, match="there is no user 'ben'"):
        users.begin_removal("ben")


def test_who_is_being_removed_has_no_key_and_keeps_the_name_until_then(tmp_path: Path) -> None:
    users = Users(tmp_path)
    key = users.add("anna")
    users.begin_removal("anna")
    assert users.of_key(key) is None
    assert users.get("anna") is None
    assert users.leaving() == ["anna"]
    with pytest.raises(ConfigError, match="is being removed"):
        users.add("anna")
    with pytest.raises(ConfigError, match="is being removed"):
        users.renew_key("anna")
    users.end_removal("anna")
    assert users.of_key(users.add("anna")) is not None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": "x", "users": []}',
     '{"format": "clawrl_gym users 1", "users": [{"name": 1}]}'],
)  # fmt: skip
def test_a_broken_file_is_told_and_changes_nobody_who_is_inside(tmp_path: Path, text: str) -> None:
    users = Users(tmp_path)
    key = users.add("anna")
    assert users.of_key(key) is not None
    (tmp_path / USERS_FILE).write_text(text)
    assert users.of_key(key) is not None, "serving goes on with what was there"
    with pytest.raises(StoreError, match=r"cannot read .*users\.json"):
        Users(tmp_path).all()
    with pytest.raises(StoreError, match="restore the file"):
        users.add("ben")
    assert (tmp_path / USERS_FILE).read_text() == text


def test_two_processes_that_add_users_at_once_lose_none(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from clawrl_gym.store.users import Users\n"
        "users = Users(Path(sys.argv[1]))\n"
        "for number in range(20): users.add(f'{sys.argv[2]}{number}')\n"
    )

    def add(prefix: str) -> int:
        arguments = [sys.executable, "-c", code, str(tmp_path), prefix]
        return subprocess.run(arguments, env=os.environ, timeout=60, check=False).returncode

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(add, "ab")) == [0, 0]
    names = {user.name for user in Users(tmp_path).all()}
    assert names == {f"{prefix}{number}" for prefix in "ab" for number in range(20)}


# The command.


def run(folder: Path, *arguments: str) -> int:
    return command.main([*arguments, "--dir", str(folder)])


def test_the_list_of_nobody_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").touch()
    assert run(tmp_path, "list") == 0
    assert capsys.readouterr() == (
        "",
        f"no users in {tmp_path}: whoever starts serve is the only one\n",
    )


def test_the_command_shows_a_key_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "serve"
    assert run(folder, "add", "anna", "--retention-days", "7") == 0
    key, words = capsys.readouterr()
    user = Users(folder).of_key(key.strip())
    assert user is not None
    assert "shown this once" in words
    assert folder.stat().st_mode & 0o777 == 0o700
    assert run(folder, "list") == 0
    listed = capsys.readouterr().out
    assert "anna" in listed
    assert "7 days" in listed
    assert key.strip() not in listed
    assert run(folder, "key", "anna") == 0
    assert Users(folder).of_key(key.strip()) is None
    assert Users(folder).of_key(capsys.readouterr().out.strip()) is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "a b"], "got the user name 'a b', expected"),
        (["key", "anna"], "which is not a folder"),
        (["remove", "anna"], "which is not a folder"),
        (["list"], "which is not a folder"),
    ],
)
def test_the_command_refuses_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(tmp_path / "none", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", ["list", "add anna", "remove anna"])
def test_a_folder_of_other_things_gets_no_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    (tmp_path / "letter.txt").touch()
    assert run(tmp_path, *words.split()) == 2
    assert "in which nobody serves" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("days", ["0", "-1", "nan", "inf", "week"])
def test_days_that_are_none_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: str
) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path, "add", "anna", "--retention-days", days)
    assert "expected days, more than 0" in capsys.readouterr().err


# Removal.


def files_with(folder: Path, text: str) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in paths if text.encode() in path.read_bytes()]


async def test_nothing_of_a_removed_user_is_left_in_any_file(tmp_path: Path) -> None:
    users = Users(tmp_path)
    for name in ("anna", "anna0"):
        users.add(name)
        weights = user_folder(tmp_path, name) / "checkpoints" / "000001"
        weights.mkdir(parents=True)
        (weights / "optimizer.pt").write_text(f"{name}/weights")
    (tmp_path / "report.html").write_text("anna/one said")
    store = Store.open(tmp_path)
    for session in ("anna/one", "anna/two", "anna0/one", "one"):
        await fill(store, session, 2)
    await store.close()
    write_taken(tmp_path, Taken({("feedback_per_day", "anna"): (1, 2)}))
    await remove_user(tmp_path, "anna")
    assert files_with(tmp_path, "anna/") == files_with(tmp_path, '"anna"') == []
    assert json.loads((tmp_path / USERS_FILE).read_text())["users"][0]["name"] == "anna0"
    assert (user_folder(tmp_path, "anna0") / "checkpoints").is_dir()
    store = Store.open(tmp_path)
    assert [row.id for row in await store.sessions()] == ["anna0/one", "one"]
    assert len(await store.turns_of("anna0/one")) == 2
    await store.close()


async def test_a_removal_that_was_interrupted_is_finished_by_the_same_command(
    tmp_path: Path,
) -> None:
    Users(tmp_path).add("anna")
    store = Store.open(tmp_path)
    await fill(store, "anna/one", 1)
    with pytest.raises(StoreError, match="can no longer come in"):  # whoever holds it is stuck
        await remove_user(tmp_path, "anna", timeout_s=0.01)
    assert Users(tmp_path).leaving() == ["anna"]
    await store.close()
    await remove_user(tmp_path, "anna")
    assert files_with(tmp_path, "anna") == []


async def test_two_commands_that_remove_the_same_user_both_end_well(tmp_path: Path) -> None:
    Users(tmp_path).add("anna")
    store = Store.open(tmp_path)
    await fill(store, "anna/one", 1)
    await store.close()
    await asyncio.gather(remove_user(tmp_path, "anna"), remove_user(tmp_path, "anna"))
    assert Users(tmp_path).all() == []


async def test_expired_sessions_and_lists_can_be_one_users(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for session in ("one", "anna/one", "anna0/one"):
        await fill(store, session, 1)
    for user, expected in (
        (None, {"one", "anna/one", "anna0/one"}), (OWNER, {"one"}), ("anna", {"anna/one"}),
        ("ben", set()),
    ):  # fmt: skip
        assert set(await store.expired_sessions(2e10, user)) == expected
        summaries = await store.session_summaries(10, False, user)
        assert {summary.session.id for summary in summaries} == expected
    await store.close()


# Weights of their own, in the store.


@pytest.mark.parametrize("record", [True, False])
async def test_users_count_their_updates_by_themselves_and_go_on_from_them(
    tmp_path: Path, record: bool
) -> None:
    store = Store.open(tmp_path, record=record)
    for session in ("anna/one", "ben/one"):
        await store.add_session(session_row(session))
    for number, owner in enumerate(["anna", "", "anna", "ben", "anna"]):
        await store.add_group(make_group(number), [make_sample(number)], (), owner)
    await store.add_update(update(1, groups=1), [], None)
    await store.add_user_update("anna", update(1, groups=2), "users/anna/checkpoints/000001")
    waiting = await store.untrained_groups()
    assert [(group.id, group.user) for group in waiting] == [(3, "ben"), (4, "anna")]
    with pytest.raises(StoreError, match="expected at most the 1 that wait"):
        await store.add_user_update("ben", update(1, groups=2), "checkpoint")
    await store.add_user_update("anna", update(2, groups=1), None)
    assert [group.user for group in await store.untrained_groups()] == ["ben"]
    assert await store.rollback_to_checkpoint() is None, "the run's own has no checkpoint"
    assert {group.id for group in await store.untrained_groups()} == {1, 3, 4}
    await store.close()
    store = Store.open(tmp_path, record=record)
    newest = await store.newest_of_users()
    assert {name: row.version for name, row in newest.items()} == {"anna": 1}
    assert await store.updates() == []
    await store.delete_user("anna")
    assert await store.newest_of_users() == {}
    await store.close()
    assert files_with(tmp_path, "anna") == []


def test_whoever_changes_users_waits_for_another_and_gives_up_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = Users(tmp_path)
    users.add("anna")
    monkeypatch.setattr("clawrl_gym.store.users._LOCK_TIMEOUT_S", 0.05)
    with (tmp_path / "users.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another process changes the users and holds"):
            users.add("ben")
    assert [user.name for user in Users(tmp_path).all()] == ["anna"]
    users.add("ben")
