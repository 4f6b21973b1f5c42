"""Replies as policies write them, well and badly, and vLLM's engine and parsers to read them with.

A reply is made of parts with words of their own (`w17`), so that what vanishes can be told.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from clawrl_gym.core.types import Message
from clawrl_gym.dialogue.prompts import HistoryRule
from clawrl_gym.gateway.turns import PartialReply, TurnInput
from clawrl_gym.inference.generation import Delta, Piece, Sampling, message_of
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.vllm.reply_parser import EngineEvents, Event, ReplyParser

PARSERS = (
    ("hermes", None),
    ("hermes", "qwen3"),
    ("qwen3_coder", "qwen3"),
    ("llama3_json", None),
    ("mistral", None),
)
"""Tool and reasoning parsers of `conf/policy`, as its policies combine them."""
PROMPT = [5, 6, 7]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "string"}, "n": {"type": "integer"}},
            },
        },
    }
    for name in ("look", "write")
]
TEXTS = (
    "Hello", " world ", "\n\n", "Schöne Grüße 👩‍👩‍👧 ", "日本語のテキスト", "```\ncode\n```",
    "{", "}", "<", "a < b and b > c", "<tool", '{"answer": 4}', "</", "[", "🎉", "<|im_start|>",
    "   ", "\\n", '"',
)  # fmt: skip
STOPS: tuple[tuple[str, ...], ...] = ((), (), (), ("END",), ("world", "語"), ("</x>", "🎉 "))
_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>")


@dataclass(frozen=True, slots=True)
class WrittenReply:
    """One reply: its ids and how it ended."""

    ids: list[int]
    finish_reason: str
    stop: tuple[str, ...]
    words: tuple[str, ...] = ()
    """What must be found again, where no stop text ends it."""
    text: str = ""
    parallel: bool = True


@cache
def tokenizer() -> Any:
    """The shipped one, with the tags of other policies and vLLM's cache of its vocabulary."""
    from transformers import AutoTokenizer
    from vllm.tokenizers.hf import get_cached_tokenizer

    made = AutoTokenizer.from_pretrained(shipped_dir())
    made.add_tokens([*_TAGS[:4]])
    made.add_special_tokens({"additional_special_tokens": [*_TAGS[4:]]})
    return get_cached_tokenizer(made)


@cache
def parser_class(tool_parser: str, reasoning_parser: str | None) -> Any:
    from vllm.parser import ParserManager

    return ParserManager.get_parser(
        tool_parser_name=tool_parser, reasoning_parser_name=reasoning_parser, enable_auto_tools=True
    )


def renderer(names: tuple[str, str | None]) -> Any:
    """What a reader needs of vLLM's renderer."""
    return SimpleNamespace(
        parser=parser_class(*names),
        renderer=SimpleNamespace(get_tokenizer=tokenizer),
        effective_chat_template_kwargs=lambda request: {},
        model_config=None,
    )


def reader(names: tuple[str, str | None], *, parallel: bool = True, **more: Any) -> ReplyParser:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    fields: dict[str, Any] = {"tools": TOOLS, "parallel_tool_calls": parallel} | more
    request = ChatCompletionRequest(
        model="m", messages=[{"role": "user", "content": "x"}], **fields
    )
    return ReplyParser(renderer(names), request, PROMPT)


def ids_of(text: str, draw: random.Random | None = None) -> list[int]:
    """As the tokenizer spells a text, or, drawn, cut at random places before."""
    cuts = sorted(draw.sample(range(len(text)), min(3, len(text)))) if draw and text else []
    if draw and draw.random() < 0.6:
        cuts = []
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [i for part in parts for i in tokenizer()(part, add_special_tokens=False)["input_ids"]]


def written_reply(names: tuple[str, str | None], draw: random.Random) -> WrittenReply:
    """A reply as a policy with these parsers may write it."""
    count = iter(range(100))
    words: list[str] = []

    def word() -> str:
        words.append(f"w{next(count)}q")
        return words[-1]

    parts = [_thoughts(draw, word)] if names[1] or draw.random() < 0.1 else []
    if names[0] != "llama3_json" or draw.random() < 0.4:
        parts += [_text(draw, word) for _ in range(draw.randrange(3))]
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        parts.append(_call(names[0], draw, word))
        parts.append(draw.choice(("", "\n", "; ", _text(draw, word))))
    stop = draw.choice(STOPS)
    if stop and draw.random() < 0.5:
        parts.append(stop[0] + _text(draw, word))
    text = "".join(parts)
    ids = ids_of(text, draw)
    finish = draw.choice(("stop", "stop", "length"))
    if finish == "stop":
        ids.append(tokenizer().eos_token_id)
    kept = () if any(one in text for one in stop) else tuple(w for w in words if w in text)
    return WrittenReply(ids, finish, stop, kept, text, parallel=draw.random() < 0.85)


