"""Everything but replies: models, completions, feedback, sessions, metrics, how it listens."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.types import INTERRUPTED
from clawrl_gym.store import StoreReader
from tests.support.fakes import FakePolicy, sampled
from tests.support.gateway_rig import HELLO, Bench, parse_events, user
from tests.support.waiting import until

COMPLETIONS = "/v1/completions"
FEEDBACK = "/v1/feedback"


def files_with(folder: Path, words: str) -> list[str]:
    """Names of the files that hold these words."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if words.encode() in path.read_bytes()]


async def test_models_are_listed_and_told_one_by_one(bench: Bench) -> None:
    _, listed, _ = await bench.get("/v1/models")
    assert [model["id"] for model in listed["data"]] == ["tiny"]
    assert (await bench.get("/v1/models/tiny"))[1] == listed["data"][0]
    assert (await bench.get("/sessions/s1/v1/models/policy"))[0] == 200
    status, answer, _ = await bench.get("/v1/models/org/other")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


async def test_a_model_that_is_not_served_is_not_found(bench: Bench) -> None:
    status, answer, _ = await bench.chat(HELLO, model="gpt-4")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert answer["error"]["param"] == "model"
    assert bench.policy.bodies == []
    for name in ("tiny", "policy"):
        assert (await bench.chat(HELLO, model=name))[0] == 200


async def test_a_plain_completion_is_a_side_turn_in_a_session_of_its_own(bench: Bench) -> None:
    _, answer, headers = await bench.post(COMPLETIONS, {"prompt": "1 + 1 ="})
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["text"] == "ok"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] == len("1 + 1 =")
    (turn,) = await bench.store.turns_of(headers["X-Session-Id"])
    assert (turn.kind, turn.rule) == ("side", "completion")
    assert turn.prompt_ids_T == sampled("1 + 1 =", end=False)
    assert turn.sampled_ids_T == sampled("ok")
    assert turn.versions_T == [0] * 3
    _, _, other = await bench.post(COMPLETIONS, {"prompt": "1 + 1 ="})
    assert other["X-Session-Id"] != headers["X-Session-Id"]


async def test_a_plain_completion_takes_token_ids_as_they_are(bench: Bench) -> None:
    for prompt in ([5, 6, 7], [[5, 6, 7]]):
        assert (await bench.post(COMPLETIONS, {"prompt": prompt}))[0] == 200
    assert bench.policy.prompts == [[5, 6, 7]] * 2


async def test_a_plain_completion_can_be_streamed(bench: Bench) -> None:
    body = {"prompt": "x", "stream": True, "stream_options": {"include_usage": True}}
    async with bench.http.post("/sessions/c/v1/completions", json=body) as answer:
        events = parse_events(await answer.read())
    texts = [event["choices"][0]["text"] for event in events[:-2]]
    assert "".join(texts) == "ok"
    assert events[-3]["choices"][0]["finish_reason"] == "stop"
    assert events[-2]["usage"]["completion_tokens"] == 3
    assert events[-1] == "[DONE]"
    assert [turn.kind for turn in await bench.store.turns_of("c")] == ["side"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"prompt": ""}, "expected a prompt that is not empty"),
        ({"prompt": []}, "expected a prompt that is not empty"),
        ({"prompt": ["a", "b"]}, "got 2 prompts"),
        ({"prompt": [-1]}, "expected token ids from 0 on"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "x", "echo": True}, "echo=True"),
        ({"prompt": "x", "best_of": 3}, "best_of=3"),
    ],
)
async def test_a_bad_completion_is_told_what_was_got(
    bench: Bench, fields: dict[str, Any], says: str
) -> None:
    status, answer, _ = await bench.post(COMPLETIONS, fields)
    assert status == 400
    assert says in answer["error"]["message"]


@pytest.mark.parametrize(
    ("opinion", "value", "reward"),
    [
        ({"thumb": "up"}, 1, 1.0),
        ({"thumb": "down"}, -1, -1.0),
        ({"score": 0.25}, 1, 0.25),
        ({"score": -1}, -1, -1.0),
        ({"score": 0}, 0, 0.0),
        ({"text": "it is 5, not 4"}, -1, -1.0),
        ({"text": "keep this tone", "thumb": "up"}, 1, 1.0),
    ],
)
async def test_feedback_is_a_verdict_on_the_last_main_turn(
    bench: Bench, opinion: dict[str, Any], value: int, reward: float
) -> None:
    first = await bench.say(HELLO)
    await bench.say([*HELLO, first, user("more")])
    side = {"messages": [user("a title, please")]}
    await bench.post("/sessions/s1/v1/chat/completions", side, X_Turn_Type="side")
    status, answer, _ = await bench.post(FEEDBACK, {"session_id": "s1", **opinion})
    assert status == 200, answer
    assert answer["turn_id"] == 2
    (verdict,) = (await bench.store.verdicts_of("s1"))[2]
    assert (verdict.kind, verdict.value, verdict.reward) == ("feedback", value, reward)
    assert verdict.detail == opinion
    assert bench.told.verdicts == [verdict]
    assert answer["verdict"]["id"] == verdict.id


