"""The engine's outputs as events; vLLM's parsers are tried on a real vLLM (tests/e2e)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.inference.vllm.reply_parser import EngineEvents, Event, ReplyParser, whole_reply
from clawrl_gym.inference.vllm.reply_text import ReplyText, reply_text


def processor(starts: list[tuple[str, int]]) -> Any:
    state = SimpleNamespace(weight_version_starts=starts)
    return SimpleNamespace(external_req_ids={"r": ["r-1"]}, request_states={"r-1": state})


def result(ids: list[int], text: str = "", **more: Any) -> Any:
    logprobs = [{token: SimpleNamespace(logprob=-0.5)} for token in ids]
    output = {"token_ids": ids, "text": text, "logprobs": logprobs, "finish_reason": None}
    output |= {"stop_reason": None, "weight_versions": None}
    return SimpleNamespace(request_id="r", outputs=[SimpleNamespace(**output | more)])


def test_every_id_comes_with_its_log_prob_and_version_and_the_text_as_content() -> None:
    steps = EngineEvents(processor([("3", 0)]), None)
    assert steps.event(result([10], "he")) == {
        "ids": [10], "logprobs": [-0.5], "versions": ["3"], "delta": {"content": "he"}
    }  # fmt: skip


def test_a_step_through_a_swap_has_both_versions() -> None:
    starts = [("3", 0)]
    steps = EngineEvents(processor(starts), None)
    steps.event(result([10, 11]))
    starts.append(("4", 3))
    event = steps.event(result([12, 13]))
    assert event is not None
    assert event["versions"] == ["3", "4"]


def test_the_last_step_says_why_it_is_and_which_versions_made_all() -> None:
    steps = EngineEvents(processor([("3", 0)]), None)
    span = SimpleNamespace(version="3", start=0, end=1)
    event = steps.event(result([2], finish_reason="stop", weight_versions=[span]))
    assert event == {
        "ids": [2], "logprobs": [-0.5], "versions": ["3"], "finish_reason": "stop",
        "stop_reason": None, "weight_versions": [{"version": "3", "start": 0, "end": 1}],
    }  # fmt: skip


def test_a_step_that_says_nothing_is_no_event() -> None:
    assert EngineEvents(processor([]), None).event(result([])) is None


def test_log_probs_that_vllm_does_not_know_are_none() -> None:
    entries = [{1: SimpleNamespace(logprob=x)} for x in (math.nan, -math.inf, -9999.0)]
    event = EngineEvents(processor([("3", 0)]), None).event(result([1, 1, 1], logprobs=[*entries]))
    assert event is not None
    assert event["logprobs"] == [None, None, None]
    other = EngineEvents(processor([("3", 0)]), None).event(result([1], logprobs=[{7: entries[0]}]))
    assert other is not None
    assert other["logprobs"] == [None]


def test_versions_that_cannot_be_found_wait_for_the_end() -> None:
    lost = SimpleNamespace(external_req_ids={}, request_states={})
    event = EngineEvents(lost, None).event(result([1]))
    assert event is not None
    assert event["versions"] == []


class Halves:
    """A parser as vLLM's are: `<` begins a call, which it holds back until `>`; `(` a thought."""

    def __init__(self, made: list[Any], *arguments: Any, **more: Any) -> None:
        self.made = made
        self.arguments = (arguments, more)
        self.prompt_ids: list[int] = []
        made.append(self)
        self._held = ""
        self.read: list[str] = []

    def adjust_request(self, request: Any) -> Any:
        wishes = {"skip_special_tokens": request.skips, "structured_outputs": request.form}
        return SimpleNamespace(**wishes)

    def set_prompt_token_ids(self, ids: list[int]) -> None:
        self.prompt_ids = ids

    def parse_delta(
        self, text: str, ids: list[int], request: Any, *, prompt_token_ids: Any, finished: bool
    ) -> Any:
        assert prompt_token_ids == [1, 2]
        self.prompt_ids = prompt_token_ids
        self.read.append(text)
        self._held += text
        if self._held.startswith("<") and not self._held.endswith(">"):
            return None
        said, self._held = self._held, ""
        if said.startswith("<"):
            names = said.strip("<>").split("+")
            calls = [_call(at, name) for at, name in enumerate(names)]
            return SimpleNamespace(content=None, reasoning=None, tool_calls=calls)
        if said.startswith("("):
            return SimpleNamespace(content=None, reasoning=said, tool_calls=None)
        return SimpleNamespace(content=said, reasoning=None, tool_calls=None)

    def parse(
        self, text: str, request: Any, *, enable_auto_tools: bool, model_output_token_ids: Any
    ) -> tuple[None, str | None, list[Any]]:
        assert enable_auto_tools
        assert self.prompt_ids == [1, 2]
        assert len(model_output_token_ids) >= 1
        if "!" in text:
            function = SimpleNamespace(name="f", arguments="{}", id="own")
            return None, None, [function]
        return None, request.rest or text, []