def _thoughts(draw: random.Random, word: Any) -> str:
    return draw.choice(
        (
            f"<think>\n{word()} thinks\n</think>\n\n", f"{word()} thinks</think>",
            "<think></think>", "<think>\n\n</think>\n\n", f"<think>{word()} never ends ",
            f"{word()} never ends", "",
            f"<think>{word()}</think> {word()} </think> ", f"<think>日本🎉{word()}</think>",
            f"</think>{word()}", f"<think>{word()} <tool {word()} </think>",
        )
    )  # fmt: skip


def _text(draw: random.Random, word: Any) -> str:
    return f"{draw.choice(TEXTS)}{word()}{draw.choice(TEXTS)}"


def _call(tool_parser: str, draw: random.Random, word: Any) -> str:
    name = draw.choice(("look", "write", "look", "dance"))
    if tool_parser == "qwen3_coder":
        return _xml_call(name, draw, word)
    body = _json_call(name, draw, word, key="parameters" if tool_parser == "llama3_json" else "")
    if tool_parser == "llama3_json":
        return draw.choice(("", "", "", "<|python_tag|>")) + body
    if tool_parser == "mistral":
        named = f"{name}[ARGS]{_arguments(draw, word)}"
        return "[TOOL_CALLS]" + draw.choice((f"[{body}]", f" [{body}]", body, named, f"[{body}"))
    end = draw.choice(("\n</tool_call>", "</tool_call>", "</tool_call>", "", "</tool"))
    fence = draw.choice(("", "", "", "```\n"))
    return f"{fence}<tool_call>\n{body}{end}{fence}"


def _arguments(draw: random.Random, word: Any) -> str:
    return draw.choice(
        (
            "{}", json.dumps({"x": word()}), json.dumps({"x": f"日本 🎉 {word()}", "n": 3}),
            json.dumps({"x": f"</tool_call> {word()}"}), json.dumps({"name": word()}),
            json.dumps({"x": f"[TOOL_CALLS] [ARGS] <tool_call> {word()}"}),
            json.dumps({"x": f"<think> {word()} </think> \ud83d"}),
            f'{{"x": "{word()}', f"{{{word()}}}", json.dumps(word()), "null", "[1, 2]", '""',
            f'{{"x": NaN, "y": "{word()}"}}', f'{{"x": "{word()}",}}',
        )
    )  # fmt: skip


def _json_call(name: str, draw: random.Random, word: Any, key: str = "") -> str:
    arguments = _arguments(draw, word)
    key = key or draw.choice(("arguments", "arguments", "arguments", "parameters"))
    return draw.choice(
        (
            f'{{"name": "{name}", "{key}": {arguments}}}',
            f'{{"name": "{name}", "{key}": {arguments}}}',
            f'{{"{key}": {arguments}, "name": "{name}"}}',
            f'{{"name": "{name}", "{key}": {arguments}}}}}',
            f'{{"name": "{name}", "{key}": {arguments}',
            f'{{"name": "{name}"}}', f'{{"name": "{name}"', f"{{{word()} oops}}", word(), "",
            f'{{"name": "{name}", "{key}": {arguments}, "why": "{word()}"}}',
            f'{{"name": "{name}", "name": "{word()}", "{key}": {arguments}}}',
            f'{{"name": 4, "{key}": {arguments}}}', f'{{"tool": "{word()}"}}',
            f'{{"name": "{name}", "args": {arguments}}}',
            f'{{"name": "{name}", "{key}": {arguments}}} {word()}',
        )
    )  # fmt: skip


def _xml_call(name: str, draw: random.Random, word: Any) -> str:
    parameter = f"<parameter=x>\n{word()} 日本\n</parameter>\n"
    function = draw.choice(
        (
            f"<function={name}>\n{parameter}</function>", f"<function={name}>\n</function>",
            f"<function={name}>\n{parameter}<parameter=n>\n3\n</parameter>\n</function>",
            f"<function={name}>\n<parameter=x>\n{word()}", f"<function={name}>\n{parameter}",
            f"<function={name}>{word()}{parameter}</function>", f"<function={name}", word(),
            f"{{{word()}}}", f"<function={name}></function>{word()}", "", f"<function=>{word()}",
            f"<function={name}><parameter=x>{word()}<parameter=n>4</parameter></function>",
            f"<function={name}><parameter=x>a <tool_call> {word()}</parameter></function>",
            f"<function={name}><parameter=x></function>\n{word()} <b></parameter></function>",
            f"<function={name}>{parameter}<parameter=x>{word()}</parameter></function>",
            f"<function={name}><parameter=x></ parameter ></think>{word()}</parameter>",
        )
    )  # fmt: skip
    start = draw.choice(("<tool_call>\n", "<tool_call>\n", "<tool_call>", ""))
    return start + function + draw.choice(("\n</tool_call>", "\n</tool_call>", ""))


# The engine.