async def test_feedback_names_a_turn_or_comes_by_the_sessions_own_url(bench: Bench) -> None:
    first = await bench.say(HELLO)
    await bench.say([*HELLO, first, user("more")])
    _, by_turn, _ = await bench.post(FEEDBACK, {"turn_id": 1, "thumb": "up"})
    _, by_path, _ = await bench.post("/sessions/s1/v1/feedback", {"thumb": "up"})
    _, by_header, _ = await bench.post(FEEDBACK, {"thumb": "up"}, X_Session_Id="s1")
    assert [answer["turn_id"] for answer in (by_turn, by_path, by_header)] == [1, 2, 2]


async def test_feedback_is_on_disk_when_it_is_acknowledged(bench: Bench) -> None:
    await bench.say(HELLO)
    await bench.post(FEEDBACK, {"turn_id": 1, "thumb": "up"})
    reader = StoreReader(bench.folder)
    assert [verdict.value for verdict in reader.verdicts_of("s1")[1]] == [1]
    reader.close()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 400, "expected thumb"),
        ({"session_id": "s1"}, 400, "expected thumb"),
        ({"thumb": "up"}, 400, "got neither turn_id nor session_id"),
        ({"session_id": "s1", "thumb": "sideways"}, 400, "thumb"),
        ({"session_id": "s1", "score": 1.5}, 400, "score"),
        ({"session_id": "s1", "thumb": "up", "score": 1}, 400, "not both"),
        ({"session_id": "s1", "text": ""}, 400, "text"),
        ({"session_id": "nobody", "thumb": "up"}, 404, "no main turn in session 'nobody'"),
        ({"turn_id": 77, "thumb": "up"}, 404, "there is no turn 77"),
        ({"turn_id": 1, "session_id": "other", "thumb": "up"}, 404, "there is no turn 1"),
        ({"turn_id": 2, "thumb": "up"}, 409, "turn 2 is a side turn"),
        ({"turn_id": 3, "thumb": "up"}, 409, "of a rollout session"),
        ({"turn_id": -1, "thumb": "up"}, 400, "turn_id"),
    ],
)
async def test_feedback_that_makes_no_sense_is_refused(
    bench: Bench, body: dict[str, Any], status: int, says: str
) -> None:
    path = "/v1/chat/completions"
    chat = {"messages": HELLO}
    await bench.post(path, chat, X_Session_Id="s1")
    await bench.post(path, chat, X_Session_Id="s1", X_Turn_Type="side")
    await bench.post(path, chat, X_Session_Id="r", X_Group_Id="1")
    got, answer, _ = await bench.post(FEEDBACK, body)
    assert got == status
    assert says in answer["error"]["message"]
    assert bench.told.verdicts == []


