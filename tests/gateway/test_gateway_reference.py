"""Defects of the reference system's API server, each as a test that they are not here.

Numbers are those of its analysis: S3, S4, S9, and sections 1.2 to 1.14.
"""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest

import clawrl_gym.gateway
from clawrl_gym.config import GatewayConfig, LiveConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.gateway.admission.admission import check_key
from tests.support.fakes import FakePolicy, sampled
from tests.support.gateway_rig import HELLO, Bench, text_of, user
from tests.support.narrow import plain_text

CHAT = "/v1/chat/completions"


async def test_s3_ids_are_those_that_were_sampled_though_the_text_tokenises_otherwise(
    bench: Bench,
) -> None:
    """S3, 1.6: ids came from tokenising the reply's text again, log-probs from the engine, and
    where the lengths differed they were cut or padded with 0.0."""
    bench.policy = FakePolicy("cab")  # the template's tokenizer would say `ab` in one id
    await bench.restart()
    for number, make in enumerate((bench.say, bench.events)):
        await make(HELLO, f"s{number}")
        (turn,) = await bench.store.turns_of(f"s{number}")
        assert turn.sampled_ids_T == sampled("cab") != []
        assert len(turn.logprobs_T) == len(turn.sampled_ids_T)
        assert 0.0 not in turn.logprobs_T


def test_s3_the_gateway_has_no_tokenizer() -> None:
    """S3, 1.6: what cannot tokenise cannot tokenise again."""
    folder = Path(clawrl_gym.gateway.__path__[0])
    imported = {
        name.partition(".")[0]
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert "aiohttp" in imported
    assert imported.isdisjoint({"tokenizers", "transformers", "vllm", "torch"})


async def test_1_6_the_prompt_is_rendered_with_the_request_s_own_template_arguments(
    bench: Bench,
) -> None:
    """1.6: `chat_template_kwargs` went to the engine and not into the recorded prompt."""
    await bench.say(HELLO, chat_template_kwargs={"enable_thinking": False})
    assert bench.policy.bodies[-1]["chat_template_kwargs"] == {"enable_thinking": False}
    (turn,) = await bench.store.turns_of("s1")
    assert turn.prompt_ids_T == bench.policy.prompts[0]


async def test_1_6_a_turn_knows_why_it_ended_and_which_weights_made_it(bench: Bench) -> None:
    """1.6: neither finish reason nor weight version was ever kept."""
    bench.policy.cut = True
    bench.gateway.version = 3
    await bench.say(HELLO)
    (turn,) = await bench.store.turns_of("s1")
    assert turn.finish_reason == "length"
    assert set(turn.versions_T) == {3}


async def test_s4_turns_do_not_depend_on_the_record(tmp_path: Path) -> None:
    """S4: with the recorder off, no judge ever ran and no sample was ever made."""
    bench = Bench(tmp_path)
    bench.live = LiveConfig(record=False)
    await bench.start()
    first = await bench.say(HELLO)
    await bench.say([*HELLO, first, user("no, shorter")])
    assert [turn.id for turn in bench.told.next_states] == [1]
    assert bench.told.next_states[0].sampled_ids_T == sampled("ok")
    await bench.stop()


async def test_s9_requests_during_weight_swaps_are_all_answered(bench: Bench) -> None:
    """S9, 1.11: a 503 to every chat from a full batch until the new weights were in."""
    bench.policy.delay_s = 0.02

    async def swaps() -> None:
        for version in range(1, 21):
            with bench.gateway.hold_requests():
                await asyncio.sleep(0.02)
                bench.gateway.version = version
            await asyncio.sleep(0.01)

    async def talk(number: int) -> list[str]:
        said = []
        for turn in range(8):
            messages = [user(f"{number} {turn}")]
            if turn % 2:
                said.append(plain_text(await bench.say(messages, f"s{number}")))
            else:
                said.append(text_of(await bench.events(messages, f"s{number}")))
        return said

    _, *said = await asyncio.gather(swaps(), *(talk(number) for number in range(10)))
    assert said == [["ok"] * 8] * 10
    statuses = {status for _, status in bench.gateway.stats.answers}
    assert statuses == {200}
    versions = {
        version
        for number in range(10)
        for turn in await bench.store.turns_of(f"s{number}")
        for version in turn.versions_T
    }
    assert -1 not in versions
    assert len(versions) > 1


async def test_1_3_clients_without_a_session_do_not_share_one(bench: Bench) -> None:
    """1.3: whoever named no session was in one called "unknown"."""
    answers = [await bench.post(CHAT, {"messages": [user(f"I am {n}")]}) for n in range(5)]
    ids = [headers["X-Session-Id"] for _, _, headers in answers]
    assert len(set(ids)) == 5
    assert "unknown" not in ids


async def test_1_3_a_turn_without_headers_is_a_main_turn(bench: Bench) -> None:
    """1.3: the default was "side", so a client that sends no headers taught nothing."""
    _, _, headers = await bench.post(CHAT, {"messages": HELLO})
    (turn,) = await bench.store.turns_of(headers["X-Session-Id"])
    assert turn.kind == "main"


async def test_1_3_no_gateway_is_open_to_others_without_a_key(bench: Bench) -> None:
    """1.3: with no key in its environment, anybody on the network could use it."""
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(ConfigError, match=r"gateway\.key=SECRET"):
            check_key(GatewayConfig(host=host))
        with pytest.raises(ConfigError, match=r"gateway\.key=SECRET"):
            check_key(GatewayConfig(host=host, key=""))
    assert len(bench.gateway.key) >= 32, "on loopback, too, there is one"
    async with bench.http.get("/v1/models", headers={"Authorization": "Bearer "}) as answer:
        assert answer.status == 401


async def test_1_14_what_the_engine_refuses_reaches_the_client(bench: Bench) -> None:
    """1.8, 1.14: the engine's 400, a context overflow for instance, became a bare 500."""
    bench.policy.max_prompt = 5
    status, answer, _ = await bench.chat(HELLO)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 5" in answer["error"]["message"]


async def test_1_14_a_policy_that_hangs_does_not_hang_the_turn(tmp_path: Path) -> None:
    """1.14: `timeout=None` everywhere: a hung engine hung the turn for ever."""
    bench = Bench(tmp_path)
    bench.timeout_s = 0.2
    bench.policy.delay_s = 60
    await bench.start()
    for stream in (False, True):
        body: Any = {"messages": HELLO, "stream": stream}
        async with bench.http.post(CHAT, json=body) as answer:
            assert b"policy_unavailable" in await answer.read()
    assert bench.gateway.stats.inside == 0
    await bench.stop()


async def test_1_14_more_than_one_choice_is_refused_and_not_half_recorded(bench: Bench) -> None:
    """1.6: of n choices, one was recorded and all were sent."""
    status, answer, _ = await bench.chat(HELLO, n=2)
    assert status == 400
    assert "n=2" in answer["error"]["message"]