def stopped(reply: WrittenReply, *, skips_special: bool) -> WrittenReply:
    """The reply as the engine ends it: behind a stop text."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    params = SamplingParams(stop=[*reply.stop], skip_special_tokens=skips_special)
    asked = SimpleNamespace(
        request_id="", prompt_token_ids=PROMPT, prompt_embeds=None, sampling_params=params
    )
    one: Any = IncrementalDetokenizer.from_new_request(tokenizer(), asked)
    for at, token in enumerate(reply.ids, 1):
        ends = at == len(reply.ids) and reply.finish_reason == "stop"
        if one.update([token], ends) is not None:
            return WrittenReply(reply.ids[:at], "STOP", reply.stop, reply.words, reply.text)
    return reply


def outputs_of(reply: WrittenReply, cuts: Sequence[int], after: int = 0) -> list[Any]:
    """The engine's outputs for the ids behind the first `after`, merged between the cuts."""
    edges = sorted({after, *(cut for cut in cuts if cut > after), len(reply.ids)})
    outputs = []
    for begin, end in pairwise(edges):
        ids, last = reply.ids[begin:end], end == len(reply.ids)
        output = {
            "token_ids": ids,
            "text": "the engine's",
            "logprobs": [{token: SimpleNamespace(logprob=-0.5)} for token in ids],
            "finish_reason": reply.finish_reason.lower() if last else None,
            "stop_reason": "a stop text" if last and reply.finish_reason == "STOP" else None,
            "weight_versions": [SimpleNamespace(version="3", start=0, end=len(reply.ids))],
        }
        outputs.append(SimpleNamespace(request_id="r", outputs=[SimpleNamespace(**output)]))
    return outputs


def processor() -> Any:
    state = SimpleNamespace(weight_version_starts=[("3", 0)])
    return SimpleNamespace(external_req_ids={"r": ["r-1"]}, request_states={"r-1": state})


def streamed(
    names: tuple[str, str | None], reply: WrittenReply, cuts: Sequence[int], broken_at: int = 0
) -> list[Piece]:
    """The pieces of a stream; `broken_at`: where one server dies and another goes on."""
    pieces: list[Piece] = []
    for after, until in ((0, broken_at or None), (broken_at, None))[: 1 + bool(broken_at)]:
        one = reader(names, parallel=reply.parallel)
        text = one.text(reply.stop)
        for token in reply.ids[:after]:
            one.read(text.next(token), last=False)
        steps = EngineEvents(processor(), one, text)
        inner = [cut for cut in cuts if until is None or cut < until]
        outputs = outputs_of(reply, [*inner, *([until] if until else [])], after)
        for output in outputs if until is None else outputs[: 1 + len(set(inner) - {0})]:
            event = steps.event(output)
            if event is not None:
                pieces.append(_piece(event))
            if text.is_stopped:
                break
    return pieces


def _piece(event: Event) -> Piece:
    delta: Delta = event.get("delta") or {}
    return Piece(event["ids"], event["logprobs"], delta, None, [3] * len(event["ids"]))


def stored(pieces: Sequence[Piece]) -> Message:
    """The message that the gateway stores of pieces."""
    partial = PartialReply(TurnInput([], Sampling(1.0, 1.0, 9)), None, HistoryRule())
    partial._pieces += pieces
    return partial.message()


def whole(names: tuple[str, str | None], reply: WrittenReply) -> Message:
    """The message of a reply that is not streamed."""
    one = reader(names, parallel=reply.parallel)
    ended_by_token = reply.finish_reason == "stop"
    found = None
    if reply.finish_reason == "STOP":
        text = one.text(reply.stop)
        for token in reply.ids:
            text.next(token)
        found = text.stop
    visible = len(reply.ids) - ended_by_token
    deltas: Any = one.replay(reply.ids, visible=visible, stop_text=found)
    return message_of(deltas)


def without_call_ids(message: Message) -> Any:
    """Ids of calls are drawn anew for every reading."""
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return {**message, "tool_calls": calls}


def differences(
    names: tuple[str, str | None], reply: WrittenReply, splits: Sequence[Sequence[int]]
) -> list[str]:
    """What is not as it must be when a reply comes in these splits; empty when all is well."""
    message = whole(names, reply)
    expected, wrong = without_call_ids(message), []
    drawn = {
        (*cuts,): cuts[len(cuts) // 2] if number % 3 == 2 and cuts else 0
        for number, cuts in enumerate(splits)
    }
    for cuts, broken_at in drawn.items():
        pieces = streamed(names, reply, cuts, broken_at)
        told = [token for piece in pieces for token in piece.ids_T]
        got = without_call_ids(message_of(_over_the_wire(piece.delta) for piece in pieces))
        if told != reply.ids:
            wrong.append(f"ids {told} of {reply.ids}")
        if without_call_ids(stored(pieces)) != expected or got != expected:
            wrong.append(f"{cuts} ({broken_at}): {got} is not {expected}")
    said = json.dumps(message, ensure_ascii=False)
    lost = (
        [word for word in reply.words if word not in said] if reply.finish_reason != "STOP" else []
    )
    return wrong + ([f"lost {lost} in {message}"] if lost else [])


def _over_the_wire(delta: Delta) -> Delta:
    sent: Delta = json.loads(json.dumps(delta))
    return sent


def random_splits(length: int, count: int, draw: random.Random) -> list[list[int]]:
    """From an output an id to one output for all."""
    return [
        sorted(draw.sample(range(1, length), draw.randrange(length))) if length > 1 else []
        for _ in range(count)
    ]
