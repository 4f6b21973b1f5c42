"""Films on their way: from a worker through the gateway into the run's folder."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import pytest
from aiohttp import web

from clawrl_gym.config import AgentConfig
from clawrl_gym.core.types import StopReason, TaskRef
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.envs.task_env import UnicodeEnv
from clawrl_gym.gateway.admission.admission import Admission
from clawrl_gym.gateway.films import MOST_BYTES, Films
from clawrl_gym.rollout.collection.worker import RolloutWorker
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.stage import one_stage
from clawrl_gym.ui.live_page import LivePage
from tests.support.gateway_rig import Bench

JPEG = b"\xff\xd8\xff\xe0 picture \xff\xd9"


@pytest.fixture
async def rig(bench: Bench, tmp_path: Path) -> Bench:
    """A gateway that keeps films."""
    bench.films = tmp_path / "films"
    await bench.restart()
    return bench


async def begun(bench: Bench, session_id: str) -> None:
    await bench.post(f"/sessions/{session_id}/begin", {}, X_Task_Id="t")


async def send(
    bench: Bench, session_id: str, film: bytes = JPEG, **headers: str
) -> tuple[int, Any]:
    async with bench.http.post(
        f"/sessions/{session_id}/film", data=BytesIO(film), headers=headers
    ) as answer:
        return answer.status, await answer.json()


async def test_a_film_becomes_a_file_of_its_session(rig: Bench, tmp_path: Path) -> None:
    await begun(rig, "one")
    assert await send(rig, "one") == (200, {"session_id": "one", "film": "one.jpg"})
    assert (tmp_path / "films" / "one.jpg").read_bytes() == JPEG
    assert os.listdir(tmp_path / "films") == ["one.jpg"]  # noqa: PTH208
    assert rig.film_files == [tmp_path / "films" / "one.jpg"]


async def test_a_session_that_just_ended_can_send_its_film_and_send_it_again(rig: Bench) -> None:
    await begun(rig, "one")
    await rig.post("/sessions/one/end", {"reward": 1.0})
    newer = JPEG[:-2] + b"newer\xff\xd9"
    assert (await send(rig, "one"))[0] == (await send(rig, "one", newer))[0] == 200
    assert rig.films is not None
    assert (rig.films / "one.jpg").read_bytes() == newer


async def test_a_session_that_ended_long_ago_is_refused(rig: Bench) -> None:
    await begun(rig, "one")
    await rig.post("/sessions/one/end", {"reward": 1.0})
    with sqlite3.connect(rig.folder / "run.db") as db:
        db.execute("UPDATE sessions SET ended_s=?", (time.time() - 3600,))
    db.close()
    assert (await send(rig, "one"))[0] == 409


@pytest.mark.parametrize(
    "film", [b"", b"hello", b"\x89PNG\r\n", b"<svg/>", JPEG[:-1], b"<script>" + JPEG]
)
async def test_only_a_whole_jpeg_is_a_film(rig: Bench, film: bytes) -> None:
    await begun(rig, "one")
    status, body = await send(rig, "one", film)
    assert status == 400
    assert "expected a whole JPEG" in body["error"]["message"]
    assert rig.film_files == []


async def test_a_film_that_is_too_large_is_refused(rig: Bench) -> None:
    await begun(rig, "one")
    status, body = await send(rig, "one", JPEG[:-2] + bytes(MOST_BYTES) + JPEG[-2:])
    assert (status, body["error"]["code"]) == (413, "body_too_large")


async def test_an_unknown_session_and_a_stranger_are_refused(rig: Bench) -> None:
    assert (await send(rig, "nobody"))[0] == 404
    await begun(rig, "one")
    assert (await send(rig, "one", Authorization="Bearer wrong"))[0] == 401


@pytest.mark.parametrize("name", ["..%2F..%2Fx", "%2Fetc%2Fx", "a%00b", "..%5Cx", "...", "..%2E"])
async def test_no_name_leads_out_of_the_folder(rig: Bench, tmp_path: Path, name: str) -> None:
    from yarl import URL

    async with rig.http.post(
        URL(f"{rig.url}/sessions/{name}/film", encoded=True), data=JPEG
    ) as answer:
        assert answer.status in (400, 404)
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if "jpg" in name]


async def test_a_deleted_session_takes_its_film_along(rig: Bench) -> None:
    await begun(rig, "one")
    await send(rig, "one")
    await rig.ask("DELETE", "/v1/sessions/one")
    assert rig.films is not None
    assert list(rig.films.iterdir()) == []
    assert (await send(rig, "one"))[0] == 404


async def test_a_gateway_without_a_folder_keeps_no_film(bench: Bench) -> None:
    await begun(bench, "one")
    status, body = await send(bench, "one")
    assert (status, body["error"]["code"]) == (404, "no_films")


async def test_all_films_together_are_bounded(rig: Bench, tmp_path: Path) -> None:
    admission = Admission(rig.config, rig.gateway.key)
    films = Films(admission, rig.store, tmp_path / "few", most_bytes=2 * len(JPEG))
    app = web.Application()
    app.router.add_post("/{id}", films.post)

    @web.middleware
    async def answer_refusals(request: web.Request, handler: Any) -> web.StreamResponse:
        from clawrl_gym.gateway.wire.refusals import Refusal

        try:
            answer: web.StreamResponse = await handler(request)
        except Refusal as refusal:
            return web.Response(status=refusal.status)
        return answer

    app.middlewares.append(answer_refusals)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]

    async def status(session_id: str) -> int:
        async with rig.http.post(f"http://127.0.0.1:{port}/{session_id}", data=JPEG) as answer:
            return answer.status

    for session_id in ("a", "b", "c"):
        await begun(rig, session_id)
    assert [await status(one) for one in ("a", "b", "a", "c")] == [200, 200, 200, 507]
    films.forget("a")
    assert await status("c") == 200
    await runner.cleanup()


async def test_films_at_once_are_all_kept(rig: Bench) -> None:
    ids = [f"s{number}" for number in range(20)]
    await asyncio.gather(*(begun(rig, session_id) for session_id in ids))
    answers = await asyncio.gather(*(send(rig, session_id) for session_id in ids))
    assert {status for status, _ in answers} == {200}
    assert rig.films is not None
    assert {path.stem for path in rig.films.iterdir()} == set(ids)


def test_the_live_page_shows_the_newest_films_first_and_says_where_it_is(tmp_path: Path) -> None:
    messages: list[str] = []
    films = tmp_path / "films"
    films.mkdir()
    (films / "before<b>.jpg").write_bytes(JPEG)
    page = LivePage(tmp_path, messages.append)
    for number in range(40):
        (films / f"s:{number}.jpg").write_bytes(JPEG)
        page.add(films / f"s:{number}.jpg")
    text = (tmp_path / "live.html").read_text()
    assert messages == [f"films: {tmp_path / 'live.html'}"]
    assert text.index("s%3A39.jpg") < text.index("s%3A38.jpg")
    assert text.count("<img") == 24
    assert 'http-equiv="refresh"' in text
    assert list(tmp_path.glob("*.new")) == []


def test_the_live_page_of_a_resumed_run_shows_what_was_there(tmp_path: Path) -> None:
    films = tmp_path / "films"
    films.mkdir()
    for name in ("before<b>", "new"):
        (films / f"{name}.jpg").write_bytes(JPEG)
    LivePage(tmp_path, lambda _: None).add(films / "new.jpg")
    text = (tmp_path / "live.html").read_text()
    assert "before&lt;b&gt;" in text
    assert "<b>" not in text
    assert text.index("films/new.jpg") < text.index("films/before")


class FilmedEnv(UnicodeEnv):
    """Ends with its first step; films as it is told."""

    outcome: ClassVar[Any] = JPEG
    was_filming: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        super().__init__(1, None)
        self.filming = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.was_filming.append(self.filming)
        return "go", {}

    def step(self, action: str) -> Any:
        return "over", 1.0, True, False, {}

    def film(self) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome if self.filming else None


class PlainEnv(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Knows nothing of films."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return "go", {}

    def step(self, action: str) -> Any:
        return "over", 1.0, True, False, {}


async def played(
    bench: Bench, films: str, group: int | None, env: str = "FilmedEnv"
) -> tuple[StopReason, list[Path]]:
    config = GymEnvConfig.model_validate({"target": f"{__name__}:{env}", "films": films})
    policy = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    worker = RolloutWorker(one_stage(config, AgentConfig(type="text")), 1, policy, 10.0)
    spec = EpisodeSpec("e", group, TaskRef("t", 3, "heldout"), max_turns=2, timeout_s=30.0)
    FilmedEnv.was_filming.clear()
    episode = await worker.run(spec)
    await worker.close()
    return episode.stop_reason, bench.film_files


@pytest.mark.parametrize(
    ("films", "group", "sent"),
    [
        ("none", None, False),
        ("none", 1, False),
        ("measured", None, True),
        ("measured", 1, False),
        ("all", None, True),
        ("all", 1, True),
    ],
)
async def test_the_configuration_says_which_episodes_are_filmed(
    rig: Bench, films: str, group: int | None, sent: bool
) -> None:
    stop, files = await played(rig, films, group)
    assert stop is StopReason.TERMINATED
    assert FilmedEnv.was_filming == [sent]
    assert [path.name for path in files] == (["e.jpg"] if sent else [])


async def test_an_environment_that_knows_nothing_of_films_has_none(rig: Bench) -> None:
    assert await played(rig, "all", None, "PlainEnv") == (StopReason.TERMINATED, [])


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (RuntimeError("no ink"), "no ink"),
        ("text", "type str, expected bytes"),
        (b"GIF89a", "expected a whole JPEG"),
    ],
)
async def test_a_film_that_fails_is_a_line_in_the_log_and_nothing_to_the_episode(
    rig: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    outcome: Any,
    why: str,
) -> None:
    monkeypatch.setattr(FilmedEnv, "outcome", outcome)
    with caplog.at_level(logging.WARNING):
        assert await played(rig, "all", None) == (StopReason.TERMINATED, [])
    assert [why in record.message for record in caplog.records] == [True]


async def test_a_gateway_that_keeps_no_films_does_not_disturb_the_episode(bench: Bench) -> None:
    assert await played(bench, "all", None) == (StopReason.TERMINATED, [])
