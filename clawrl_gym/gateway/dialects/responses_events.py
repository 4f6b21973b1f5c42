"""The stream of a response: its events, as the Responses API names them.

Items open in the order in which their first pieces come. Reasoning ends where what it led to
begins; text and calls stay open until the reply ends, since pieces of them may come in turns and a
client carries a call out once it is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clawrl_gym.core.types import FunctionCall, Json, JsonObject, Turn
from clawrl_gym.gateway.dialects.dialect import Answer
from clawrl_gym.gateway.dialects.responses_reply import (
    ITEMS,
    ItemWords,
    beginning,
    call_item,
    ended,
    failed,
    in_progress,
    is_cut_off,
    logprobs_of,
    message_item,
    names_of,
    output_of,
    part_of,
    reasoning_item,
    text_in,
)
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.sse import encode
from clawrl_gym.inference.generation import Delta, ToolCallDelta


@dataclass(slots=True)
class _Open:
    """An output item while its pieces come."""

    words: ItemWords
    where: Json
    """The fields by which its events name it."""
    before: str
    """Beginning of the event of a piece, which is made again and again."""
    sent: list[str] = field(default_factory=list)
    is_done: bool = False


@dataclass(slots=True)
class _Call:
    """A call that has not begun for the client: its name and id come first."""

    id: str = ""
    name: str = ""
    held: str = ""
    """Arguments that came before."""

    def add(self, part: ToolCallDelta) -> None:
        function = part.get("function") or FunctionCall()
        self.id = part.get("id") or self.id
        self.name = function.get("name") or self.name
        self.held += str(function.get("arguments") or "")


class ResponseEvents:
    """The events of one streamed response, in order."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._names = names_of(answer)
        self._beginning = encode(beginning(answer))[:-1]
        self._number = 0
        self._open: dict[str, _Open] = {}
        """Opened items by their id."""
        self._calls: dict[int, _Call] = {}
        self._has_begun = False

    @property
    def has_begun(self) -> bool:
        """A piece was made."""
        return self._has_begun

    def piece(self, delta: Delta) -> bytes:
        """The events of a delta."""
        events = self._opening()
        if thoughts := delta.get("reasoning_content"):
            events += self._more(reasoning_item(self._answer.id, thoughts), thoughts)
        if text := delta.get("content"):
            events += self._end_reasoning()
            events += self._more(message_item(self._answer.id, text), text)
        for part in delta.get("tool_calls", ()):
            events += self._end_reasoning()
            events += self._call(part)
        return events.encode()

    def last(self, turn: Turn) -> bytes:
        """What is missing of the items, the end of each, and the whole response."""
        events = self._opening()
        output = output_of(turn, self._answer, self._names)
        for item in output:
            opened = self._open.get(str(item["id"]))
            sent = "".join(opened.sent) if opened else ""
            events += self._more(item, text_in(item).removeprefix(sent))
            events += self._end(item)
        name = "response.incomplete" if is_cut_off(turn) else "response.completed"
        return (events + self._of_response(name, ended(turn, output))).encode()

    def failed(self, refusal: Refusal) -> bytes:
        return (self._opening() + self._of_response("response.failed", failed(refusal))).encode()

    def _opening(self) -> str:
        """The events that open the stream; nothing once it is open."""
        if self._has_begun:
            return ""
        self._has_begun = True
        names = ("response.created", "response.in_progress")
        return "".join(self._of_response(name, in_progress()) for name in names)

    def _call(self, part: ToolCallDelta) -> str:
        """A piece of a call. The input of a free-form tool is inside its JSON and comes at the
        end."""
        call = self._calls.setdefault(part["index"], _Call())
        call.add(part)
        if not call.name or not call.id:
            return ""
        function: FunctionCall = {"name": call.name, "arguments": ""}
        item = call_item(self._answer.id, part["index"], call.id, function, self._names)
        if item["type"] == "custom_tool_call":
            return self._opened(item)
        held, call.held = call.held, ""
        return self._more(item, held)

    def _more(self, item: JsonObject, text: str) -> str:
        """Another piece of an item, which begins it if it is the first one."""
        events = self._opened(item)
        if not text:
            return events
        opened = self._open[str(item["id"])]
        opened.sent.append(text)
        opened.is_done = False
        return f'{events}{opened.before}{encode(text)},"sequence_number":{self._next()}}}\n\n'

    def _opened(self, item: JsonObject) -> str:
        """The events that begin an item; nothing if it has begun."""
        item_id, kind = str(item["id"]), str(item["type"])
        if item_id in self._open:
            return ""
        words = ITEMS[kind]
        index = len(self._open)
        where: JsonObject = {"item_id": item_id, "output_index": index}
        if words.part:
            where["content_index"] = 0
        name = f"{words.event}.delta"
        fields = encode({"type": name, **where, **logprobs_of(kind)})[:-1]
        before = f'event: {name}\ndata: {fields},"delta":'
        self._open[item_id] = _Open(words, where, before)
        empty = {**item, ("content" if words.part else words.text): [] if words.part else ""}
        if "status" in item:
            empty["status"] = "in_progress"
        events = self._event("response.output_item.added", {"output_index": index, "item": empty})
        if words.part:
            part = {**where, "part": part_of(kind, "")}
            events += self._event("response.content_part.added", part)
        return events

    def _end_reasoning(self) -> str:
        opened = self._open.get(f"rs_{self._answer.id}")
        if opened is None or opened.is_done:
            return ""
        return self._end(reasoning_item(self._answer.id, "".join(opened.sent)))

    def _end(self, item: JsonObject) -> str:
        """The events that end an item; nothing if it has ended."""
        opened = self._open[str(item["id"])]
        if opened.is_done:
            return ""
        opened.is_done = True
        kind, words, text = str(item["type"]), opened.words, text_in(item)
        fields: JsonObject = {**opened.where, words.text: text, **logprobs_of(kind)}
        if kind == "function_call":
            fields["name"] = item["name"]
        events = self._event(f"{words.event}.done", fields)
        if words.part:
            part = {**opened.where, "part": part_of(kind, text)}
            events += self._event("response.content_part.done", part)
        done = {"output_index": opened.where["output_index"], "item": item}
        return events + self._event("response.output_item.done", done)

    def _of_response(self, name: str, fields: Json) -> str:
        """An event that holds the response."""
        response = f"{self._beginning},{encode(fields)[1:]}"
        return (
            f'event: {name}\ndata: {{"type":"{name}","response":{response},'
            f'"sequence_number":{self._next()}}}\n\n'
        )

    def _event(self, name: str, fields: Json) -> str:
        data = encode({"type": name, **fields, "sequence_number": self._next()})
        return f"event: {name}\ndata: {data}\n\n"

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number
