"""Conversations of thinking models, whose templates leave earlier thoughts out, stay one sequence.

With the templates of the Qwen3 family as trl ships them and our tokenizer; replies are in odd
spellings, as a policy samples them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from clawrl_gym.core.types import ChatBody, Message, Tool, Turn
from clawrl_gym.dialogue.graph import Rendering
from clawrl_gym.dialogue.merging import MergeResult, merge_turns
from clawrl_gym.dialogue.prompts import (
    HistoryRule,
    PreviousTurn,
    Prompt,
    make_prompt,
    without_thoughts,
)
from tests.dialogue.test_prompts import RealTemplate
from tests.gateway.test_sessions import assistant, tool, user
from tests.support.fakes import FakePolicy
from tests.support.gateway_rig import Bench

FAMILY = ("qwen3", "qwen3_5_think", "qwen3_6", "qwen3_8", "qwen3_vl")
TOOLS: list[Tool] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
THOUGHT = "First I look at what is there, then I think of what could be meant by it, and then "
KEPT = HistoryRule()
DROPPED = HistoryRule(keeps_thoughts=False)
OBSERVATIONS = {
    "user": ["user"] * 7,
    "tool": ["tool"] * 7,
    "mixed": ["user", "tool", "tool", "user", "tool", "user", "user"],
}


def template_of(name: str) -> RealTemplate:
    """One that trl ships; it is not imported for that."""
    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    return RealTemplate((Path(spec.origin).parent / f"chat_templates/{name}.jinja").read_text())


@pytest.fixture(scope="module", params=FAMILY)
def qwen(request: pytest.FixtureRequest) -> RealTemplate:
    return template_of(request.param)


@pytest.fixture(scope="module")
def qwen3() -> RealTemplate:
    return template_of("qwen3")


def sent_back(reply: Message, form: str, is_last: bool) -> Message:
    """A reply as a client keeps it in its history."""
    thought, content = reply.get("reasoning_content", ""), str(reply["content"])
    if form == "none" or (form == "last" and not is_last):
        return without_thoughts([{**reply, "content": content.strip()}])[0]
    if form == "unopened" and thought:  # no parser took it out
        unopened: Message = {**reply, "content": f"{thought}\n</think>{content}"}
        unopened.pop("reasoning_content")
        return unopened
    if form == "inline" and thought:
        inline: Message = {**reply, "content": f"<think>\n{thought}\n</think>{content}"}
        inline.pop("reasoning_content")
        return inline
    return reply


@dataclass(slots=True)
class Conversation:
    """An agent's turns with a thinking policy."""

    qwen: RealTemplate
    rule: HistoryRule = KEPT
    form: str = "all"
    """What the client keeps of thoughts: `all`, `none`, of the `last` reply, or all `inline`."""
    thinks: bool = True
    """False: the client switches thinking off, and the template writes an empty thought."""

    async def play(self, observations: list[str], seed: int = 0) -> list[tuple[Turn, Prompt]]:
        """A turn after each observation: `user`, or `tool` after a call."""
        draw = random.Random(seed)
        history: list[Message] = [{"role": "system", "content": "Work."}, user("Begin, please.")]
        past: PreviousTurn | None = None
        turns: list[tuple[Turn, Prompt]] = []
        for index in range(len(observations) + 1):
            body: ChatBody = {"messages": self._shown(history), "tools": TOOLS}
            if not self.thinks:
                body["enable_thinking"] = False  # type: ignore[typeddict-unknown-key]
            prompt = await make_prompt(self.qwen.render, body, past, self.rule, max_tokens=64)
            calls = observations[index : index + 1] == ["tool"]
            turn = self._turn(index, body["messages"], prompt, draw, calls)
            turns.append((turn, prompt))
            past = PreviousTurn(turn, Rendering.of(prompt.rendered_ids_T))
            answer = tool(f"result {index}") if calls else user(f"observation {index}")
            history = [*history, turn.reply, answer]
        return turns

    def _shown(self, history: list[Message]) -> list[Message]:
        last = max((at for at, m in enumerate(history) if m["role"] == "assistant"), default=0)
        return [
            sent_back(message, self.form, at == last) if message["role"] == "assistant" else message
            for at, message in enumerate(history)
        ]

    def _turn(
        self, index: int, messages: list[Message], prompt: Prompt, draw: random.Random, calls: bool
    ) -> Turn:
        thought = THOUGHT + draw.choice(["I act.", "é \U0001f600", "ls -la"])
        thought = thought if self.thinks else ""
        opening = "" if self.qwen.text(prompt.ids_T).endswith("<think>\n") else "<think>\n"
        pieces = [f"{opening}{thought}", "\n</think>\n\n"] if thought else []
        words = draw.choice(["ok then", "```bash\nls\n```", "da" + "ta", "s | t"])
        said = [words[:3], words[3:]]
        call: Message = {}
        if calls:
            function = {"name": "f", "arguments": f'{{"n":{index}}}'}
            call = {"tool_calls": [{"id": f"c{index}", "type": "function", "function": function}]}  # type: ignore[typeddict-item]
            said.append(f'\n<tool_call>\n{{"name":"f","arguments":{{"n":{index}}}}}\n</tool_call>')
        ids_T = [*self.qwen.odd_tokens([*pieces, *said]), self.qwen.end]
        reply: Message = {"role": "assistant", "content": f"\n\n{words}" if thought else words}
        if thought:
            reply["reasoning_content"] = thought  # as vLLM's parser hands it out
        return Turn(
            session_id="s", index=index, kind="main", prompt_ids_T=prompt.ids_T,
            sampled_ids_T=ids_T, logprobs_T=[-0.5] * len(ids_T), versions_T=[0] * len(ids_T),
            finish_reason="stop", messages=messages, reply={**reply, **call}, created_s=0.0,
            tools=TOOLS,
        )  # fmt: skip