async def test_sessions_are_listed_newest_first_and_by_what_is_open(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        await bench.say(HELLO, name)
    await bench.post("/v1/sessions/b/end", {})
    _, listed, _ = await bench.get("/v1/sessions")
    assert {row["id"] for row in listed["data"]} == {"a", "b", "c"}
    assert listed["data"][0]["main_turns"] == 1
    _, listed, _ = await bench.get("/v1/sessions?open=true")
    assert {row["id"] for row in listed["data"]} == {"a", "c"}
    _, listed, _ = await bench.get("/v1/sessions?limit=1")
    assert len(listed["data"]) == 1
    for wrong in ("limit=0", "limit=x", "open=perhaps"):
        assert (await bench.get(f"/v1/sessions?{wrong}"))[0] == 400


async def test_a_session_shows_its_turns_with_next_states_and_verdicts(bench: Bench) -> None:
    first = await bench.say(HELLO)
    await bench.say([*HELLO, first, user("and?")])
    await bench.post(FEEDBACK, {"turn_id": 1, "text": "say more"})
    status, shown, _ = await bench.get("/v1/sessions/s1")
    assert status == 200
    assert (shown["id"], shown["source"], shown["matched_by"]) == ("s1", "live", "path")
    one, two = shown["turns"]
    assert (one["id"], one["index"], one["kind"], one["rule"]) == (1, 0, "main", "")
    assert (one["messages"], one["reply"]) == (HELLO, first)
    assert one["next_state"] == [user("and?")]
    assert one["versions"] == [0]
    (verdict,) = one["verdicts"]
    assert (verdict["kind"], verdict["value"], verdict["reward"]) == ("feedback", -1, -1.0)
    assert verdict["detail"] == {"text": "say more"}
    assert (two["next_state"], two["verdicts"]) == (None, [])
    assert (await bench.get("/sessions/s1"))[1] == shown, "under its older path, too"


async def test_a_long_session_is_shown_in_pages(bench: Bench) -> None:
    for number in range(5):
        await bench.say([user(str(number))])

    async def indices(query: str) -> list[int]:
        _, shown, _ = await bench.get(f"/v1/sessions/s1{query}")
        return [turn["index"] for turn in shown["turns"]]

    assert await indices("") == [0, 1, 2, 3, 4]
    assert await indices("?count=2") == [3, 4], "the newest"
    assert await indices("?first=1&count=2") == [1, 2]
    assert await indices("?first=9") == []
    for wrong in ("count=0", "first=-1", "first=x"):
        assert (await bench.get(f"/v1/sessions/s1?{wrong}"))[0] == 400


async def test_a_session_can_be_ended_without_a_body(bench: Bench) -> None:
    await bench.say(HELLO)
    async with bench.http.post("/v1/sessions/s1/end") as answer:
        assert (answer.status, (await answer.json())["ended_before"]) == (200, False)
    assert (await bench.post("/v1/sessions/s1/end", {}))[1]["ended_before"] is True
    status, answer, _ = await bench.post("/v1/sessions/nobody/end", {})
    assert (status, answer["error"]["code"]) == (404, "session_not_found")
    assert bench.told.ended == ["s1"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_header_or_a_field_ends_the_session_with_its_turn(
    bench: Bench, stream: bool
) -> None:
    path = "/v1/chat/completions"
    body = {"messages": HELLO, "stream": stream}
    async with bench.http.post(
        path, json=body, headers={"X-Session-Id": "h", "X-Session-Done": "yes"}
    ) as answer:
        await answer.read()
    async with bench.http.post(
        path, json={**body, "session_id": "b", "session_done": True}
    ) as answer:
        await answer.read()
    for name in ("h", "b"):
        row = await bench.store.session(name)
        assert row is not None
        assert row.stop_reason == "terminated"
        assert len(await bench.store.turns_of(name)) == 1
    assert sorted(bench.told.ended) == ["b", "h"]


async def test_the_answer_says_which_session_it_belongs_to(bench: Bench) -> None:
    body = {"messages": HELLO, "session_id": "mine", "turn_type": "side"}
    _, answer, headers = await bench.post("/v1/chat/completions", body)
    assert answer["session_id"] == headers["X-Session-Id"] == "mine"
    assert [turn.kind for turn in await bench.store.turns_of("mine")] == ["side"]


async def test_a_deleted_session_is_gone_with_all_its_data(bench: Bench) -> None:
    secret = "my-secret-words"
    first = await bench.say([user(secret)])
    await bench.say([user(secret), first, user("more")])
    await bench.post(FEEDBACK, {"turn_id": 1, "text": secret})
    await bench.say(HELLO, "s2")
    status, answer, _ = await bench.ask("DELETE", "/v1/sessions/s1")
    assert (status, answer) == (200, {"session_id": "s1", "deleted": True})
    assert bench.told.deleted == ["s1"]
    assert (await bench.get("/v1/sessions/s1"))[0] == 404
    assert (await bench.ask("DELETE", "/v1/sessions/s1"))[0] == 404
    assert (await bench.get("/v1/sessions/s2"))[0] == 200
    await bench.stop()
    assert files_with(bench.folder, secret) == []
    assert "conversations.jsonl" in files_with(bench.folder, "hello")
    await bench.start()


async def test_a_turn_under_way_in_a_deleted_session_is_not_recorded(bench: Bench) -> None:
    bench.policy = FakePolicy("a long reply")
    bench.policy.piece_s = 0.02
    await bench.restart()
    async with bench.stream(HELLO) as answer:
        await answer.content.readany()
        assert (await bench.ask("DELETE", "/v1/sessions/s1"))[0] == 200
        events = parse_events(b"data: " + (await answer.read()).partition(b"data: ")[2])
    assert events[-1]["error"]["message"]
    assert await bench.store.turns_of("s1") == []


def samples_of(text: str) -> dict[tuple[str, ...], float]:
    """Samples in Prometheus text, by name and labels."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_are_prometheus_text(bench: Bench) -> None:
    await bench.say(HELLO)
    await bench.events([user("more")])
    await bench.get("/v1/nothing/here")
    bench.gateway.version = 7
    with bench.gateway.hold_requests():
        pass
    async with bench.http.get("/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await answer.text()
    samples = samples_of(text)
    chat = "/sessions/{id}/v1/chat/completions"
    assert samples["clawrl_requests_total", chat, "200"] == 2
    assert samples["clawrl_requests_total", "none", "404"] == 1
    assert samples["clawrl_turns_total", "main"] == 2
    assert samples["clawrl_tokens_total", "sampled"] == 6
    assert samples["clawrl_tokens_total", "prompt"] > 6
    assert samples[("clawrl_requests_inside",)] == 1
    assert samples[("clawrl_sessions_open",)] == 1
    assert samples[("clawrl_weight_version",)] == 7
    assert samples[("clawrl_first_token_seconds_count",)] == 1
    assert samples[("clawrl_swap_hold_seconds_count",)] == 1
    assert samples[("clawrl_policy_running",)] == 0


async def test_metrics_tell_what_is_judged_and_learned(bench: Bench) -> None:
    learning = bench.gateway.stats.learning
    async with bench.http.get("/metrics") as answer:
        assert "clawrl_loss" not in await answer.text()  # nothing was learned yet
    for kind, value in (("rule", -1), ("rule", -1), ("rule", None), ("feedback", 1)):
        learning.judged(kind, value)  # type: ignore[arg-type]
    learning.samples, learning.updates = 16, 2
    learning.loss, learning.heldout_success = -0.25, 0.5
    async with bench.http.get("/metrics") as answer:
        text = await answer.text()
    samples = samples_of(text)
    assert samples["clawrl_verdicts_total", "rule", "negative"] == 2
    assert samples["clawrl_verdicts_total", "feedback", "positive"] == 1
    assert samples["clawrl_abstentions_total", "rule"] == 1
    assert samples[("clawrl_samples_total",)] == 16
    assert samples[("clawrl_updates_total",)] == 2
    assert samples[("clawrl_loss",)] == -0.25
    assert samples[("clawrl_heldout_success",)] == 0.5


async def test_a_full_disk_is_507_until_there_is_room(bench: Bench) -> None:
    await bench.say(HELLO)
    limit = "PRAGMA max_page_count="
    await bench.store._write(lambda t: t.db.execute(f"{limit}1"))  # no page more than there are
    full = await bench.chat([user("x" * 50_000)], "s2")
    assert (full[0], full[1]["error"]["code"]) == (507, "insufficient_storage")
    assert "live.record=false" in full[1]["error"]["message"]
    await bench.store._write(lambda t: t.db.execute(f"{limit}1000000"))
    assert (await bench.chat([user("x" * 50_000)], "s2"))[0] == 200


async def test_metrics_do_without_a_policy_that_is_down(bench: Bench) -> None:
    bench.policy.down = 1
    async with bench.http.get("/metrics") as answer:
        text = await answer.text()
    assert "clawrl_requests_inside" in text
    assert "clawrl_policy_running" not in text


async def test_it_listens_on_a_socket_that_is_bound_already(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    await bench.gateway.stop()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        url = await bench.gateway.start(sock)
        assert url == f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as http, http.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        await bench.stop()


async def test_it_listens_before_the_policy_is_there(bench: Bench) -> None:
    bench.policy.down = 3
    asking = asyncio.create_task(bench.say(HELLO))
    async with bench.http.get("/healthz") as answer:
        assert answer.status == 200
    assert (await asking)["content"] == "ok"


async def test_without_records_everything_works_from_memory(tmp_path: Path) -> None:
    """The reference's defect S4: with its recorder off, no turn ever became a sample."""
    bench = Bench(tmp_path)
    bench.live = LiveConfig(record=False)
    await bench.start()
    first = await bench.say([user("my-secret-words")])
    await bench.events([user("my-secret-words"), first, user("and?")])
    (told,) = bench.told.next_states
    assert told.reply == first
    assert (await bench.post(FEEDBACK, {"session_id": "s1", "thumb": "up"}))[1]["turn_id"] == 2
    assert len((await bench.get("/v1/sessions/s1"))[1]["turns"]) == 2
    await bench.stop()
    assert files_with(tmp_path, "my-secret-words") == []


async def test_the_hooks_are_told_what_is_on_disk(bench: Bench) -> None:
    first = await bench.say(HELLO)
    assert [turn.id for turn in bench.told.turns] == [1]
    assert bench.told.next_states == []
    await bench.events([*HELLO, first, user("and?")])
    assert [turn.id for turn in bench.told.next_states] == [1]
    assert [turn.id for turn in bench.told.turns] == [1, 2]


async def test_an_interrupted_turn_is_shown_and_counted(bench: Bench) -> None:
    bench.policy = FakePolicy("a long reply")
    bench.policy.piece_s = 0.05
    await bench.restart()
    async with bench.stream(HELLO) as answer:
        await answer.content.readany()
    await until(lambda: bench.gateway.stats.interrupted)
    _, shown, _ = await bench.get("/v1/sessions/s1")
    assert shown["turns"][0]["finish_reason"] == INTERRUPTED
    assert bench.gateway.stats.answers["/sessions/{id}/v1/chat/completions", 499] == 1
