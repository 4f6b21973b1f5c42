"""Hints -> the prompts that a teacher reads: a turn's own prompt with a hint in it.

The hint stands at the end of the last user message, or is the user's next one. All other ids are
those that the policy was given, wherever that can be proved: a prompt rendered again may spell
earlier replies in other tokens, and the teacher shall know the hint and nothing else that the
policy did not. Nothing is tokenised here: every id comes from the policy's `render`.

Whatever goes wrong leaves the turn without prompts, and is counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast

from clawrl_gym.config.judge import HintConfig
from clawrl_gym.core.errors import ContextError, PolicyError, RequestError
from clawrl_gym.core.types import ChatBody, Content, ContentPart, Message, Turn, Verdict
from clawrl_gym.dialogue.prompts import Render, insert_addition
from clawrl_gym.judge.rule_hints import hint_of_words

_TIMEOUT_S = 60.0
_AT_ONCE = 8


class Enhancer:
    """Makes enhanced prompts.

    `counters`: `prompts` made; `too_long` (prompt, hint and reply exceed the context), `no_user`
    (no user message to put it in), `unseen` (the template cuts it off), `no_chat` (the prompt was
    raw text), `refused` by the policy, `failed` (it did not answer).
    """

    def __init__(
        self,
        render: Render,
        config: HintConfig,
        max_model_len: int,
        timeout_s: float = _TIMEOUT_S,
        *,
        with_control: bool = False,
    ) -> None:
        """`render`: ids of a chat request by the policy's own template; may raise PolicyError.
        `with_control`: behind the prompts with a turn's hints stands one with a hint about
        something else."""
        self._render = render
        self._config = config
        self._max_model_len = max_model_len
        self._timeout_s = timeout_s
        self._with_control = with_control
        self._room = asyncio.Semaphore(_AT_ONCE)
        self.counters: Counter[str] = Counter()

    async def prompts(self, turn: Turn, hints: Sequence[str]) -> tuple[list[int], ...] | None:
        """The turn's prompt with each of the hints that are read, and with the control behind them;
        an empty hint leaves it as is.

        Empty when no hint can be put into it; None when the policy did not answer, so that the same
        question may do better later.
        """
        async with self._room:
            try:
                async with asyncio.timeout(self._timeout_s):
                    prompts = await self._enhanced(turn, self._selected(hints))
                    controls = await self._controls(turn) if prompts else []
            except (ContextError, RequestError) as error:
                self.counters["too_long" if isinstance(error, ContextError) else "refused"] += 1
                return ()
            except (PolicyError, TimeoutError):
                self.counters["failed"] += 1
                return None
        fitting = [ids_T for ids_T in prompts if self._fits(ids_T, turn)]
        controls = [ids_T for ids_T in controls if self._fits(ids_T, turn)]
        if self._with_control and not controls:
            fitting = []  # else a hint would pass for the control
        self.counters["too_long"] += len(prompts) - len(fitting)
        self.counters["prompts"] += len(fitting)
        return (*fitting, *controls) if fitting else ()

    async def _controls(self, turn: Turn) -> list[list[int]]:
        """The prompt with a hint about something else, the same one for the same prompt."""
        if not self._with_control:
            return []
        draw = random.Random(str(turn.prompt_ids_T))
        return await self._enhanced(turn, [draw.choice(self._config.controls)])

    def _selected(self, hints: Sequence[str]) -> list[str]:
        distinct = list(dict.fromkeys(hints))
        if self._config.selection == "longest" and distinct:
            return [max(distinct, key=len)]
        return distinct

    async def _enhanced(self, turn: Turn, hints: list[str]) -> list[list[int]]:
        """Prompts with hints, in the order of the hints; those that do not fit in are left out."""
        used_T = turn.prompt_ids_T
        plain_T: list[int] | None = None
        prompts: list[list[int]] = []
        for hint in hints:
            if not hint.strip():
                prompts.append(list(used_T))
                continue
            messages = self._hinted(turn, self._config.form.replace("{hint}", hint))
            if messages is None:
                self.counters["no_user"] += 1
                continue
            if plain_T is None:
                plain_T = await self._render(_body(turn, turn.messages))
            hinted_T = await self._render(_body(turn, messages))
            if hinted_T == plain_T or plain_T[:1] != used_T[:1]:
                self.counters["unseen" if hinted_T == plain_T else "no_chat"] += 1
                continue
            prompts.append(insert_addition(used_T, plain_T, hinted_T))
        return prompts

    def _hinted(self, turn: Turn, text: str) -> list[Message] | None:
        if self._config.place == "end":
            return with_hint(turn.messages, text)
        words: Message = {"role": "user", "content": text.strip()}
        return [*turn.messages, turn.reply, words]

    def _fits(self, ids_T: list[int], turn: Turn) -> bool:
        return len(ids_T) + len(turn.sampled_ids_T) <= self._max_model_len


def hints_of(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """The hints in one turn's verdicts, oldest verdict first in, preferred hint first out.

    A person's correction comes before everything; the hints of a judge count unless a person was
    content with the reply.
    """
    corrections: list[str] = []
    judged: tuple[str, ...] = ()
    content = False
    for verdict in verdicts:
        if verdict.kind == "feedback":
            content = verdict.value == 1
            corrections = [*verdict.hints, *_correction(verdict)]
        else:
            judged = verdict.hints
    return tuple(dict.fromkeys([*corrections, *(() if content else judged)]))


def with_hint(messages: Sequence[Message], text: str) -> list[Message] | None:
    """The messages with a text at the end of the last user message; None without any."""
    last = max((at for at, m in enumerate(messages) if m.get("role") == "user"), default=None)
    if last is None:
        return None
    changed = cast(Message, {**messages[last], "content": _with_ending(messages[last], text)})
    return [*messages[:last], changed, *messages[last + 1 :]]


def _correction(verdict: Verdict) -> list[str]:
    text = verdict.detail.get("text")
    lesson = hint_of_words(text) if isinstance(text, str) else ""
    return [lesson] if lesson else []


def _with_ending(message: Message, text: str) -> Content:
    """The message's content with a text at its end."""
    content = message.get("content")
    if not isinstance(content, list):
        return (content or "") + text
    for at in reversed(range(len(content))):
        match content[at]:
            case {"text": str(words)} as part:
                ended = cast(ContentPart, {**part, "text": words + text})
                return [*content[:at], ended, *content[at + 1 :]]
    return [*content, {"type": "text", "text": text.lstrip()}]


def _body(turn: Turn, messages: Sequence[Message]) -> ChatBody:
    """The request that was rendered for the turn."""
    body: ChatBody = {**turn.template, "tools": turn.tools, "messages": list(messages)}
    if not turn.tools:
        del body["tools"]
    return body