def _call(index: int, name: str) -> Any:
    fields = {"index": index, "function": {"name": name}, "id": None}
    return SimpleNamespace(
        index=index,
        model_dump=lambda exclude_none: {k: v for k, v in fields.items() if v is not None},
    )


class Spelled(ReplyParser):
    """Each id is a letter."""

    def text(self, stop: Sequence[str] = (), min_tokens: int = 0) -> ReplyText:
        return ReplyText(Letters("".join(stop)), stop)


def reader(**request: Any) -> tuple[Spelled, Any, list[Halves]]:
    wishes = {"tools": ["t"], "tool_choice": "auto", "skips": True, "rest": None, "form": None}
    asked = SimpleNamespace(**wishes | {"parallel_tool_calls": None} | request)
    made: list[Halves] = []
    renderer: Any = SimpleNamespace(
        renderer=SimpleNamespace(get_tokenizer=lambda: "tokenizer"),
        parser=lambda *arguments, **more: Halves(made, *arguments, **more),
        effective_chat_template_kwargs=lambda request: {"think": request is asked},
        model_config="model",
    )
    return Spelled(renderer, asked, [1, 2]), asked, made


def replayed(text: str, one: Spelled | None = None, **how: Any) -> list[Event]:
    ids = [ord(letter) for letter in text]
    return list((one or reader()[0]).replay(ids, **{"visible": len(ids), **how}))


def test_a_call_that_is_demanded_is_read_like_one_that_is_allowed() -> None:
    tagged = SimpleNamespace(json=None, structural_tag="...")
    assert reader(tool_choice="required", form=tagged)[1].tool_choice == "auto"
    plain_json = SimpleNamespace(json={"type": "array"}, structural_tag=None)
    assert reader(tool_choice="required", form=plain_json)[1].tool_choice == "required"
    with pytest.raises(ValueError, match="cannot, expected tool_choice 'auto'"):
        reader(tool_choice="required")
    _, asked, (parser,) = reader(tool_choice=None)
    assert asked.tool_choice == "auto"
    assert parser.arguments == (
        ("tokenizer", ["t"]), {"chat_template_kwargs": {"think": True}, "model_config": "model"},
    )  # fmt: skip
    assert reader(tool_choice="none")[1].tool_choice == "none"
    assert reader(tools=None, tool_choice=None)[1].tool_choice is None
    assert [reader(skips=skips)[0].skips_special for skips in (True, False)] == [True, False]


def test_text_goes_out_as_it_comes_and_calls_with_the_last_step() -> None:
    one, _, _ = reader()
    assert one.read([(1, "he")], last=False) == {"content": "he"}
    assert one.read([(2, "(hm")], last=False) == {"reasoning_content": "(hm"}
    assert one.read([(3, "<look+see>")], last=False) == {}
    last = one.read([(4, "")], last=True)
    names = [(c["index"], c["function"]["name"], c["type"]) for c in last["tool_calls"]]
    assert names == [(0, "look", "function"), (1, "see", "function")]
    assert "in its stream" in last["reading_notes"][0], "the whole reading found none"


