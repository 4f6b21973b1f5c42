"""Two users of the real `serve`, each with weights of their own; and one who is removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from clawrl_gym.run.export import export_run
from clawrl_gym.store.users import Users
from tests.e2e.runs import ROOT
from tests.e2e.serving import Serving

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.ray, pytest.mark.timeout(600)]

SETTINGS = ("learner=lora", "policy.serve=adapters", "live.batch_turns=2", "learner.lr=1e-3")


def chat(http: httpx.Client, words: str, session_id: str | None = None) -> tuple[str, int]:
    """The reply, and the version that it came from. Without a session it is a greedy side turn;
    greedy turns are not trained on."""
    headers = {"X-Turn-Type": "side"} if session_id is None else {"X-Session-Id": session_id}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": words}], "max_tokens": 24}
    if session_id is None:
        body["temperature"] = 0
    answer = http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return str(message["content"]), int(answer.headers["X-Weight-Version"])


def teach(http: httpx.Client, secret: str) -> None:
    for number in range(2):
        chat(http, f"{secret} {number}", f"s{number}")
        thumb = {"session_id": f"s{number}", "thumb": "down"}
        assert http.post("/v1/feedback", json=thumb).status_code == 200


def files_with(folder: Path, words: str) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [
        str(path.relative_to(folder))
        for path in paths
        if words.encode() in path.read_bytes() or words in path.name
    ]


def test_users_learn_apart_and_one_leaves_without_a_trace(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    keys = {name: Users(folder).add(name) for name in ("zoe-anna", "ben")}
    serving = Serving(folder, *SETTINGS)
    try:
        serving.wait_for("ready: talk to")
        serving.wait_for("learner: ready")
        serving.wait_for("users have weights of their own")
        anna, ben = (
            httpx.Client(
                base_url=serving.url, headers={"Authorization": f"Bearer {key}"}, timeout=120
            )
            for key in keys.values()
        )
        with anna, ben:
            words = "Sort the lines of x.txt."
            before = [chat(http, words) for http in (anna, ben, serving.http)]
            assert {version for _, version in before} == {0}
            teach(anna, "zoe-anna's secret")
            serving.wait_for("zoe-anna@1 serves")
            assert chat(anna, words)[1] == 1
            assert [chat(http, words) for http in (ben, serving.http)] == before[1:]
            teach(ben, "ben's words")
            serving.wait_for("ben@1 serves")
            assert (folder / "users/ben/checkpoints/000001/adapter").is_dir()
            first = chat(ben, words)
            assert [row["version"] for row in ben.get("/v1/versions").json()["data"]] == [0, 1]
            assert ben.get("/v1/versions?user=zoe-anna").status_code == 403
            back = ben.post("/v1/versions/1").json()
            assert back == {"returned_to": 1, "version": 2}
            assert chat(ben, words) == (first[0], 2)
            assert chat(anna, words)[1] == 1, "who goes back goes alone"

            command = [sys.executable, "-m", "clawrl_gym.users", "remove", "zoe-anna"]
            subprocess.run([*command, "--dir", str(folder)], cwd=ROOT, check=True, timeout=120)
            answer = anna.get("/v1/sessions")
            assert answer.status_code == 401, answer.text
            assert len(ben.get("/v1/sessions").json()["data"]) == 6  # four of side turns
            assert chat(ben, words)[1] == 2
        assert files_with(folder, "zoe-anna's secret") == []
        assert [name for name in files_with(folder, "zoe-anna") if "log" not in name] == []
    finally:
        serving.stop()
    again = Serving(folder, *SETTINGS)
    try:
        again.wait_for("ready: talk to")
        again.http.headers["Authorization"] = f"Bearer {keys['ben']}"
        assert chat(again.http, words) == (first[0], 2), "a user's weights outlive a restart"
    finally:
        again.stop()
    exported = export_run(folder, tmp_path / "adapter", form="adapter", user="ben")
    assert exported.step == 2
