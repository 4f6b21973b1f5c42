"""A model's chat template and tokenizer in this process: what the policy would have read and said.

A reply of a conversation becomes a turn with the very ids that the policy's server makes of the
prompt, and those by which the policy would have said the reply, up to the token that ends it. What
a template writes after that token is never sampled, so it is not part of the reply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Message, Tool, Turn
from clawrl_gym.dialogue.chats import BadRow, Chat, PlainText
from clawrl_gym.inference.models.resolve import model_config
from clawrl_gym.inference.models.special_tokens import SpecialTokenMask


class ChatRenderer:
    """Renders chats with one model's folder."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._folder = folder
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._specials = SpecialTokenMask(self._tokenizer)

    @property
    def has_template(self) -> bool:
        """Whether chats can be rendered; plain text needs none."""
        return bool(self._tokenizer.chat_template)

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Ids at which the policy's server ends a reply. Raises ConfigError without any."""
        ids = [self._tokenizer.eos_token_id, *_end_ids_in(self._folder)]
        found = tuple(dict.fromkeys(one for one in ids if isinstance(one, int)))
        if not found:
            raise ConfigError(
                f"the model {self._folder} has no end token (eos_token_id in "
                "generation_config.json or config.json, eos_token of the tokenizer), expected one: "
                "what is learned would never end"
            )
        return found

    def turns(self, chat: Chat, session_id: str) -> list[Turn]:
        """Turns of the replies to imitate, in order. Raises BadRow, and ConfigError for a model
        without a chat template."""
        masks: dict[str, str] = {}
        messages = self._specials.mask(chat.messages, masks)
        tools = self._specials.mask(chat.tools, masks)
        self._check_written(chat, messages, tools)
        turns = []
        for at in chat.learned:
            prompt = self._render(messages[:at], tools, chat.template, asks=True)
            whole = self._render(messages[: at + 1], tools, chat.template)
            if not whole.startswith(prompt):
                raise BadRow("a reply that the chat template does not write behind its prompt")
            prompt_T = self._specials.ids(prompt, masks)
            reply_T = self._reply_ids(prompt, whole, prompt_T, masks)
            turns.append(self._turn(session_id, at, prompt_T, reply_T, chat))
        return turns

    def text_turn(self, text: PlainText, session_id: str) -> Turn:
        """A completion as a turn; what it shares a token with at its beginning is not learned."""
        ids_T: list[int] = self._tokenizer(text.prompt + text.completion)["input_ids"]
        if ids_T[-1] not in self.end_ids:
            ids_T = [*ids_T, self.end_ids[0]]
        prompt_T: list[int] = self._tokenizer(text.prompt)["input_ids"]
        pairs = zip(prompt_T, ids_T, strict=False)
        shared = next((at for at, (a, b) in enumerate(pairs) if a != b), len(prompt_T))
        chat = Chat([{"role": "assistant", "content": text.completion}], (0,))
        return self._turn(session_id, 0, ids_T[:shared], ids_T[shared:], chat)

    def prompt_ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Prompt ids of a request, as the policy's server renders it."""
        masks: dict[str, str] = {}
        masked = self._specials.mask(list(messages), masks), self._specials.mask(list(tools), masks)
        return self._specials.ids(self._render(*masked, {}, asks=True), masks)

    def decode(self, ids_T: list[int]) -> str:
        """The text of ids, special tokens included."""
        return str(self._tokenizer.decode(ids_T))

    def _reply_ids(
        self, prompt: str, whole: str, prompt_T: list[int], masks: dict[str, str]
    ) -> list[int]:
        """Up to the token that ends the reply."""
        ends = self._tokenizer.convert_ids_to_tokens(list(self.end_ids))
        places = [(whole.find(end, len(prompt)), end) for end in ends]
        found = [(at, end) for at, end in places if at >= 0]
        if not found:
            raise BadRow(
                "a reply that the chat template ends otherwise than with the model's end token "
                f"({', '.join(ends)}): it would never end"
            )
        at, end = min(found)
        whole_T = self._specials.ids(whole[: at + len(end)], masks)
        if whole_T[: len(prompt_T)] == prompt_T:
            return whole_T[len(prompt_T) :]
        # Its first letters would share a token with the prompt, which the policy has read before.
        return self._specials.ids(whole[len(prompt) : at + len(end)], masks)

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        options: Mapping[str, object],
        *,
        asks: bool = False,
    ) -> str:
        """The text; `asks`: up to where the next reply begins."""
        from jinja2 import TemplateError

        if not self.has_template:
            raise ConfigError(
                f"the model {self._folder} has no chat template, expected one for data of chats: "
                'take a chat model, or plain {"prompt": "...", "completion": "..."}'
            )
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages),
                    tools=list(tools) or None,
                    tokenize=False,
                    add_generation_prompt=asks,
                    **options,
                )
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            why = " ".join(str(error).split())[:100]
            raise BadRow(f"refused by the chat template ({why})") from error

    def _check_written(self, chat: Chat, messages: list[Message], tools: list[Tool]) -> None:
        """Raise BadRow for tools, or calls of them, that the chat template leaves out."""
        calls = any(message.get("tool_calls") for message in messages)
        if not calls and not tools:
            return
        text = self._render(messages, tools, chat.template)
        if calls and text == self._render(_without_calls(messages), tools, chat.template):
            raise BadRow("tool calls, which the model's chat template does not write")
        if tools and text == self._render(messages, [], chat.template):
            raise BadRow("tools, which the model's chat template does not write")

    @staticmethod
    def _turn(
        session_id: str, index: int, prompt_T: list[int], reply_T: list[int], chat: Chat
    ) -> Turn:
        return Turn(
            session_id=session_id,
            index=index,
            kind="main",
            prompt_ids_T=prompt_T,
            sampled_ids_T=reply_T,
            logprobs_T=[0.0] * len(reply_T),
            versions_T=[-1] * len(reply_T),
            finish_reason="stop",
            messages=chat.messages[:index],
            reply=chat.messages[index],
            created_s=0.0,
            tools=chat.tools,
        )


def _without_calls(messages: Sequence[Message]) -> list[Message]:
    bare = [message.copy() for message in messages]
    for message in bare:
        message.pop("tool_calls", None)
    return bare


def _end_ids_in(folder: Path) -> list[object]:
    """End ids as vLLM reads them: those of the generation's configuration, else of the model's."""
    try:
        generation = json.loads((folder / "generation_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        generation = {}
    ends = generation.get("eos_token_id") if isinstance(generation, dict) else None
    if ends is None:
        ends = model_config(folder).get("eos_token_id")
    return list(ends) if isinstance(ends, list) else [ends]