def cost_of(turns: list[tuple[Turn, Prompt]]) -> tuple[MergeResult, float]:
    """What is trained, and how many times the tokens of the longest sequence it has."""
    merged = merge_turns([turn for turn, _ in turns])
    tokens = [len(sequence.ids_T) for sequence in merged.sequences]
    return merged, sum(tokens) / max(len(t.prompt_ids_T) + len(t.sampled_ids_T) for t, _ in turns)


@pytest.mark.parametrize("form", ["all", "none", "last", "inline", "unopened"])
@pytest.mark.parametrize("observations", OBSERVATIONS.values(), ids=OBSERVATIONS)
@pytest.mark.parametrize("thinks", [True, False])
async def test_eight_turns_are_one_sequence_whatever_the_client_keeps(
    qwen: RealTemplate, form: str, observations: list[str], thinks: bool
) -> None:
    turns = await Conversation(qwen, form=form, thinks=thinks).play(observations)
    assert {prompt.fit for _, prompt in turns[1:]} <= {"exact", "spliced"}
    merged, cost = cost_of(turns)
    assert len(merged.sequences) == 1
    assert cost == 1.0
    (sequence,) = merged.sequences
    last, _ = turns[-1]
    assert sequence.ids_T == last.prompt_ids_T + last.sampled_ids_T
    text = qwen.text(sequence.ids_T)
    assert text.count(THOUGHT) == (8 if thinks else 0), "what was thought is read, once"


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_kept_reads_as_the_template_with_thoughts_in_it(
    qwen3: RealTemplate, seed: int
) -> None:
    """Take the thoughts out of the prompt's text and it is the fresh rendering's."""
    turns = await Conversation(qwen3, form="none").play(["user"] * 5, seed)
    for turn, prompt in turns:
        text = qwen3.text(prompt.ids_T)
        for earlier, _ in turns[: turn.index]:
            thought = earlier.reply["reasoning_content"]
            assert f"<think>\n{thought}\n</think>\n\n" in text
            text = text.replace(f"<think>\n{thought}\n</think>\n\n", "", 1)
        assert text == qwen3.text(prompt.rendered_ids_T)


@pytest.mark.parametrize("form", ["all", "none", "inline"])
async def test_where_thoughts_go_each_turn_is_a_sequence_of_its_own(
    qwen3: RealTemplate, form: str
) -> None:
    """What keep_thoughts=false costs with observations as user messages; none with tool results."""
    turns = await Conversation(qwen3, DROPPED, form).play(["user"] * 7)
    assert {prompt.fit for _, prompt in turns[1:]} <= {"template", "reasoning", "transient"}
    assert all(prompt.ids_T == prompt.rendered_ids_T for _, prompt in turns)
    merged, cost = cost_of(turns)
    assert len(merged.sequences) == 8
    assert cost > 3
    if form == "all":
        merged, cost = cost_of(await Conversation(qwen3, DROPPED, form).play(["tool"] * 7))
        assert (len(merged.sequences), cost) == (1, 1.0)


async def test_thoughts_go_once_where_they_leave_no_room_for_a_reply(qwen3: RealTemplate) -> None:
    wide = await Conversation(qwen3, form="none").play(["user"] * 7)
    longest = max(len(prompt.ids_T) for _, prompt in wide)
    rule = HistoryRule(context=longest)
    turns = await Conversation(qwen3, rule, "none").play(["user"] * 7)
    fits = [prompt.fit for _, prompt in turns]
    assert fits.count("room") == 1
    assert all(len(prompt.ids_T) + 64 <= longest for _, prompt in turns)
    merged, _ = cost_of(turns)
    assert len(merged.sequences) == 2
    narrow = HistoryRule(context=10)  # nothing fits: the tokens that were sampled stay
    assert {p.fit for _, p in await Conversation(qwen3, narrow).play(["user"] * 2)} == {
        "first",
        "spliced",
    }


