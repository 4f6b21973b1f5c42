"""How often one user may give feedback, begin sessions and delete them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clawrl_gym.config import GatewayConfig
from clawrl_gym.gateway.admission.allowances import Allowances, Limit
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.store.allowance_file import ALLOWANCES_FILE, read_taken
from tests.gateway.test_gateway_users import House, make_house
from tests.support.gateway_rig import Bench

LIMITS: list[Limit] = [
    "feedback_per_minute", "feedback_per_day", "new_sessions_per_day", "deletions_per_minute",
]  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("most", [0, 1, 2, 7, None])
def test_a_user_takes_so_many_and_is_told_the_limit_and_when_the_next_one_is_taken(
    limit: Limit, most: int | None
) -> None:
    now_s = 86_400.0 * 5 + 30.0
    limited = Counter[str]()
    allowances = Allowances(GatewayConfig.model_validate({limit: most}), limited, lambda: now_s)
    for _ in range(40 if most is None else most):
        allowances.check("anna", limit)
    allowances.check("", limit)
    if most is None:
        return
    with pytest.raises(Refusal, match=rf"gateway\.{limit}") as refused:
        allowances.check("anna", limit)
    length_s = 86_400.0 if limit.endswith("day") else 60.0
    assert (refused.value.status, refused.value.retry_after_s) == (429, length_s - 30.0)
    assert limited == {limit: 1}
    if most:
        allowances.check("ben", limit)
        now_s += length_s - 30.0
        allowances.check("anna", limit)


def test_what_one_limit_refuses_takes_nothing_of_another() -> None:
    config = GatewayConfig(feedback_per_minute=1, feedback_per_day=2)
    now_s = 0.0
    allowances = Allowances(config, clock_s=lambda: now_s)
    for at_s, passes in ((0.0, True), (1.0, False), (2.0, False), (60.0, True), (120.0, False)):
        now_s = at_s
        if passes:
            allowances.check("anna", "feedback_per_minute", "feedback_per_day")
            continue
        with pytest.raises(Refusal):
            allowances.check("anna", "feedback_per_minute", "feedback_per_day")


async def limited_house(bench: Bench, **limits: int) -> House:
    bench.config = bench.config.model_copy(update=limits)
    return await make_house(bench)


async def test_feedback_is_limited_by_user_and_not_for_the_owner(bench: Bench) -> None:
    house = await limited_house(bench, feedback_per_minute=2)
    for who, last in (("anna", 429), ("ben", 429), ("owner", 200)):
        await house.chat(who, X_Session_Id="s")
        body = {"session_id": "s", "thumb": "up"}
        answers = [await house.ask(who, "POST", "/v1/feedback", body) for _ in range(3)]
        assert [status for status, _, _ in answers] == [200, 200, last]
        if last == 429:
            assert "gateway.feedback_per_minute" in answers[-1][1]["error"]["message"]
            assert 1 <= int(answers[-1][2]["Retry-After"]) <= 60
    async with bench.http.get("/metrics") as metrics:
        text = await metrics.text()
    assert 'clawrl_limited_total{limit="feedback_per_minute"} 2.0' in text


async def test_new_sessions_of_a_day_are_limited_however_they_begin_or_end(bench: Bench) -> None:
    house = await limited_house(bench, new_sessions_per_day=3)
    assert (await house.chat("anna", X_Session_Id="a"))[0] == 200
    assert (await house.ask("anna", "POST", "/sessions/b/begin"))[0] == 200
    assert (await house.ask("anna", "POST", "/sessions/c/end"))[0] == 200
    for name in "abc":
        assert (await house.ask("anna", "DELETE", f"/v1/sessions/{name}"))[0] == 200
    assert (await house.chat("anna", X_Session_Id="d"))[0] == 429, "deleted ones count"
    assert (await house.chat("ben", X_Session_Id="d"))[0] == 200
    assert (await house.chat("owner", X_Session_Id="d"))[0] == 200


async def test_sessions_that_are_there_go_on_at_the_limit(bench: Bench) -> None:
    house = await limited_house(bench, new_sessions_per_day=1)
    statuses = [(await house.chat("anna", text, X_Session_Id="a"))[0] for text in ("x", "y", "z")]
    assert statuses == [200, 200, 200]
    assert (await house.ask("anna", "POST", "/v1/sessions/a/end", {}))[0] == 200
    assert (await house.chat("anna", "again", X_Session_Id="a"))[0] == 200, "opened again"


async def test_deletions_are_limited(bench: Bench) -> None:
    house = await limited_house(bench, deletions_per_minute=1)
    for name in "ab":
        await house.chat("anna", X_Session_Id=name)
    answers = [(await house.ask("anna", "DELETE", f"/v1/sessions/{name}"))[0] for name in "ab"]
    assert answers == [200, 429]


def kept(folder: Path, now_s: float, **limits: int | None) -> Allowances:
    config = GatewayConfig.model_validate(limits)
    return Allowances(config, clock_s=lambda: now_s, folder=folder)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("most", [1, 3])
async def test_a_restart_brings_no_allowance_back(tmp_path: Path, limit: Limit, most: int) -> None:
    before = kept(tmp_path, 90_000.0, **{limit: most})
    for _ in range(most):
        before.check("anna", limit)
    await before.save()
    after = kept(tmp_path, 90_001.0, **{limit: most})
    with pytest.raises(Refusal, match=rf"gateway\.{limit}"):
        after.check("anna", limit)
    after.check("ben", limit)
    await after.save()
    assert read_taken(tmp_path).refused == {(limit, "anna"): 1}
    kept(tmp_path, 90_000.0 + 86_400.0, **{limit: most}).check("anna", limit)


async def test_nothing_of_a_removed_user_stays_in_the_file(tmp_path: Path) -> None:
    allowances = kept(tmp_path, 0.0, feedback_per_day=1)
    allowances.check("anna", "feedback_per_day")
    with pytest.raises(Refusal):
        allowances.check("anna", "feedback_per_day")
    allowances.check("ben", "feedback_per_day")
    await allowances.save()
    allowances.forget("anna")
    await allowances.save()
    assert "anna" not in (tmp_path / ALLOWANCES_FILE).read_text()
    assert ("feedback_per_day", "ben") in read_taken(tmp_path).windows


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"windows": [[1]], "refused": []}', "null"])
def test_a_file_that_cannot_be_read_is_said_and_limits_hold_from_now_on(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ALLOWANCES_FILE).write_text(text)
    allowances = kept(tmp_path, 0.0, feedback_per_day=1)
    assert "start from zero" in caplog.text
    allowances.check("anna", "feedback_per_day")
    with pytest.raises(Refusal):
        allowances.check("anna", "feedback_per_day")


async def test_the_gateway_knows_after_a_restart_what_was_taken(bench: Bench) -> None:
    bench.allowances = bench.folder
    house = await limited_house(bench, new_sessions_per_day=1, feedback_per_day=1)
    feedback = {"session_id": "a", "thumb": "up"}
    assert (await house.chat("anna", X_Session_Id="a"))[0] == 200
    assert (await house.ask("anna", "POST", "/v1/feedback", feedback))[0] == 200
    await bench.restart()
    assert (await house.chat("anna", X_Session_Id="b"))[0] == 429
    assert (await house.chat("ben", X_Session_Id="b"))[0] == 200
    assert (await house.ask("anna", "POST", "/v1/feedback", feedback))[0] == 429