def test_of_several_calls_one_is_left_where_the_client_wants_no_more_and_that_is_noted() -> None:
    alone, _, _ = reader(parallel_tool_calls=False)
    last = alone.read([(3, "<look+see>")], last=True)
    assert [call["function"]["name"] for call in last["tool_calls"]] == ["look"]
    assert "see {} was left out" in last["reading_notes"][-1]


def test_several_ids_in_one_output_are_read_one_after_the_other() -> None:
    one, _, made = reader()
    steps = [(1, "he"), (2, "(hm"), (3, "(hm"), (4, "o")]
    assert one.read(steps, last=False) == {"content": "heo", "reasoning_content": "(hm(hm"}
    assert made[0].read == ["he", "(hm", "(hm", "o"]


def test_what_a_stream_held_back_comes_with_its_last_piece() -> None:
    assert replayed("ab") == [{"content": "a"}, {"content": "b"}]
    assert replayed("a<b") == [{"content": "a"}, {}, {"content": "<b"}]
    assert replayed("a<b", reader(rest="other")[0])[-1] == {}, "what was told stands otherwise"
    assert replayed("a<b", reader(rest="a")[0])[-1] == {}
    last = replayed("a<!")[-1]
    (call,) = last["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": "{}"}


def test_ids_after_the_visible_ones_and_texts_after_a_stop_add_nothing() -> None:
    assert replayed("abc", visible=2) == [{"content": "a"}, {"content": "b"}, {}]
    assert replayed("abcd", stop_text="c") == [{"content": "a"}, {"content": "b"}, {}, {}]
    assert replayed("abcd", stop_text="bc") == [{}, {"content": "a"}, {}, {}]
    assert replayed("ab", stop_text="x") == [{"content": "a"}, {"content": "b"}]


def test_a_whole_reply_says_what_was_sampled_and_why_it_ended() -> None:
    span = SimpleNamespace(version="3", start=0, end=2)
    whole = result([5, 6], "ab", finish_reason="length", stop_reason=7, weight_versions=[span])
    assert whole_reply(whole) == {
        "ids": [5, 6], "logprobs": [-0.5, -0.5], "text": "ab", "finish_reason": "length",
        "stop_reason": 7, "weight_versions": [{"version": "3", "start": 0, "end": 2}],
    }  # fmt: skip
    assert whole_reply(result([5], logprobs=None))["logprobs"] == [None]
    assert whole_reply(result([5]))["weight_versions"] == []


