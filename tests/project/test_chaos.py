"""Each thing that is looked at after a fault is seen when it does not hold."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from clawrl_gym.core.types import Episode, Group, Sample, StopReason, TaskRef, Turn
from clawrl_gym.store import SessionRow, Store, UpdateRow
from tests.chaos.assault import faults_of_parting
from tests.chaos.invariants import ALWAYS, AT_THE_END, Forecast, records, violations
from tests.chaos.ledger import LedgerAgent, acknowledged, digest_of
from tests.chaos.leftovers import Traces
from tests.chaos.processes import PARTS, Process, below, find, playing
from tests.chaos.target import fill_disk

UPDATES, GROUPS, MEMBERS, TURNS = 2, 2, 2, 2


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that came to its end, in small, with nothing wrong, and one group that waits."""
    folder = tmp_path / "run"
    (folder / "checkpoints" / "000002").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"trainer": {"steps": UPDATES}}))
    (folder / "report.html").touch()
    rows = [{"step": step, "logprob_gap/mean": 1e-6} for step in range(1, UPDATES + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asyncio.run(_write(folder, tmp_path / "ledger"))
    return folder


async def _write(folder: Path, ledger: Path) -> None:
    store = Store.open(folder)
    agent = LedgerAgent(LedgerAgent.Options(agent="terminal", file=ledger))
    number = 0
    for version in range(1, UPDATES + 1):
        samples: list[Sample] = []
        for _ in range(GROUPS):
            samples += await _group(store, agent, number, version - 1)
            number += 1
        update = UpdateRow(version, tokens=1, duration_s=1.0, groups=GROUPS, metrics={})
        ids = [sample.id for sample in samples if sample.id is not None]
        await store.add_update(update, ids, str(folder / "checkpoints" / f"{version:06d}"))
    await _group(store, agent, number, UPDATES)
    await store.close()


async def _group(store: Store, agent: LedgerAgent, number: int, version: int) -> list[Sample]:
    episodes, samples = [], []
    task = TaskRef(None, number, "train")
    for member in range(MEMBERS):
        name = f"g{number:06d}-{member}-0-abcdef"
        await store.add_session(SessionRow(name, None, number, "train", "rollout", 0.0))
        for index in range(TURNS):
            turn = _turn(name, index, version)
            await store.add_turn(turn)
            agent.action(turn.reply)
        await store.end_session(name, reward=float(member), stop_reason="terminated")
        episodes.append(Episode(name, number, task, StopReason.TERMINATED, float(member), TURNS))
        ids = [number, member, 7]
        samples.append(
            Sample(
                session_id=name, group_id=number, ids_T=ids, mask_T=[False, False, True],
                logprobs_T=[0.0, 0.0, -0.5], versions_T=[-1, -1, version],
                advantages_T=[0.0, 0.0, member - 0.5], reward=float(member),
            )
        )  # fmt: skip
    return await store.add_group(Group(number, task, episodes, version), samples)


def _turn(session_id: str, index: int, version: int) -> Turn:
    return Turn(
        session_id=session_id,
        index=index,
        kind="main",
        prompt_ids_T=list(range(5 * (index + 1))),
        sampled_ids_T=[7],
        logprobs_T=[-0.5],
        versions_T=[version],
        finish_reason="stop",
        messages=[{"role": "user", "content": f"turn {number}"} for number in range(index + 1)],
        reply={"role": "assistant", "content": f"{session_id} {index}"},
        created_s=0.0,
    )


def broken(folder: Path, max_staleness: int = 2) -> set[str]:
    with records(folder, folder.parent / "ledger", max_staleness) as run:
        return {line.partition(":")[0] for line in violations(run, AT_THE_END)}


def execute(folder: Path, *statements: str) -> None:
    """What no constraint shall keep from being done: the tables lose theirs first."""
    with sqlite3.connect(folder / "run.db") as db:
        for table in ("batches", "samples", "turns", "groups"):
            db.execute(f"CREATE TABLE copy_of_{table} AS SELECT * FROM {table}")
        for table in ("batches", "samples", "turns", "groups"):
            db.execute(f"DROP TABLE {table}")
            db.execute(f"ALTER TABLE copy_of_{table} RENAME TO {table}")
        for statement in statements:
            db.execute(statement)
    db.close()


def sql(*statements: str) -> Callable[[Path], None]:
    return lambda folder: execute(folder, *statements)


def rewrite(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


DOCTORED: dict[str, tuple[Callable[[Path], None], ...]] = {
    "every_acknowledged_turn_is_there": (
        sql("DELETE FROM turns WHERE id = (SELECT max(id) FROM turns)"),
        sql("UPDATE turns SET reply = '{\"role\": \"assistant\", \"content\": \"\"}' WHERE id = 1"),
    ),
    "no_turn_is_there_twice": (
        sql(
            "UPDATE turns SET idx = 1 - idx, base_id = NULL, base_tokens = 0, base_messages = 0, "
            "prompt = (SELECT prompt FROM turns WHERE id = 1)"
        ),
        sql("UPDATE turns SET idx = 5 WHERE id = 2"),
    ),
    "no_sample_is_trained_twice": (
        sql("INSERT INTO batches VALUES (2, 9, 1)"),
        sql("UPDATE samples SET session_id = (SELECT session_id FROM samples WHERE id = 1), "
            "ids = (SELECT ids FROM samples WHERE id = 1) WHERE id = 2"),
        sql("INSERT INTO groups SELECT 99, group_id, task_id, seed, split, version, created_s, "
            "used_by, compared, user FROM groups WHERE group_id = 4"),
    ),
    "no_member_of_a_group_is_trained_twice": (
        sql("UPDATE samples SET session_id = 'g000000-0-1-fedcba' WHERE id = 2"),
    ),
    "samples_are_fresh_enough": (
        sql("UPDATE batches SET version = 5 WHERE sample_id = 1"),
    ),
    "groups_are_trained_whole": (
        sql("DELETE FROM batches WHERE sample_id = 1"),
    ),
    "updates_follow_each_other": (
        sql("DELETE FROM updates WHERE version = 1"),
        sql("UPDATE groups SET used_by = 3 - used_by"),
        sql("UPDATE groups SET used_by = NULL WHERE group_id = 3"),
    ),
    "what_serves_is_what_was_learned": (
        rewrite("metrics.jsonl", "1e-06", "0.7"),
    ),
    "logs_agree_with_the_store": (
        rewrite("conversations.jsonl", '"type": "turn"', '"type": "nothing"'),
    ),
    "no_session_stays_open": (
        sql("UPDATE sessions SET ended_s = NULL WHERE rowid = 1"),
    ),
    "the_target_is_reached": (
        rewrite("config.yaml", f"steps: {UPDATES}", "steps: 9"),
        lambda folder: (folder / "report.html").unlink(),
        lambda folder: (folder / "checkpoints" / "000002").rmdir(),
    ),
}  # fmt: skip


def test_nothing_is_wrong_with_a_run_that_nobody_touched(run: Path) -> None:
    assert broken(run) == set()
    assert set(DOCTORED) == {check.__name__ for check in AT_THE_END}
    assert set(ALWAYS) < set(AT_THE_END)


@pytest.mark.parametrize(
    ("name", "doctor"), [(name, doctor) for name, ways in DOCTORED.items() for doctor in ways]
)
def test_each_check_sees_what_it_is_there_for(
    name: str, doctor: Callable[[Path], None], run: Path
) -> None:
    doctor(run)
    assert name in broken(run)


def test_what_is_in_full_files_of_the_logs_is_looked_at_too(run: Path) -> None:
    for name in ("conversations", "metrics"):
        log = run / f"{name}.jsonl"
        first, _, others = log.read_text().partition("\n")
        (run / f"{name}.000001.jsonl").write_text(first + "\n")
        log.write_text(others)
    assert broken(run) == set()
    rewrite("metrics.000001.jsonl", "1e-06", "0.7")(run)
    assert broken(run) == {"what_serves_is_what_was_learned"}


def test_a_sample_is_too_old_by_the_bound_of_its_run(run: Path) -> None:
    assert broken(run, max_staleness=0) == set()
    execute(run, "UPDATE batches SET version = 2 WHERE sample_id = 1")
    assert "samples_are_fresh_enough" not in broken(run, max_staleness=1)
    assert "samples_are_fresh_enough" in broken(run, max_staleness=0)


@pytest.mark.parametrize(
    ("change", "as_forecast"),
    [
        ((), True),
        (("UPDATE samples SET reward = 9 WHERE group_id = 2",), False),
        (("UPDATE groups SET position = 90 WHERE group_id = 2",), False),
        (("DELETE FROM batches WHERE sample_id = 5",), False),
    ],
)
def test_batches_after_a_resume_are_those_that_would_have_come(
    change: tuple[str, ...], as_forecast: bool, run: Path
) -> None:
    """The second update's checkpoint was not yet there when the run was killed."""
    ledger = run.parent / "ledger"
    execute(run, "UPDATE updates SET checkpoint = NULL WHERE version = 2")
    with records(run, ledger, 2) as before:
        forecast = Forecast.of(before)
    assert forecast.version == 1
    assert [group for group, _ in forecast.groups] == [2, 3, 4]
    execute(run, *change)
    with records(run, ledger, 2) as after:
        assert (list(forecast.contradictions(after)) == []) is as_forecast


def test_the_ledger_knows_a_reply_again_and_outlives_its_writer(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    agent = LedgerAgent(LedgerAgent.Options(agent="toolcall", file=file))
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    plain = {"role": "assistant", "content": "hello"}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    for reply in (plain, calling, plain):
        agent.action(reply)  # type: ignore[arg-type]
    again = json.loads(json.dumps(calling))
    again["tool_calls"][0]["id"] = "another"
    assert acknowledged(file) == {
        digest_of(plain): 2,  # type: ignore[arg-type]
        digest_of(again): 1,
    }


CHILD = """
import os, socket, subprocess, sys, tempfile
open_socket = socket.create_server(("127.0.0.1", 0))
shared = open(sys.argv[1], "w")
own = tempfile.mkdtemp()
nobody = subprocess.DEVNULL
child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=nobody)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_what_a_run_leaves_is_seen_and_what_others_have_is_not(tmp_path: Path) -> None:
    temporary, shared = tmp_path / "tmp", tmp_path / "shared"
    temporary.mkdir()
    driver = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(shared)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(temporary)},
        text=True,
    )
    assert driver.stdout is not None
    child = int(driver.stdout.readline())
    try:
        traces = Traces(driver.pid, tmp_path / "run", temporary)
        traces.look(closely=True)
        assert traces.orphans(0.0) == []
        driver.kill()
        driver.communicate()
        left = traces.left(0.0)
        assert [line.split()[0] for line in left] == ["process", "file"]
        assert str(child) in left[0]
        assert left[1] == f"file {shared}"
        assert len(traces.left_names()) == 1
        os.kill(child, signal.SIGKILL)
        shared.unlink()
        next(temporary.iterdir()).rmdir()
        assert traces.left(2.0) == []
        assert traces.left_names() == []
    finally:
        driver.kill()
        driver.communicate()


MIDDLE = """
import subprocess, sys
inner = "import subprocess as s, sys; print(s.Popen(['sleep', '600'], stdout=2).pid, flush=True)"
process = subprocess.Popen([sys.executable, "-c", inner + "; sys.stdin.read()"])
process.wait()
sys.stdin.read()
"""


def test_a_process_that_its_run_lost_sight_of_is_an_orphan(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", MIDDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    sleeper = int(driver.stdout.readline())
    try:
        while b"sleep" not in Path(f"/proc/{sleeper}/cmdline").read_bytes():
            time.sleep(0.01)  # the kernel knows its arguments a moment after it exists
        traces = Traces(driver.pid, tmp_path / "run", tmp_path)
        traces.look()
        (inner,) = [process for process in below(driver.pid) if process.parent == driver.pid]
        os.kill(inner.pid, signal.SIGKILL)
        while Path(f"/proc/{sleeper}/status").read_text().count(f"PPid:\t{inner.pid}\n"):
            time.sleep(0.01)  # the system takes a moment
        (orphan,) = traces.orphans(0.2)
        assert orphan.startswith(f"process {sleeper} sleep 600")
        os.kill(sleeper, signal.SIGKILL)
        assert traces.orphans(2.0) == []
    finally:
        driver.kill()
        driver.communicate()


def test_parts_are_told_apart_by_what_proc_says() -> None:
    me = os.getpid()
    names = {
        "fork server": (me, "python", "python -m clawrl_gym.inference.vllm.process --model x"),
        "learner": (1, "ray::LearnerActor", "ray::LearnerActor"),
        "gcs": (1, "gcs_server", "/ray/gcs_server"),
        "sandbox": (1, "bwrap", "bwrap --unshare-all"),
    }
    processes = {
        part: Process(9, 0, parent, name, line) for part, (parent, name, line) in names.items()
    }
    for part, process in processes.items():
        assert [own for own in PARTS if playing(own, [process])] == [part]
    own = find(me)
    assert own is not None
    assert own.runs
    assert not any(playing(part, [own]) for part in PARTS)


ERROR = "error: ClusterError: Ray's raylet ended"
AGAIN = "the serving process ended with exit code 3; starting it again, connections wait"
WAY_ON = "resume with: python -m clawrl_gym.train resume=/runs/one"


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        (["step 1/9", ERROR, WAY_ON, "a line of Ray's own"], []),
        ([f"stopped by SIGINT: {WAY_ON}"], []),
        ([ERROR], ["nothing says how to go on"]),
        ([ERROR, WAY_ON.replace("one", "other")], ["nothing says how to go on"]),
        ([ERROR, ERROR, WAY_ON], ["2 lines say how it ended"]),
        ([WAY_ON], ["0 lines say how it ended"]),
        ([ERROR, AGAIN, f"stopped by SIGTERM: {WAY_ON}"], []),
        ([ERROR, ERROR, AGAIN, ERROR, AGAIN, WAY_ON], ["0 lines say how it ended"]),
        (["Traceback (most recent call last):", AGAIN, ERROR, WAY_ON], ["a traceback was printed"]),
        (["Traceback (most recent call last):", ERROR, WAY_ON], ["a traceback was printed"]),
    ],
)
def test_an_end_is_one_line_with_its_cause_and_how_to_go_on(
    lines: list[str], faults: list[str]
) -> None:
    told = faults_of_parting(lines, Path("/runs/one"))
    assert [line.partition(":")[0] for line in told] == faults


@pytest.mark.root
def test_a_disk_is_full_however_much_is_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(disk)], check=True)
    allocate = os.posix_fallocate

    def late(descriptor: int, offset: int, length: int) -> None:
        with (disk / "of the run").open("ab") as file:
            file.write(b"x" * 10_000)
        allocate(descriptor, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", late)
    try:
        with (disk / "hog").open("wb") as hog:
            fill_disk(hog.fileno())
        free = os.statvfs(disk)
        assert free.f_bavail * free.f_frsize < 16_384
    finally:
        subprocess.run(["umount", str(disk)], check=True)
