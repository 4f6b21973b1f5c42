"""The rollout loop: every way in which an episode can end, and what it may be worth."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clawrl_gym.agents.text import TextAgent
from clawrl_gym.core.errors import (
    AgentFault,
    ContextError,
    PolicyError,
    ReplyTimeout,
    RequestError,
)
from clawrl_gym.core.types import Episode, Message, StopReason, TaskRef, Tool, ToolCall
from clawrl_gym.envs.conversation.agent import ConversationAgent
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.generated import make_task
from clawrl_gym.envs.terminal.agent import TerminalAgent, reply_text
from clawrl_gym.rollout.episodes.deadline import Waits
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, PolicyReply, run_episode

SPEC = EpisodeSpec("s", 1, TaskRef("t", 3, "train"), max_turns=3, timeout_s=5.0)


class Countdown:
    """Rewards 0.5 a step; ends after `length` steps in the way asked for."""

    def __init__(self, length: int, truncate: bool = False, fail_at: int | None = None) -> None:
        self.length, self.truncate, self.fail_at = length, truncate, fail_at
        self.actions: list[str] = []
        self.options: dict[str, Any] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.options = options
        return "go", {"family": "count"}

    def step(self, action: str) -> Any:
        self.actions.append(action)
        if self.fail_at == len(self.actions):
            raise OSError("disk gone")
        over = len(self.actions) >= self.length
        return f"saw {action}", 0.5, over and not self.truncate, over and self.truncate, {}

    def finish(self) -> float:
        return 0.25


class ScriptedChat:
    """Answers with the given replies; an exception among them is raised."""

    def __init__(self, *replies: str | Message | Exception) -> None:
        self.replies = list(replies)
        self.tools: list[list[Tool]] = []
        self.requests: list[list[Message]] = []
        self.ended: tuple[Episode, list[Message] | None] | None = None

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        self.requests.append(messages)
        self.tools.append(tools)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            reply = {"role": "assistant", "content": reply}
        return PolicyReply(reply, tokens=10)

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None:
        self.ended = (episode, next_state)


async def in_place(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


async def play(env: Any, chat: ScriptedChat, spec: EpisodeSpec = SPEC) -> Episode:
    return await run_episode(spec, env, TextAgent(), chat, in_place)


async def test_a_terminated_episode_sums_its_rewards_and_reports_the_last_observation() -> None:
    env, chat = Countdown(2), ScriptedChat("a", "b")
    episode = await play(env, chat)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0)
    assert episode.success
    assert episode.family == "count"
    assert env.options == {"task": "t", "split": "train"}
    assert chat.ended == (episode, [{"role": "user", "content": "saw b"}])


async def test_what_was_said_comes_back_with_an_episode_that_wants_it() -> None:
    episode = await play(Countdown(2), ScriptedChat("a", "b"), replace(SPEC, keeps_transcript=True))
    transcript = episode.transcript
    assert transcript is not None
    assert transcript.opening == [{"role": "user", "content": "go"}]
    assert [answer.action for answer in transcript.answers] == ["a", "b"]
    assert {answer.completion_tokens for answer in transcript.answers} == {None}
    assert all(0 <= answer.duration_s <= episode.duration_s for answer in transcript.answers)
    assert transcript.observations == ["go", "saw a", "saw b"]
    assert (await play(Countdown(1), ScriptedChat("a"))).transcript is None


async def test_each_request_extends_the_one_before() -> None:
    chat = ScriptedChat("a", "b")
    await play(Countdown(2), chat)
    first, second = chat.requests
    assert second[: len(first)] == first
    assert [m["content"] for m in second] == ["go", "a", "saw a"]


async def test_truncation_by_the_environment_keeps_the_reward() -> None:
    episode = await play(Countdown(1, truncate=True), ScriptedChat("a"))
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 0.5)


async def test_the_turn_budget_truncates_and_what_is_there_is_graded() -> None:
    episode = await play(Countdown(99), ScriptedChat("a", "b", "c"))
    assert (episode.stop_reason, episode.turns, episode.reward) == (StopReason.TRUNCATED, 3, 1.75)


async def test_a_full_context_ends_the_episode_and_what_is_there_is_graded() -> None:
    episode = await play(Countdown(9), ScriptedChat("a", ContextError("too long")))
    assert (episode.stop_reason, episode.reward) == (StopReason.CONTEXT, 0.75)


async def test_a_failing_environment_is_never_a_reward() -> None:
    episode = await play(Countdown(9, fail_at=2), ScriptedChat("a", "b"))
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert episode.error == "step: OSError: disk gone"


async def test_a_failing_policy_is_never_a_reward() -> None:
    episode = await play(Countdown(9), ScriptedChat("a", PolicyError("gone")))
    assert (episode.stop_reason, episode.reward) == (StopReason.POLICY_ERROR, None)


async def test_the_deadline_is_a_failure() -> None:
    class Slow(ScriptedChat):
        async def reply(
            self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
        ) -> PolicyReply:
            await asyncio.sleep(30)
            raise AssertionError("the deadline did not end this")

    spec = EpisodeSpec("s", 1, TaskRef(None, 3, "train"), max_turns=3, timeout_s=0.05)
    episode = await play(Countdown(9), Slow(), spec)
    assert (episode.stop_reason, episode.reward) == (StopReason.DEADLINE, 0.0)


def late_after(replies: int) -> EpisodeSpec:
    return EpisodeSpec("s", 1, TaskRef(None, 3, "train"), max_turns=replies + 9, timeout_s=0.1)


class Hangs(ScriptedChat):
    """Answers, and then no more."""

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        if self.replies:
            return await super().reply(spec, messages, tools)
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


async def test_what_was_earned_before_the_deadline_is_lost_and_what_was_paid_is_not() -> None:
    earned = await play(Countdown(9), Hangs("a"), late_after(1))
    assert (earned.stop_reason, earned.reward) == (StopReason.DEADLINE, 0.0)

    class Costs(Countdown):
        def step(self, action: str) -> Any:
            return "saw", -0.25, False, False, {}

    paid = await play(Costs(9), Hangs("a", "b"), late_after(2))
    assert (paid.stop_reason, paid.reward) == (StopReason.DEADLINE, -0.5)


class Crawls(ScriptedChat):
    """A policy that takes `reply_s` for each reply of `tokens` tokens."""

    def __init__(self, reply_s: float, tokens: int) -> None:
        super().__init__()
        self.reply_s, self.tokens_each = reply_s, tokens

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        await asyncio.sleep(self.reply_s)
        return PolicyReply({"role": "assistant", "content": "a"}, tokens=self.tokens_each)


@pytest.mark.parametrize(
    ("reply_s", "tokens", "stop", "reward"),
    [
        (0.04, 1_000, StopReason.DEADLINE, 0.0),  # many tokens, sampled fast: the agent's
        (0.3, 1_000, StopReason.DEADLINE, 0.0),  # the same, slower than the deadline alone
        (0.04, 0, StopReason.DEADLINE, 0.0),  # nobody says how many
    ],
)
async def test_replies_at_a_usual_speed_are_the_agents_time(
    reply_s: float, tokens: int, stop: StopReason, reward: float
) -> None:
    spec = replace(late_after(1), max_turns=99)
    episode = await play(Countdown(99), Crawls(reply_s, tokens), spec)
    assert (episode.stop_reason, episode.reward) == (stop, reward)


async def test_an_episode_that_a_slow_machine_kept_from_its_end_is_not_scored() -> None:
    """Each reply has one token, which is a tenth of a second, and takes half a second."""
    spec = replace(late_after(1), timeout_s=0.6, max_turns=999)
    episode = await play(Countdown(999), Crawls(0.5, 1), spec)
    assert (episode.stop_reason, episode.reward) == (StopReason.POLICY_ERROR, None)
    assert "the machine is too slow" in (episode.error or "")
    assert "less than 10" in (episode.error or "")


async def test_a_slow_machine_makes_the_deadline_later() -> None:
    episode = await play(Countdown(2), Crawls(0.12, 1), replace(late_after(9), timeout_s=0.22))
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0)


async def test_time_without_a_policy_is_not_the_agents() -> None:
    outages: list[float] = []
    back = asyncio.Event()

    async def waits(last_s: float) -> Waits:
        outages.append(last_s)
        back.set()
        return Waits(0.08)

    class Wakes(ScriptedChat):
        async def reply(
            self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
        ) -> PolicyReply:
            await back.wait()
            return await super().reply(spec, messages, tools)

    episode = await run_episode(
        late_after(1), Countdown(1), TextAgent(), Wakes("a"), in_place, waits=waits
    )
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 0.5)
    assert outages
    assert outages[0] >= 0.1


async def test_a_policy_that_is_away_for_long_is_no_failure_of_the_agent() -> None:
    async def waits(last_s: float) -> Waits:
        return Waits(99.0)

    episode = await run_episode(
        late_after(1), Countdown(1), TextAgent(), Hangs(), in_place, waits=waits
    )
    assert (episode.stop_reason, episode.reward) == (StopReason.POLICY_ERROR, None)


async def test_a_start_that_takes_too_long_is_no_failure_of_the_agent() -> None:
    async def stuck(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    episode = await run_episode(late_after(1), Countdown(1), TextAgent(), Hangs(), stuck)
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert "did not start in 0.1 s" in (episode.error or "")


async def test_a_reply_without_an_end_is_a_failure() -> None:
    chat = ScriptedChat("a", ReplyTimeout("the reply had not ended after 120 s"))
    episode = await play(Countdown(9), chat)
    assert (episode.stop_reason, episode.reward) == (StopReason.DEADLINE, 0.0)


async def test_a_history_that_is_refused_is_the_agents_and_a_first_request_is_not() -> None:
    refusal = RequestError("400: arguments are no JSON")
    later = await play(Countdown(9), ScriptedChat("a", refusal))
    assert (later.stop_reason, later.reward) == (StopReason.AGENT_FAULT, 0.0)
    first = await play(Countdown(9), ScriptedChat(refusal))
    assert (first.stop_reason, first.reward) == (StopReason.POLICY_ERROR, None)


@pytest.mark.parametrize("where", ["step", "finish"])
async def test_what_the_agent_spoilt_is_a_failure(where: str) -> None:
    class Spoilt(Countdown):
        def step(self, action: str) -> Any:
            if where == "step":
                raise AgentFault("the agent ended its own machine")
            return super().step(action)

        def finish(self) -> float:
            raise AgentFault("the agent left no grade that can be read")

    chat = ScriptedChat("a", "b", "c")
    episode = await play(Spoilt(9), chat)
    assert (episode.stop_reason, episode.reward) == (StopReason.AGENT_FAULT, 0.0)
    assert chat.ended is not None
    assert chat.ended[0].reward == 0.0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("saw", float("nan"), False, False, {}), "got a reward nan, expected a finite number"),
        (("saw", float("-inf"), False, False, {}), "got a reward -inf"),
        (("saw", "0.5", False, False, {}), "got a reward '0.5'"),
        (("saw", None, False, False, {}), "got a reward None"),
        (("saw", 0.5, None, False, {}), "got terminated=None, expected True or False"),
        (("saw", 0.5, False, "no", {}), "got truncated='no'"),
        (("saw", 0.5, False, {}), "step: got 4 values, expected the 5 values observation, reward"),
        (None, "step: got NoneType, expected the 5 values"),
        (("saw", 0.5, False, False, None), "step: got info of type NoneType, expected dict"),
        ((b"saw", 0.5, False, False, {}), "step: got an observation of type bytes, expected str"),
        (("saw", 0.5, False, False, {"scores": {"a": float("nan")}}), "the score 'a' nan"),
    ],
)
async def test_a_step_that_gives_something_else_is_the_environments_error(
    wrong: Any, words: str
) -> None:
    class Wrong(Countdown):
        def step(self, action: str) -> Any:
            return wrong

    episode = await play(Wrong(9), ScriptedChat("a"))
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert words in (episode.error or "")


async def test_numpy_rewards_and_flags_are_taken() -> None:
    class Numpy(Countdown):
        def step(self, action: str) -> Any:
            return "saw", np.float32(1.0), np.bool_(True), np.bool_(False), {}

    episode = await play(Numpy(9), ScriptedChat("a"))
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0)


async def test_an_end_that_cannot_be_recorded_loses_the_reward_not_the_run() -> None:
    class Deaf(ScriptedChat):
        async def end(
            self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
        ) -> None:
            raise PolicyError("nobody there")

    episode = await play(Countdown(1), Deaf("a"))
    assert (episode.stop_reason, episode.reward) == (StopReason.POLICY_ERROR, None)


async def test_a_reply_without_an_action_is_an_observation_for_the_model() -> None:
    chat = ScriptedChat("no block here", reply_text("ls"))
    env = Countdown(1)
    episode = await run_episode(SPEC, env, TerminalAgent(), chat, in_place)
    assert env.actions == ["ls"]
    assert episode.turns == 2
    assert "expected exactly one" in (chat.requests[1][-1]["content"] or "")


async def test_an_environment_that_does_not_speak_text_is_an_error_that_says_so() -> None:
    class Numbers(Countdown):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return 7, {}

    episode = await play(Numbers(1), ScriptedChat("a"))
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert episode.error is not None
    assert "expected str" in episode.error


@pytest.mark.parametrize("command", ["ls -l", "cat <<E\nx\nE", "echo '``'"])
def test_a_command_survives_the_reply_format(command: str) -> None:
    action = TerminalAgent().action({"role": "assistant", "content": reply_text(command)})
    assert getattr(action, "text", None) == command


def calls(*called: tuple[str, str, str]) -> Message:
    """A reply that calls tools: ids, names and arguments."""
    made: list[ToolCall] = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in called
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


async def converse(chat: ScriptedChat, task_id: str) -> Episode:
    spec = EpisodeSpec("s", 1, TaskRef(task_id, 3, "train"), max_turns=6, timeout_s=5.0)
    return await run_episode(spec, ConversationEnv(), ConversationAgent(), chat, in_place)


async def test_an_episode_with_tools_offers_them_and_their_results_come_back_as_tool_messages() -> (
    None
):
    task = make_task("student-read-train-000003")
    said = task.persona.style.render(task.problem, Draw("x"))
    asked = calls(("r1", "read", f'{{"path": "{task.source}"}}'))
    chat = ScriptedChat(asked, said)
    episode = await converse(chat, task.id)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0)
    assert episode.family == "read"
    assert episode.scores == {"liked": 1.0, "personalization": 1.0, "correct": 1.0}
    assert [[t["function"]["name"] for t in tools] for tools in chat.tools] == [["read"]] * 2
    assert chat.requests[1] == [
        {"role": "user", "content": task.opening},
        asked,
        {"role": "tool", "tool_call_id": "r1", "content": task.problem.text},
    ]
    assert chat.ended is not None
    (last,) = chat.ended[1] or []
    assert last["role"] == "user"
    assert last["content"] in task.persona.thanks


async def test_parallel_results_are_the_next_state_when_they_end_an_episode() -> None:
    spec = EpisodeSpec(
        "s", 1, TaskRef("student-homework-train-000003", 3, "train"), max_turns=1, timeout_s=5.0
    )
    chat = ScriptedChat(calls(("a", "read", "{}"), ("b", "nothing", "{}")))
    await run_episode(spec, ConversationEnv(), ConversationAgent(), chat, in_place)
    assert chat.ended is not None
    state = chat.ended[1] or []
    assert [(message["role"], message["tool_call_id"]) for message in state] == [
        ("tool", "a"),
        ("tool", "b"),
    ]


async def test_an_agent_without_tools_offers_none_of_the_environments() -> None:
    spec = EpisodeSpec(
        "s", 1, TaskRef("student-read-train-000003", 3, "train"), max_turns=1, timeout_s=5.0
    )
    chat = ScriptedChat("hm")
    await run_episode(spec, ConversationEnv(), TextAgent(), chat, in_place)
    assert chat.tools == [[]]


async def test_scores_of_an_episode_that_infrastructure_ended_are_not_kept() -> None:
    chat = ScriptedChat("its 7", PolicyError("gone"))
    episode = await converse(chat, "student-ask-train-000003")
    assert (episode.stop_reason, episode.scores) == (StopReason.POLICY_ERROR, {})


async def test_scores_that_are_no_numbers_are_an_error_of_the_environment() -> None:
    class Odd(Countdown):
        def step(self, action: str) -> Any:
            return "saw", 0.0, False, False, {"scores": {"style": "high"}}

    episode = await play(Odd(9), ScriptedChat("a"))
    assert episode.stop_reason is StopReason.ENV_ERROR


class Reporting(Countdown):
    """Reports at its end."""

    report: Any = ""

    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        if terminated or truncated:
            self.report = "Test report: failed\n- a.txt is missing"
        return observation, reward, terminated, truncated, {"report": self.report}

    def finish(self) -> float:
        self.report = "Test report: passed"
        return super().finish()


async def test_a_report_joins_the_last_next_state_and_no_prompt_holds_it() -> None:
    chat = ScriptedChat("a", "b")
    await play(Reporting(2), chat)
    assert chat.ended is not None
    assert chat.ended[1] == [
        {"role": "user", "content": "saw b"},
        {"role": "user", "content": "Test report: failed\n- a.txt is missing"},
    ]
    assert "Test report" not in str(chat.requests)


@pytest.mark.parametrize("replies", [["a", "b", "c"], ["a", ContextError("too long")]])
async def test_an_episode_that_is_ended_from_outside_has_its_report(replies: Any) -> None:
    chat = ScriptedChat(*replies)
    await play(Reporting(99), chat)
    assert chat.ended is not None
    assert (chat.ended[1] or [])[-1] == {"role": "user", "content": "Test report: passed"}


async def test_a_report_follows_the_answer_to_a_reply_without_an_action() -> None:
    spec = EpisodeSpec("s", 1, TaskRef("t", 3, "train"), max_turns=1, timeout_s=5.0)
    chat = ScriptedChat("no block here")
    await run_episode(spec, Reporting(9), TerminalAgent(), chat, in_place)
    assert chat.ended is not None
    first, last = chat.ended[1] or []
    assert "expected exactly one" in (first["content"] or "")
    assert last["content"] == "Test report: passed"


async def test_an_environment_without_a_report_ends_with_its_observation_alone() -> None:
    chat = ScriptedChat("a", "b", "c")
    await play(Countdown(99), chat)
    assert chat.ended is not None
    assert chat.ended[1] == [{"role": "user", "content": "saw c"}]


async def test_an_episode_that_infrastructure_ended_reports_nothing() -> None:
    chat = ScriptedChat("a", PolicyError("gone"))
    env = Reporting(9)
    env.report = "Test report: passed"
    await play(env, chat)
    assert chat.ended is not None
    assert chat.ended[1] == [{"role": "user", "content": "saw a"}]


async def test_a_report_that_is_no_text_is_an_error_of_the_environment() -> None:
    class Odd(Countdown):
        def step(self, action: str) -> Any:
            return "saw", 1.0, True, False, {"report": ["a.txt is missing"]}

    episode = await play(Odd(9), ScriptedChat("a"))
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert "got a report of type list, expected str" in (episode.error or "")
