"""Several users behind one gateway: nobody reaches what is another's, by no route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.errors import DiskFull
from clawrl_gym.inference.weights.adapters import Adapters
from clawrl_gym.serving.users import Departures
from clawrl_gym.store.users import Users
from tests.inference.test_policy_adapters import adapter_folder
from tests.support.fakes import FakeKeeper, FakePolicy
from tests.support.gateway_rig import HELLO, Bench, user
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
ROUTES = {
    # what anybody with a key sees alike
    ("GET", "/healthz"): "alike",
    ("GET", "/readyz"): "alike",
    ("GET", "/v1/models"): "alike",
    ("GET", "/v1/models/{model}"): "alike",
    ("GET", "/sessions/{id}/v1/models"): "alike",
    ("GET", "/sessions/{id}/v1/models/{model}"): "alike",
    # a name is one's own: another's session of this name is another one
    ("POST", "/v1/chat/completions"): "own",
    ("POST", "/v1/completions"): "own",
    ("POST", "/sessions/{id}/v1/chat/completions"): "own",
    ("POST", "/sessions/{id}/v1/completions"): "own",
    ("POST", "/v1/messages"): "own",
    ("POST", "/sessions/{id}/v1/messages"): "own",
    ("POST", "/v1/messages/count_tokens"): "own",
    ("POST", "/sessions/{id}/v1/messages/count_tokens"): "own",
    ("POST", "/v1/responses"): "own",
    ("POST", "/sessions/{id}/v1/responses"): "own",
    ("POST", "/sessions/{id}/begin"): "own",
    ("POST", "/sessions/{id}/end"): "own",
    ("GET", "/v1/sessions"): "own",
    ("GET", "/v1/versions"): "own",
    ("POST", "/v1/versions/{version}"): "own",
    # what must be there already
    ("POST", "/v1/feedback"): "not found",
    ("POST", "/sessions/{id}/v1/feedback"): "not found",
    ("GET", "/v1/sessions/{id}"): "not found",
    ("GET", "/sessions/{id}"): "not found",
    ("DELETE", "/v1/sessions/{id}"): "not found",
    ("DELETE", "/sessions/{id}"): "not found",
    ("POST", "/v1/sessions/{id}/end"): "not found",
    # the owner's alone
    ("GET", "/metrics"): "owner",
    ("GET", "/v1/outages"): "owner",
    ("GET", "/link"): "owner",
    ("POST", "/sessions/{id}/film"): "owner",
    ("POST", "/v1/versions/{version}/pin"): "owner",
    ("DELETE", "/v1/pins/{name}"): "owner",
    ("POST", "/v1/seats"): "owner",
    ("GET", "/v1/seats/{id}/next"): "owner",
    ("POST", "/v1/seats/{id}/reply"): "owner",
    ("DELETE", "/v1/seats/{id}"): "owner",
}
"""Every route of the gateway; one that is not here fails a test."""
BODIES: dict[str, Any] = {
    "chat/completions": {"messages": HELLO},
    "completions": {"prompt": "hello"},
    "messages": {"model": "tiny", "messages": HELLO, "max_tokens": 9},
    "count_tokens": {"model": "tiny", "messages": HELLO},
    "responses": {"input": "hello"},
    "feedback": {"session_id": "s", "thumb": "up"},
}


class House:
    """A gateway with two users, and a client of each."""

    def __init__(self, bench: Bench, users: Users, keys: dict[str, str]) -> None:
        self.bench = bench
        self.users = users
        self.keys = keys

    async def ask(
        self, who: str, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Authorization"] = f"Bearer {self.keys[who]}"
        async with (
            aiohttp.ClientSession(self.bench.url, headers=named) as http,
            http.request(method, path, json=body) as answer,
        ):
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else None, answer.headers

    async def chat(self, who: str, text: str = "hello", **headers: str) -> tuple[int, Any, Any]:
        return await self.ask(who, "POST", CHAT, {"messages": [user(text)]}, **headers)

    async def names(self, who: str, query: str = "") -> list[tuple[str | None, str]]:
        """Whose sessions somebody is shown, and what these are called."""
        status, body, _ = await self.ask(who, "GET", f"/v1/sessions{query}")
        assert status == 200, body
        return sorted(((one["user"], one["id"]) for one in body["data"]), key=str)

    @asynccontextmanager
    async def departing(self) -> AsyncIterator[None]:
        """As serving does."""

        async def remove(name: str) -> None:
            await self.bench.gateway.turn_out(name)
            await self.bench.gateway.delete_user(name)

        departures = Departures(self.bench.folder, self.users, remove)
        running = asyncio.create_task(departures.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])

    async def remove(self, name: str) -> None:
        Users(self.bench.folder).begin_removal(name)
        await self.until_removed(name)

    async def until_removed(self, name: str) -> None:
        await until(lambda: not self.users.is_being_removed(name))


async def make_house(bench: Bench) -> House:
    users = Users(bench.folder)
    keys = {name: users.add(name) for name in ("anna", "ben")}
    bench.users = users
    await bench.restart()
    bench.gateway.versions.keeper = FakeKeeper()
    return House(bench, users, keys | {"owner": bench.gateway.key})


@pytest.fixture
async def house(bench: Bench) -> House:
    return await make_house(bench)


def test_every_route_is_in_the_table(bench: Bench) -> None:
    routes = {
        (route.method, route.resource.canonical)
        for route in bench.gateway._app().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert routes == set(ROUTES)


async def test_an_answer_is_continued_by_its_own_user_alone(house: House) -> None:
    path = "/v1/responses"
    status, answer, _ = await house.ask("ben", "POST", path, {"input": "a secret of ben"})
    assert status == 200
    (item,) = answer["output"]
    named = {"input": "go on", "previous_response_id": answer["id"]}
    referring = {"input": [{"type": "item_reference", "id": item["id"]}, {"role": "user",
                 "content": "go on"}]}  # fmt: skip
    for body in (named, referring):
        for stranger in ("anna", "owner"):
            status, refused, _ = await house.ask(stranger, "POST", path, body)
            assert (status, refused["error"]["code"]) == (400, "previous_response_not_found")
            assert "secret" not in str(refused)
        assert (await house.ask("ben", "POST", path, body))[0] == 200


async def everything_of(house: House) -> Any:
    """All that the owner sees of ben and of themselves."""
    shown = [(await house.ask("owner", "GET", f"/v1/sessions/s?user={who}"))[1]
             for who in ("owner", "ben")]  # fmt: skip
    return shown, await house.names("owner", "?user=ben"), await house.names("owner", "?user=owner")


@pytest.mark.parametrize(("method", "route"), ROUTES)
async def test_no_route_reaches_what_is_anothers(house: House, method: str, route: str) -> None:
    rule = ROUTES[method, route]
    for who in ("owner", "ben"):
        assert (await house.chat(who, f"a secret of {who}", X_Session_Id="s"))[0] == 200
    before = await everything_of(house)
    path = route.format(id="s", model="tiny", version="3", name="n") if "{" in route else route
    body = next((value for name, value in BODIES.items() if path.endswith(name)), None)
    status, answer, _ = await house.ask("anna", method, path, body)
    assert "secret" not in str(answer)
    if rule == "owner":
        assert (status, answer["error"]["code"]) == (403, "owner_only")
    elif rule == "not found":
        assert status == 404
        assert "ben" not in str(answer)
    else:
        assert status == 200, answer
    assert await everything_of(house) == before
    if "{id}" in route and rule != "owner":
        for stranger in (f"{path}?user=ben", path.replace("/s", "/ben%2Fs", 1)):
            status, answer, _ = await house.ask("anna", method, stranger, body)
            assert "secret" not in str(answer)
            assert rule in ("own", "alike") or status in (400, 404), answer
        assert await everything_of(house) == before


async def test_versions_are_ones_own_and_the_owner_names_whose(house: House) -> None:
    async def listed(who: str, query: str = "") -> list[int]:
        _, answer, _ = await house.ask(who, "GET", f"/v1/versions{query}")
        return [row["version"] for row in answer["data"]]

    assert await listed("owner") == await listed("owner", "?user=owner") == [0, 3]
    assert await listed("anna") == await listed("anna", "?user=anna") == [0, 3, 4]
    assert await listed("owner", "?user=ben") == [0, 3, 5]
    _, back, _ = await house.ask("owner", "POST", "/v1/versions/5?user=ben")
    assert back == {"returned_to": 5, "version": 9}
    for method, path in (("GET", "/v1/versions"), ("POST", "/v1/versions/3")):
        for stranger in ("ben", "owner", "nobody"):
            status, answer, _ = await house.ask("anna", method, f"{path}?user={stranger}")
            assert (status, answer["error"]["code"]) == (403, "owner_only")
        status, answer, _ = await house.ask("owner", method, f"{path}?user=zoe")
        assert (status, answer["error"]["message"]) == (404, "there is no user 'zoe'")
    status, answer, _ = await house.ask("anna", "POST", "/v1/versions/5")
    assert (status, answer["error"]["code"]) == (404, "version_not_found")


async def test_names_of_versions_are_the_owners_to_give(house: House) -> None:
    pins, body = house.bench.gateway.versions.keeper.pins, {"name": "good"}  # type: ignore[union-attr]
    status, answer, _ = await house.ask("owner", "POST", "/v1/versions/3/pin", body)
    assert (status, answer, pins) == (200, {"version": 3, "name": "good"}, {"good": 3})
    assert (await house.ask("anna", "POST", "/v1/versions/3/pin", body))[0] == 403
    assert (await house.ask("anna", "DELETE", "/v1/pins/good"))[0] == 403
    for path, wrong, status in (
        ("/v1/versions/9/pin", body, 409), ("/v1/versions/x/pin", body, 400),
        ("/v1/versions/3/pin", {}, 400), ("/v1/versions/3/pin", {"name": ""}, 400),
    ):  # fmt: skip
        assert (await house.ask("owner", "POST", path, wrong))[0] == status, path
    assert (await house.ask("owner", "DELETE", "/v1/pins/bad"))[0] == 404
    assert (await house.ask("owner", "DELETE", "/v1/pins/good"))[0] == 200
    assert not pins


async def test_feedback_by_the_number_of_anothers_turn_finds_nothing(house: House) -> None:
    _, _, headers = await house.chat("ben", X_Session_Id="s")
    turn = {"turn_id": int(headers["X-Turn-Id"]), "thumb": "down"}
    status, answer, _ = await house.ask("anna", "POST", "/v1/feedback", turn)
    assert (status, answer["error"]["code"]) == (404, "turn_not_found")
    assert house.bench.told.verdicts == []
    for who in ("ben", "owner"):
        assert (await house.ask(who, "POST", "/v1/feedback", turn))[0] == 200
    assert len(house.bench.told.verdicts) == 2


async def test_the_same_name_is_a_session_of_each(house: House) -> None:
    for who in ("anna", "ben", "owner"):
        status, answer, headers = await house.chat(who, f"I am {who}", X_Session_Id="main")
        assert (status, answer["session_id"], headers["X-Session-Id"]) == (200, "main", "main")
        assert answer["id"] == "chatcmpl-main-0"
    assert await house.names("anna") == [("anna", "main")]
    assert await house.names("ben") == [("ben", "main")]
    assert await house.names("owner") == [("anna", "main"), ("ben", "main"), (None, "main")]
    assert await house.names("owner", "?user=anna") == [("anna", "main")]
    assert await house.names("owner", "?user=owner") == [(None, "main")]
    for who in ("anna", "ben"):
        _, shown, _ = await house.ask(who, "GET", "/v1/sessions/main")
        assert [turn["messages"][0]["content"] for turn in shown["turns"]] == [f"I am {who}"]
        assert await house.ask("owner", "GET", f"/v1/sessions/main?user={who}") is not None
    status, _, _ = await house.ask("owner", "DELETE", "/v1/sessions/main?user=ben")
    assert status == 200
    assert await house.names("owner") == [("anna", "main"), (None, "main")]


async def test_histories_that_are_equal_are_not_matched_between_users(house: House) -> None:
    said = [user("hello")]
    ids = {}
    for who in ("anna", "ben", "owner"):
        _, answer, headers = await house.ask(who, "POST", CHAT, {"messages": said})
        ids[who] = headers["X-Session-Id"]
    assert len(set(ids.values())) == 3
    longer = [*said, answer["choices"][0]["message"], user("go on")]
    for who in ("owner", "anna", "ben"):
        _, _, headers = await house.ask(who, "POST", CHAT, {"messages": longer})
        assert headers["X-Session-Id"] == ids[who]
    named = {"messages": longer, "user": "ben\0"}
    _, _, headers = await house.ask("anna", "POST", CHAT, named)
    assert headers["X-Session-Id"] not in ids.values(), "OpenAI's user is no key"


async def test_a_users_requests_are_no_episodes(house: House) -> None:
    for path in (CHAT, "/sessions/s/begin", "/sessions/s/end", "/v1/completions"):
        body = BODIES["completions" if path == "/v1/completions" else "chat/completions"]
        status, answer, _ = await house.ask("anna", "POST", path, body, X_Task_Id="t")
        assert (status, answer["error"]["code"]) == (403, "owner_only")
    assert await house.names("owner") == []


async def test_no_environment_answers_a_users_session(house: House) -> None:
    claim = asyncio.create_task(house.ask("owner", "POST", "/v1/seats?timeout_s=0.3"))
    await asyncio.sleep(0.05)
    assert (await house.chat("anna"))[1]["choices"][0]["message"]["content"] == "ok"
    assert (await claim)[1] == {"seat": None}


@pytest.mark.parametrize("streams", [False, True])
async def test_each_is_told_the_version_of_their_own_weights(
    bench: Bench, streams: bool, tmp_path: Path
) -> None:
    adapters = Adapters(tmp_path / "adapters")
    adapters.promote(await adapters.stage("anna", 7, adapter_folder(tmp_path / "next")))
    bench.versions = adapters
    house = await make_house(bench)
    told = {}
    for who in house.keys:
        body = {"messages": [user("hello")], "stream": streams}
        told[who] = (await house.ask(who, "POST", CHAT, body))[2]["X-Weight-Version"]
    assert told == {"anna": "7", "ben": "0", "owner": "0"}


async def test_one_users_rate_is_not_anothers(bench: Bench) -> None:
    bench.config = bench.config.model_copy(update={"max_requests_per_s": 0.2})
    house = await make_house(bench)
    assert [(await house.chat("anna"))[0] for _ in range(3)] == [200, 429, 429]
    assert [(await house.chat(who))[0] for who in ("ben", "owner")] == [200, 200]


async def test_one_users_waiting_requests_leave_room_for_others(bench: Bench) -> None:
    bench.config = bench.config.model_copy(update={"max_waiting_per_user": 2})
    house = await make_house(bench)
    bench.policy.delay_s = 0.3
    asking = [asyncio.create_task(house.chat("anna", str(number))) for number in range(4)]
    asking.append(asyncio.create_task(house.chat("ben")))
    asking += [asyncio.create_task(house.chat("owner", str(number))) for number in range(4)]
    statuses = [status for status, _, _ in await asyncio.gather(*asking)]
    assert sorted(statuses[:4]) == [200, 200, 429, 429]
    assert statuses[4:] == [200] * 5
    assert not bench.gateway._border._of_users


async def test_one_users_stored_conversations_are_limited(bench: Bench) -> None:
    bench.live = bench.live.model_copy(update={"max_stored_mb_per_user": 0.01})
    house = await make_house(bench)
    long = {"messages": [user("x" * 6000)]}
    assert (await house.ask("anna", "POST", CHAT, long))[0] == 200
    status, answer, _ = await house.chat("anna", X_Session_Id="other")
    assert (status, answer["error"]["code"]) == (507, "quota_exceeded")
    assert "DELETE /v1/sessions/ID" in answer["error"]["message"]
    assert [(await house.chat(who))[0] for who in ("ben", "owner")] == [200, 200]
    sessions = (await house.ask("anna", "GET", "/v1/sessions"))[1]["data"]
    for row in sessions:
        assert (await house.ask("anna", "DELETE", f"/v1/sessions/{row['id']}"))[0] == 200
    assert (await house.chat("anna"))[0] == 200, "there is room again"


async def test_all_stored_conversations_are_limited_but_for_episodes(bench: Bench) -> None:
    bench.live = bench.live.model_copy(update={"max_stored_mb": 0.01})
    house = await make_house(bench)
    assert (await house.chat("ben"))[0] == 200
    long = {"messages": [user("x" * 6000)]}
    assert (await house.ask("owner", "POST", CHAT, long))[0] == 200
    bench.gateway._replies._quota._counted_s = -1e9  # ten seconds later
    assert [(await house.chat(who))[0] for who in ("ben", "owner")] == [507, 507]
    assert (await house.chat("owner", X_Task_Id="t1", X_Session_Id="e1"))[0] == 200


async def test_one_users_open_sessions_are_limited(bench: Bench) -> None:
    bench.config = bench.config.model_copy(update={"max_sessions_per_user": 2})
    house = await make_house(bench)
    for who, last in (("anna", 429), ("ben", 429), ("owner", 200)):
        statuses = [(await house.chat(who, X_Session_Id=name))[0] for name in "abac"]
        assert statuses == [200, 200, 200, last]


async def test_sessions_that_are_begun_count_as_open_ones(bench: Bench) -> None:
    bench.config = bench.config.model_copy(update={"max_sessions_per_user": 2})
    house = await make_house(bench)
    begun = [(await house.ask("anna", "POST", f"/sessions/{name}/begin"))[0] for name in "abac"]
    assert begun == [200, 200, 200, 429]
    assert (await house.ask("anna", "POST", "/sessions/d/end"))[0] == 200, "it does not stay"
    assert bench.gateway.sessions.open_count == 2


async def test_retention_can_be_a_users_own(bench: Bench) -> None:
    bench.live = LiveConfig(retention_days=10)
    bench.users = Users(bench.folder)
    keys = {"anna": bench.users.add("anna", 1), "ben": bench.users.add("ben", 100),
            "carl": bench.users.add("carl")}  # fmt: skip
    await bench.restart()
    house = House(bench, bench.users, keys | {"owner": bench.gateway.key})
    for who in house.keys:
        await house.chat(who, X_Session_Id="s")
        await house.ask(who, "POST", "/v1/sessions/s/end")
    (ended_s,) = {round(row.ended_s or 0, -3) for row in await bench.store.sessions()}
    await bench.gateway.sessions.reap_once(ended_s + 2 * 86_400)
    assert await house.names("owner") == [("ben", "s"), ("carl", "s"), (None, "s")]
    await bench.gateway.sessions.reap_once(ended_s + 20 * 86_400)
    assert await house.names("owner") == [("ben", "s")]
    await bench.gateway.sessions.reap_once(ended_s + 200 * 86_400)
    assert await house.names("owner") == []


# Removal.


def files_with(folder: Path, words: str) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in paths if words.encode() in path.read_bytes()]


async def test_a_removed_users_late_request_is_refused_and_leaves_nothing(house: House) -> None:
    for who in ("anna", "ben"):
        await house.chat(who, f"the words of {who}", X_Session_Id=f"{who}-1")
    turn = {"session_id": "anna-1", "text": "the words of anna"}
    assert (await house.ask("anna", "POST", "/v1/feedback", turn))[0] == 200
    async with house.departing():
        await house.remove("anna")
        status, answer, _ = await house.chat("anna", "the words of anna")
        assert (status, answer["error"]["code"]) == (401, "invalid_key")
        assert "has not been removed" in answer["error"]["message"]
        assert await house.names("owner") == [("ben", "ben-1")]
        assert house.bench.told.deleted == ["anna/anna-1"]
        assert files_with(house.bench.folder, "anna") == []
        assert (await house.chat("ben"))[0] == 200
        again = Users(house.bench.folder).add("anna")
        house.keys["anna"] = again
        assert await house.names("anna") == [], "a name that is used again begins anew"


async def test_a_removal_that_fails_is_tried_again(bench: Bench) -> None:
    house = await make_house(bench)
    tries: list[str] = []

    async def remove(name: str) -> None:
        tries.append(name)
        if len(tries) == 1:
            raise DiskFull("no room")

    running = asyncio.create_task(Departures(bench.folder, house.users, remove).run())
    await house.remove("anna")
    assert tries == ["anna", "anna"]
    running.cancel()
    await asyncio.wait([running])


async def test_requests_under_way_end_with_their_user(house: House) -> None:
    bench = house.bench
    bench.policy = FakePolicy("a long reply of many words")
    await bench.restart()
    house.keys["owner"] = bench.gateway.key
    bench.policy.delay_s, bench.policy.piece_s = 0.5, 0.2
    whole = asyncio.create_task(house.chat("anna", "the words of anna"))
    beside = asyncio.create_task(house.chat("ben", "of ben"))

    async def stream() -> bytes:
        headers = {"Authorization": f"Bearer {house.keys['anna']}"}
        body = {"messages": [user("the words of anna")], "stream": True}
        async with (
            aiohttp.ClientSession(bench.url, headers=headers) as http,
            http.post(CHAT, json=body) as answer,
        ):
            assert answer.status == 200
            return await answer.read()

    streamed = asyncio.create_task(stream())
    await asyncio.sleep(0.75)  # the stream has begun
    second = asyncio.create_task(house.chat("anna", "the words of anna, again"))
    await asyncio.sleep(0.1)
    async with house.departing():
        await house.remove("anna")
    status, answer, _ = await second
    assert (status, answer["error"]["code"]) == (401, "invalid_key")
    with pytest.raises(aiohttp.ClientPayloadError):
        await streamed
    assert (await whole)[0] in (200, 401)
    assert (await beside)[0] == 200
    assert [who for who, _ in await house.names("owner")] == ["ben"]
    assert files_with(bench.folder, "anna") == []


async def test_a_kill_in_the_middle_of_a_removal_changes_nothing_of_its_end(house: House) -> None:
    for number in range(3):
        await house.chat("anna", f"the words of anna {number}")
    Users(house.bench.folder).begin_removal("anna")
    await house.bench.restart()
    house.keys["owner"] = house.bench.gateway.key
    assert (await house.chat("anna"))[0] == 401
    async with house.departing():
        await house.until_removed("anna")
    assert files_with(house.bench.folder, "anna") == []