async def test_a_template_that_moves_the_tools_is_left_alone() -> None:
    """Some write them before the last user message only: they would stand there twice."""
    moving = RealTemplate(
        "{% for m in messages %}"
        "{% if loop.last and tools %}<|im_start|>tools{{ tools | tojson }}<|im_end|>{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    turns = await Conversation(moving, form="none").play(["user"] * 4)
    assert {prompt.fit for _, prompt in turns} == {"first", "template"}


@pytest.mark.parametrize("changed", ["tools", "user", "reply", "system"])
async def test_another_past_is_still_another_prompt(qwen3: RealTemplate, changed: str) -> None:
    (_, _), (turn, prompt) = await Conversation(qwen3, form="none").play(["user"])
    past = PreviousTurn(turn, Rendering.of(prompt.rendered_ids_T))
    messages = [*turn.messages, sent_back(turn.reply, "none", True), user("go on")]
    body: ChatBody = {"messages": messages, "tools": TOOLS}
    if changed == "tools":
        body["tools"] = [*TOOLS, *TOOLS]
    else:
        at = {"system": 0, "user": 1, "reply": -2}[changed]
        messages[at] = {**messages[at], "content": "other words"}
    other = await make_prompt(qwen3.render, body, past)
    assert other.fit == {"tools": "template", "system": "system"}.get(changed, "edited")
    assert other.ids_T == await qwen3.render(body)


async def test_a_reply_that_was_cut_in_its_thought_goes_on_from_there(qwen3: RealTemplate) -> None:
    (first, prompt), *_ = await Conversation(qwen3).play(["user"])
    ids_T = [*qwen3.tokens("<think>\nI was about to")]
    cut = replace(
        first, sampled_ids_T=ids_T, finish_reason="length",
        reply=assistant("", reasoning_content="I was about to"),
    )  # fmt: skip
    past = PreviousTurn(cut, Rendering.of(prompt.rendered_ids_T))
    body: ChatBody = {"messages": [*cut.messages, assistant(""), user("well?")], "tools": TOOLS}
    after = await make_prompt(qwen3.render, body, past)
    assert after.fit == "spliced"
    assert qwen3.text(after.ids_T).endswith(
        "about to<|im_end|>\n<|im_start|>user\nwell?<|im_end|>\n<|im_start|>assistant\n"
    )


# Through the gateway.


class ThinkingPolicy(FakePolicy):
    """Thinks before each reply; its template leaves thoughts before the last user message out."""

    def __init__(self) -> None:
        super().__init__("<think>hm</think>cab")

    async def render(self, body: ChatBody) -> list[int]:
        messages = body["messages"]
        last = max((at for at, m in enumerate(messages) if m["role"] == "user"), default=0)
        shown = [*without_thoughts(messages[:last]), *messages[last:]]
        ids_T = await super().render({**body, "messages": shown})
        self._last = messages
        return ids_T


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    bench.policy = ThinkingPolicy()
    await bench.start()
    yield bench
    await bench.stop()


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("keeps", [True, False])
async def test_a_foreign_clients_conversation_is_one_sequence(
    bench: Bench, streams: bool, keeps: bool
) -> None:
    """It shows its user no thoughts, and sends none back."""
    history: list[Message] = []
    for index in range(4):
        history.append(user(f"question {index}"))
        if streams:
            await bench.events(history)
        else:
            await bench.say(history)
        reply = assistant("<think>hm</think>cab")
        history.append(reply if keeps else without_thoughts([reply])[0])
    turns = await bench.store.turns_of("s1")
    (sequence,) = merge_turns(turns).sequences
    assert bench.policy.prompts == [turn.prompt_ids_T for turn in turns]
    assert sum(sequence.mask_T) == sum(len(turn.sampled_ids_T) for turn in turns)
    assert bench.gateway.stats.fits == {"first": 1, "spliced": 3}


async def test_where_thoughts_go_a_foreign_client_gets_what_it_sent(bench: Bench) -> None:
    bench.history = DROPPED
    await bench.restart()
    body: list[Message] = [user("a"), assistant("cab"), user("b")]
    await bench.say(body[:1])
    await bench.say(body)
    assert bench.policy.prompts[1] == await bench.policy.render({"messages": body})
    assert bench.gateway.stats.fits == {"first": 1, "reasoning": 1}
