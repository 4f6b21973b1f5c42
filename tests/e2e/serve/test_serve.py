"""`python -m clawrl_gym.serve`: it answers, learns while it answers, and survives kill -9."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.processes.descendants import descendants
from clawrl_gym.core.types import Sample
from clawrl_gym.store import StoreReader
from tests.e2e.runs import ROOT, still_alive
from tests.e2e.serving import Serving
from tests.support.waiting import becomes_true

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.ray, pytest.mark.timeout(600)]

WRONG = "No, that is wrong. Please do it again."
RIGHT = "Thanks, that is right!"


def talk(serving: Serving, session_id: str, *said: str) -> list[dict[str, Any]]:
    """Say one thing after another; returns the history."""
    history: list[dict[str, Any]] = []
    for words in said:
        history.append({"role": "user", "content": words})
        history.append(serving.chat(session_id, history))
    return history


def test_judged_turns_become_a_new_version_and_the_next_reply_comes_from_it(
    serving: Serving,
) -> None:
    for number, reaction in enumerate((WRONG, RIGHT, WRONG, RIGHT)):
        talk(serving, f"learn-{number}", f"Copy a{number}.txt to b.txt.", reaction)
    wrong, right = (reacted_turns(serving, f"learn-{number}") for number in (0, 1))
    assert [turn["kind"] for turn in wrong] == ["main", "main"]
    assert wrong[0]["next_state"] == [{"role": "user", "content": WRONG}]
    assert wrong[1]["next_state"] is None
    assert [verdict["value"] for verdict in wrong[0]["verdicts"]] == [-1]
    assert [verdict["value"] for verdict in right[0]["verdicts"]] == [1]
    (version,) = wrong[0]["versions"]
    serving.wait_for(f"update {version + 1}:")
    assert serving.version() > version


def reacted_turns(serving: Serving, session_id: str) -> list[dict[str, Any]]:
    """The session's turns, once the first is judged."""
    turns: list[dict[str, Any]] = serving.wait_until(
        lambda: (turns := serving.session(session_id)["turns"])[0]["verdicts"] and turns,
        f"a verdict on {session_id}",
    )
    return turns


def test_feedback_on_the_last_turn_wins_and_is_trained(serving: Serving) -> None:
    talk(serving, "liked", "Sort the lines of x.txt.")
    answer = serving.http.post("/v1/feedback", json={"session_id": "liked", "thumb": "down"})
    assert answer.status_code == 200, answer.text
    verdict = serving.wait_for("feedback")  # the flush needs no second turn
    serving.wait_for("update ", after=serving.lines.index(verdict))
    verdicts = serving.session("liked")["turns"][0]["verdicts"]
    assert [(v["kind"], v["value"]) for v in verdicts] == [("feedback", -1)]


def test_an_earlier_version_serves_again_and_is_learned_from(serving: Serving) -> None:
    kept = serving.http.get("/v1/versions").json()["data"]
    earlier = next(one["version"] for one in kept if one["version"])
    seen, before = len(serving.lines), serving.version()
    source, copy = (
        serving.folder / "checkpoints" / f"{n:06d}" / "model.safetensors"
        for n in (earlier, before + 1)
    )
    weights = source.stat()  # the oldest checkpoint may go for the one that is made of it
    answer = serving.http.post(f"/v1/versions/{earlier}")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"returned_to": earlier, "version": before + 1}
    assert serving.version() == before + 1
    serving.wait_for(f"the weights of version {earlier} are back", after=seen)
    assert os.path.samestat(copy.stat(), weights)
    assert serving.http.get("/v1/versions").json()["data"][-1]["returned_to"] == earlier
    talk(serving, "after", "Sort the lines of y.txt.")
    serving.http.post("/v1/feedback", json={"session_id": "after", "thumb": "down"})
    serving.wait_for(f"update {before + 2}", after=seen)


def trained_samples(folder: Path, turn_id: int) -> list[Sample]:
    """Those of a turn that an update has used."""
    store = StoreReader(folder)
    try:
        versions = [update.version for update in store.updates()]
        samples = [sample for version in versions for sample in store.samples_of_update(version)]
    finally:
        store.close()
    return [sample for sample in samples if sample.turn_id == turn_id]


