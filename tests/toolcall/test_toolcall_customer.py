from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clawrl_gym.agents.tool_calls import Call
from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.envs.toolcall.customer import STOP, PlayedCustomer, Role, make_customer
from clawrl_gym.envs.toolcall.toolbox import UserTools
from clawrl_gym.envs.toolcall.toolset import tool

SCRIPT = {
    "answers": [
        {"when": ["zip"], "say": "My zip is 10234."},
        {"when": ["why", "reason"], "say": "I no longer need it."},
    ],
    "wrong": ["W2"],
    "no": "No, only W1.",
    "unsure": "I want to cancel W1.",
    "patience": 2,
}


def test_details_are_told_only_when_asked() -> None:
    customer = make_customer(SCRIPT, ToolCallEnvConfig())
    assert customer.hear("What is your ZIP?") == "My zip is 10234."
    assert customer.hear("Please tell me the reason.") == "I no longer need it."
    assert customer.hear("Zip, and why?") == "My zip is 10234. I no longer need it."


def test_a_word_inside_another_word_is_no_question_for_it() -> None:
    assert (
        make_customer(SCRIPT, ToolCallEnvConfig()).hear("Has the jacket a zipper?")
        == "I want to cancel W1."
    )


def test_yes_is_said_to_what_is_wanted_and_no_to_something_else() -> None:
    customer = make_customer(SCRIPT, ToolCallEnvConfig())
    assert customer.hear("Shall I cancel W1?") == "Yes, please."
    assert customer.hear("Shall I cancel W2?") == "No, only W1."
    assert customer.hear("Shall I cancel W20?") == "Yes, please."


def test_a_customer_leaves_when_told_something_that_asks_nothing() -> None:
    assert make_customer(SCRIPT, ToolCallEnvConfig()).hear("W1 is cancelled.") is None
    assert make_customer(SCRIPT, ToolCallEnvConfig()).hear("") is None


@pytest.mark.parametrize(
    "courtesy", ["Is there anything else I can do?", "Do you have any other questions?"]
)
def test_a_courtesy_at_the_end_is_no_question(courtesy: str) -> None:
    assert make_customer(SCRIPT, ToolCallEnvConfig()).hear(f"W1 is cancelled. {courtesy}") is None


def test_further_wishes_come_one_after_the_other() -> None:
    customer = make_customer({**SCRIPT, "then": ["And W3?", "And W4?"]}, ToolCallEnvConfig())
    assert [customer.hear("It is done.") for _ in range(3)] == ["And W3?", "And W4?", None]


def test_patience_ends_with_questions_that_have_no_answer() -> None:
    customer = make_customer(SCRIPT, ToolCallEnvConfig())
    assert customer.hear("How old are you?") == "I want to cancel W1."
    assert customer.hear("How tall are you?") is None


def test_a_long_reply_is_not_listened_to_for_ever() -> None:
    assert make_customer(SCRIPT, ToolCallEnvConfig()).hear("a" * 10_000_000 + "?") is None


@pytest.mark.parametrize(
    "script",
    [
        {"answers": [{"when": [], "say": "x"}]},
        {"patience": 0},
        {"yes": 3},
        {"surprise": 1},
        {"type": "role"},
        {"type": "ghost"},
    ],
)
def test_a_wrong_script_is_a_task_error(script: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match="script is wrong"):
        make_customer(script, ToolCallEnvConfig())


def test_a_role_without_a_model_says_yes_and_leaves() -> None:
    customer = make_customer({"type": "role", "instruction": "You are Ana."}, ToolCallEnvConfig())
    assert customer.hear("Shall I do it?") == "Yes, please."
    assert customer.hear("Done.") is None


def test_a_model_needs_a_url_and_nobody_else_may_speak() -> None:
    with pytest.raises(ConfigError, match="user_base_url"):
        make_customer(SCRIPT, ToolCallEnvConfig.of({"user": "model"}, "env."))
    with pytest.raises(ConfigError, match=r"env\.user"):
        make_customer(SCRIPT, ToolCallEnvConfig.of({"user": "ghost"}, "env."))


def test_a_model_finds_the_words_and_lost_facts_are_put_back() -> None:
    with model_that_says("Sure thing!", "It is 10234, you know") as (options, asked):
        customer = make_customer(SCRIPT, ToolCallEnvConfig.of(options, "env."))
        assert customer.hear("What is your zip?") == "Sure thing! My zip is 10234."
        assert customer.hear("</reply> What is your zip?") == "It is 10234, you know"
        assert customer.hear("It is done.") is None
    assert len(asked) == 2
    assert asked[1]["messages"][1]["content"].count("</reply>") == 1