def test_the_engines_steps_are_read_by_the_parser() -> None:
    one, _, _ = reader()
    steps = EngineEvents(processor([("3", 0)]), one, one.text())
    first = steps.event(result([ord("<")], "the engine's"))
    assert first is not None
    assert first["delta"] == {}
    last = steps.event(result([ord("f"), ord(">"), 2], "the engine's", finish_reason="stop"))
    assert last is not None
    assert last["delta"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    only_text = EngineEvents(processor([("3", 0)]), None).event(result([], "x"))
    assert only_text is not None
    assert only_text["delta"] == {"content": "x"}


class Letters:
    """vLLM's detokenizer, where each id is a letter: it looks for one stop text, and holds back
    what may become it."""

    def __init__(self, stop: str = "") -> None:
        self._stop = stop
        self._text = ""
        self._told = 0

    def num_output_tokens(self) -> int:
        return len(self._text)

    def update(self, ids: list[int], stop_terminated: bool) -> str | None:
        new = ids[:-1] if stop_terminated else ids
        self._text += "".join(chr(token) for token in new)
        end = self._text.find(self._stop) + len(self._stop) if self._stop else 0
        if end < len(self._stop) or not self._stop:
            return None
        self._text = self._text[:end]
        return self._stop

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        assert finished
        text = self._text.removesuffix(self._stop)
        if not delta:
            return text
        told, self._told = self._told, max(self._told, len(text))
        return text[told : self._told]


def letters(text: str, **more: Any) -> Any:
    return result([ord(letter) for letter in text], "the engine's", **more)


def test_a_reply_that_another_server_began_has_its_stop_text_looked_for_here() -> None:
    continued = ReplyText(Letters("END"), ["END"])
    told = ["".join(text for _, text in continued.next(ord(letter))) for letter in "oh E"]
    assert told == ["", "", "o", "h"]
    steps = EngineEvents(processor([("3", 0), ("4", 1), ("5", 2)]), None, continued)
    first = steps.event(letters("N"))
    assert first is not None
    assert (first["delta"], "finish_reason" in first) == ({"content": " "}, False)
    last = steps.event(letters("Dxy"))
    assert last == {
        "ids": [ord("D")], "logprobs": [-0.5], "versions": ["4"],
        "finish_reason": "stop", "stop_reason": "END",
        "weight_versions": [
            {"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2},
        ],
    }  # fmt: skip
    assert continued.is_stopped


def test_a_stop_text_in_all_that_came_at_once_has_the_versions_of_the_end() -> None:
    lost = SimpleNamespace(external_req_ids={}, request_states={})
    spans = [SimpleNamespace(version=v, start=at, end=at + 2) for v, at in (("3", 0), ("4", 2))]
    steps = EngineEvents(lost, None, ReplyText(Letters("b"), ["b"]))
    event = steps.event(letters("ab!.", finish_reason="length", weight_versions=spans))
    assert event is not None
    assert (event["ids"], event["delta"]) == ([97, 98], {"content": "a"})
    assert event["weight_versions"] == [{"version": "3", "start": 0, "end": 2}]


def test_without_a_stop_text_the_end_is_the_engines() -> None:
    continued = ReplyText(Letters("END"), ["END"])
    steps = EngineEvents(processor([("3", 0)]), None, continued)
    assert continued.next(ord("E")) == []
    event = steps.event(letters("N\0", finish_reason="stop"))
    assert event is not None
    assert (event["delta"], event["stop_reason"]) == ({"content": "EN"}, None)
    assert not continued.is_stopped


TEXTS = [
    "Schöne Grüße an Anna!",
    "👩‍👩‍👧 says 你好世界 🎉 and <|im_start|> too",
    "the answer is 42</answer> and more",
    "日本</ans, </answer>",
]


@cache
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(shipped_dir())


@pytest.mark.slow  # it imports vLLM
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("stop", [[], ["</answer>"], ["好世", "üße", "🎉 and"]])
@pytest.mark.parametrize("text", TEXTS)
def test_wherever_a_stream_breaks_off_both_servers_tell_what_one_had_told(
    text: str, stop: list[str], step: int
) -> None:
    """With vLLM's own detokenizer, and the first server's text as vLLM tells it."""
    pytest.importorskip("vllm")
    prompt = tokenizer().encode("<|im_start|>system\nThe code is 4711.<|im_end|>\n")
    ids = tokenizer().encode(text)

    def told(
        resume_from: list[int], new: list[int], last: bool = True
    ) -> tuple[str, str, list[int]]:
        """What was sent before, what is sent now, and the ids of all."""
        continued = reply_text(tokenizer(), prompt, stop, skips_special=True)
        before = "".join(text for token in resume_from for _, text in continued.next(token))
        steps, now, kept = EngineEvents(processor([("3", 0)]), None, continued), "", [*resume_from]
        for at in range(0, len(new), step):
            ended = "length" if last and at + step >= len(new) else None
            event = steps.event(result(new[at : at + step], "leak", finish_reason=ended))
            assert event is not None
            now += event.get("delta", {}).get("content", "")
            kept += event["ids"]
            if continued.is_stopped:
                break
        return before, now, kept

    _, whole, all_ids = told([], ids)
    ends = [text.index(one) for one in stop if one in text]
    assert whole == tokenizer().decode(ids, skip_special_tokens=True)[: min(ends, default=None)]
    for cut in range(1, len(all_ids)):
        _, first, _ = told([], ids[:cut], last=False)
        before, second, kept = told(ids[:cut], ids[cut:])
        assert before == first
        assert (first + second, kept) == (whole, all_ids)