def test_a_persons_correction_is_distilled_while_serving(serving: Serving) -> None:
    seen = len(serving.lines)
    serving.chat("corrected", [{"role": "user", "content": "Tom has 3 pens and gets 4 more."}])
    correction = {"session_id": "corrected", "text": "say it in short casual words"}
    answer = serving.http.post("/v1/feedback", json=correction)
    assert answer.status_code == 200, answer.text
    serving.wait_for("feedback", after=seen)
    (turn,) = serving.session("corrected")["turns"]
    assert becomes_true(lambda: trained_samples(serving.folder, turn["id"]))
    (sample,) = trained_samples(serving.folder, turn["id"])
    assert [len(target.prompts) for target in sample.distill_targets] == [1]
    assert any(sample.distill_T)


@pytest.mark.parametrize(
    ("victim", "back"),
    [
        ("VLLM::EngineCore", "vLLM: ready"),
        ("clawrl_gym.inference.vllm.process", "vLLM: ready"),
        ("ray::Learner", None),
        ("clawrl_gym.serve gateway.port=0", "ready: talk to"),
    ],
)
def test_kill_9_of_any_part_loses_nothing_acknowledged(
    serving: Serving, victim: str, back: str | None
) -> None:
    """Clients see at most one request that they have to send again; all parts come back."""
    name = f"kill-{abs(hash(victim)) % 1000}"
    history = talk(serving, name, "Show the file a.txt.", RIGHT)
    acknowledged = [turn["id"] for turn in serving.session(name)["turns"]]
    history.append({"role": "user", "content": "Count the lines of b.txt."})
    answers: list[dict[str, Any]] = []
    attempts = 0

    def ask() -> None:
        nonlocal attempts
        while not answers:
            attempts += 1
            try:
                answers.append(serving.chat(name, history))
            except Exception:
                if attempts > 1:
                    raise

    asking = threading.Thread(target=ask)
    seen = len(serving.lines)
    serving.kill(victim)
    asking.start()
    asking.join(timeout=200)
    assert answers, f"no answer after {attempts} attempts:\n" + "\n".join(serving.lines[-30:])
    assert attempts <= 2
    if back is not None:
        serving.wait_for(back, after=seen)
    turns = serving.session(name)["turns"]
    assert [turn["id"] for turn in turns][:2] == acknowledged
    assert turns[1]["next_state"] == [{"role": "user", "content": "Count the lines of b.txt."}]
    before = serving.version()
    for number in range(4):
        talk(serving, f"{name}-after-{number}", f"Copy a{number}.txt to b.txt.", WRONG)
    serving.wait_until(lambda: serving.version() > before, "a new version after the kill", 200)


def test_it_goes_on_with_what_is_there_and_leaves_no_process_behind(tmp_path: Path) -> None:
    first = Serving(tmp_path / "run", "learn=false")
    try:
        first.wait_for("ready: talk to")
        key = first.key
        talk(first, "kept", "Show the file a.txt.")
        family = descendants(first.process.pid)
    finally:
        assert first.stop() == 130
    assert still_alive(family, within_s=10) == set()
    assert f"report: {tmp_path / 'run' / 'report.html'}" in first.lines
    assert "A serving run" in (tmp_path / "run" / "report.html").read_text()
    second = Serving(tmp_path / "run", "learn=false")
    try:
        assert second.key == key, "clients keep their configuration"
        assert len(second.session("kept")["turns"]) == 1
    finally:
        second.stop()


def test_nothing_of_a_conversation_reaches_the_disk_with_record_off(tmp_path: Path) -> None:
    """In the reference, recording switched off means that nothing is ever trained (S4)."""
    secret = "zebra-quince-4711"
    served = Serving(
        tmp_path / "run", "live.record=false", "live.batch_turns=1", "live.train_truncated=true"
    )
    try:
        served.wait_for("ready: talk to")
        served.wait_for("learner: ready")
        talk(served, "private", f"Copy {secret}.txt to b.txt.", WRONG)
        served.wait_for("update 1:")
    finally:
        served.stop()
    found = [
        path
        for path in (tmp_path / "run").rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert found == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["gateway.host=0.0.0.0"], "gateway.key"),
        (["env=terminal"], "env"),
        (["live.batch_turn=3"], "did you mean 'live.batch_turns'"),
        (["policy.model=/no/such/model"], "/no/such/model"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clawrl_gym.serve", f"run.dir={tmp_path / 'run'}", *overrides],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_print_config_writes_just_the_snippet(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clawrl_gym.serve", f"run.dir={tmp_path / 'run'}"]
    done = subprocess.run(
        [*command, "print_config=true"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert '"http://127.0.0.1:8808/v1"' in done.stdout
    assert (tmp_path / "run" / "gateway.key").read_text().strip() in done.stdout