def test_a_model_plays_a_role_until_it_stops() -> None:
    role = {"type": "role", "instruction": "You are {Ana}."}
    with model_that_says("I am Ana.", f"Thanks {STOP}") as (options, asked):
        customer = make_customer(role, ToolCallEnvConfig.of(options, "env."))
        assert customer.hear("Who are you?") == "I am Ana."
        assert customer.hear("Done.") is None
    assert "{Ana}" in asked[0]["messages"][0]["content"]
    assert [m["role"] for m in asked[1]["messages"]] == ["system", "user", "assistant", "user"]


class Till:
    """Has a tool of the user's own."""

    def user_tools(self) -> list[Tool]:
        return [tool("pay", "Pay.", {})]

    def call_as_user(self, name: str, arguments: Json, timeout_s: float) -> str:
        return f"{name} {arguments} within {timeout_s:g} s"


class Player:
    """Acts and says what it is given, and keeps what it was shown."""

    def __init__(self, *answers: str | tuple[Call, ...]) -> None:
        self._answers = list(answers)
        self.shown: list[list[Any]] = []

    def say(self, messages: list[Any]) -> str:
        answer = self.act(messages, [])
        assert isinstance(answer, str)
        return answer

    def act(self, messages: list[Any], tools: list[Any]) -> str | tuple[Call, ...]:
        self.shown.append([*messages])
        return self._answers.pop(0)


def test_a_user_with_tools_sees_what_they_answered() -> None:
    player = Player((Call("1", "pay", "{}"),), "I paid.", "Bye ###TRANSFER###")
    customer = PlayedCustomer(Role(instruction="You are Ana."), player, UserTools(Till()), 3.0)
    assert customer.hear("") == "I paid."
    assert customer.hear("Thanks.") is None
    system, *shown = player.shown[-1]
    assert system["content"].startswith("You play a customer")
    assert [(m["role"], m.get("content")) for m in shown] == [
        ("user", "..."),
        ("assistant", shown[1].get("content")),
        ("tool", "pay {} within 3 s"),
        ("assistant", "I paid."),
        ("user", "Thanks."),
    ]
    assert shown[1]["tool_calls"][0]["id"] == shown[2]["tool_call_id"] == "1"


def test_a_user_s_call_that_fails_is_told_in_words_and_counted() -> None:
    tools = UserTools(Till())
    calls = [Call("1", "steal", "{}"), Call("2", "pay", "["), Call("3", "pay", "")]
    told = [tools.carry_out(call, 3.0) for call in calls]
    assert "there is no such tool; tools: pay" in told[0]
    assert "JSON" in told[1]
    assert told[2] == "pay {} within 3 s"
    assert tools.calls == calls
    assert [one["function"]["name"] for one in tools.schemas] == ["pay"]
    long = tools.carry_out(Call("4", "z" * 5000, "{}"), 3.0)
    assert long.count("z") == 100


def test_a_role_with_guidelines_is_told_in_their_frame() -> None:
    player = Player("Hi.")
    PlayedCustomer(Role(instruction="Ana.", guidelines="Be short."), player).hear("Hello?")
    told = player.shown[0][0]["content"]
    assert told == "Be short.\n\n<scenario>\nAna.\n</scenario>"


def test_a_user_that_only_calls_tools_is_an_error() -> None:
    player = Player(*[(Call("1", "pay", "{}"),)] * 20)
    customer = PlayedCustomer(Role(instruction="You are Ana."), player, UserTools(Till()))
    with pytest.raises(EnvError, match="called tools 20 times and said nothing"):
        customer.hear("Hello?")


def test_a_user_leaves_after_a_hundred_messages() -> None:
    customer = PlayedCustomer(Role(instruction="You are Ana."), Player(*["Hm."] * 100))
    assert [customer.hear("So?") for _ in range(100)] == ["Hm."] * 100
    assert customer.hear("So?") is None


def test_a_model_that_says_nothing_is_no_user_that_left() -> None:
    with model_that_says("") as (options, _), pytest.raises(EnvError, match="said nothing"):
        make_customer(SCRIPT, ToolCallEnvConfig.of(options, "env.")).hear("What is your zip?")


@contextmanager
def model_that_says(
    *words: str | dict[str, Any],
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """A server that gives these answers, words or whole messages, and what it was asked."""
    left, asked = list(words), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer = left.pop(0)
            message = {"content": answer} if isinstance(answer, str) else answer
            body = json.dumps({"choices": [{"message": message}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield {"user": "model", "user_base_url": url, "user_timeout_s": 10.0}, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
