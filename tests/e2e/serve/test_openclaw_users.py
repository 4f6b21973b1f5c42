"""Two users of one `serve learner=lora`, each with the real OpenClaw and weights of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from clawrl_gym.store.users import Users
from tests.e2e.openclaw_client import OpenClaw
from tests.e2e.serving import Serving

pytestmark = [
    pytest.mark.openclaw,
    pytest.mark.vllm,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

# Learning is what is tested, not its effect: the policy stays able to answer OpenClaw.
SETTINGS = (
    "learner=lora", "live.batch_turns=2", "live.train_truncated=true", "learner.lr=1e-6",
)  # fmt: skip
WRONG = "No, that is wrong."


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[Serving, dict[str, str]]]:
    """And each user's key."""
    keys = {name: Users(tmp_path / "run").add(name) for name in ("anna", "ben")}
    one = Serving(tmp_path / "run", *SETTINGS)
    try:
        one.wait_for("ready: talk to")
        one.wait_for("learner: ready")
        yield one, keys
    finally:
        one.stop()


def versions(url: str, key: str, session_id: str) -> list[int]:
    """Of the weights that answered each turn."""
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.get(f"{url}/v1/sessions/{session_id}", headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return [max(turn["versions"]) for turn in answer.json()["turns"]]


def test_who_corrects_their_openclaw_changes_its_weights_and_nobody_elses(
    serving: tuple[Serving, dict[str, str]], tmp_path: Path
) -> None:
    server, keys = serving
    with ExitStack() as stack:
        claws = {}
        for name, key in keys.items():
            claws[name] = OpenClaw(tmp_path / name, server.url, key, plugin=True)
            stack.callback(claws[name].stop)
        claws["anna"].say("day", "Hello.")
        for _ in range(2):
            claws["anna"].tell("day", WRONG)
        server.wait_for("anna@1 serves")
        claws["anna"].say("later", "Hello again.")
        claws["ben"].say("day", "Hello.")
        assert versions(server.url, keys["anna"], "day")[0] == 0
        assert versions(server.url, keys["anna"], "later")[-1] >= 1
        assert set(versions(server.url, keys["ben"], "day")) == {0}
        as_ben = {"Authorization": f"Bearer {keys['ben']}"}
        assert httpx.get(f"{server.url}/v1/sessions/later", headers=as_ben).status_code == 404
        for name in ("anna", "ben"):
            has_learned = (server.folder / f"users/{name}/checkpoints/000001/adapter").is_dir()
            assert has_learned == (name == "anna")
