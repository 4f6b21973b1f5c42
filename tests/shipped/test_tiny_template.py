"""The tiny policy's chat template: Hermes tool calls, append-only, and a digest of what is long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.inference.models.shipped import shipped_dir

CALL = {"name": "weather", "arguments": {"city": "Oslo", "days": 2}}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {}, "days": {}, "unit": {}},
                "required": ["city", "days"],
            },
        },
    }
]
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in  Oslo?\n\ttwo days "},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "rain"},
    {"role": "tool", "tool_call_id": "2", "content": "sun"},
    {"role": "assistant", "content": "Rain, then sun."},
    {"role": "user", "content": "Thanks."},
    {"role": "assistant", "content": "```bash\nsubmit\n```"},
]

RUNTIME = (
    "Runtime: agent=main | session=agent:main:explicit:s1 | sessionId=s1 | host=vm | shell=bash"
)
STAMP = "[Sat 2026-11-21 08:22 UTC] "
CONTEXT = {
    "role": "user",
    "content": [
        {
            "type": "text",
            "text": "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nConversation data\n"
            "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
        }
    ],
}
LONG_SYSTEM = {
    "role": "system",
    "content": "<!-- openclaw:attempt:STABLE -->\nYou are an assistant.\n## Tooling\n"
    + "x " * 20_000,
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(shipped_dir())


def text_of(tokenizer: Any, messages: list[Any], **options: Any) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **options))


def ids_of(tokenizer: Any, messages: list[Any], **options: Any) -> list[int]:
    text = text_of(tokenizer, messages, **options)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def spoken(tokenizer: Any, content: Any) -> str:
    """What the digest leaves of one user's message."""
    text = text_of(tokenizer, [{"role": "user", "content": content}])
    return text.removeprefix("<|im_start|>user\n").removesuffix("<|im_end|>\n")


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_longer_conversation_extends_the_ids_of_every_shorter_one(
    tokenizer: Any, tools: Any
) -> None:
    whole = ids_of(tokenizer, CONVERSATION, tools=tools)
    for length in range(1, len(CONVERSATION)):
        part = ids_of(tokenizer, CONVERSATION[:length], tools=tools)
        assert whole[: len(part)] == part


def test_a_prompt_is_extended_by_its_reply(tokenizer: Any) -> None:
    for place, message in enumerate(CONVERSATION):
        if message["role"] == "assistant":
            prompt = ids_of(tokenizer, CONVERSATION[:place], add_generation_prompt=True)
            assert ids_of(tokenizer, CONVERSATION[: place + 1])[: len(prompt)] == prompt
            assert tokenizer.decode(prompt).endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_tool_calls_are_written_the_hermes_way(tokenizer: Any) -> None:
    text = text_of(tokenizer, CONVERSATION, tools=TOOLS)
    body = text.split("assistant\n<tool_call>\n")[1].split("\n</tool_call><|im_end|>")[0]
    assert json.loads(body) == CALL
    assert "<tool_response>\nrain\n</tool_response>" in text
    assert text.count("Be brief.") == 1


def test_calls_beside_each_other_and_beside_text_stand_on_lines_of_their_own(
    tokenizer: Any,
) -> None:
    calls = [{"id": str(i), "type": "function", "function": CALL} for i in range(2)]
    message = {"role": "assistant", "content": "Both.", "tool_calls": calls}
    text = text_of(tokenizer, [user("Weather?"), message])
    assert text.count("\n<tool_call>\n") == 2
    assert "assistant\nBoth.\n<tool_call>" in text
    nothing_said = text_of(tokenizer, [user("Weather?"), {**message, "content": None}])
    assert "assistant\n<tool_call>" in nothing_said


def test_arguments_given_as_text_are_rendered_as_they_are(tokenizer: Any) -> None:
    call = {"name": "weather", "arguments": '{"city":  "Oslo"}'}
    message = {"role": "assistant", "content": "So:", "tool_calls": [{"function": call}]}
    text = text_of(tokenizer, [message])
    assert (
        'So:\n<tool_call>\n{"name": "weather", "arguments": {"city":  "Oslo"}}\n</tool_call>'
        in text
    )


def test_a_tool_is_its_signature_with_the_arguments_that_it_needs(tokenizer: Any) -> None:
    bare = tool("now")
    optional = tool("ls", type="object", properties={"path": {}, "limit": {}})
    text = text_of(tokenizer, [user("Hi")], tools=[*TOOLS, bare, optional])
    assert "\nweather(city, days)\nnow()\nls(path, limit)<|im_end|>" in text
    assert "Weather of a city" not in text


def test_of_many_tools_reading_and_writing_come_first_and_the_rest_is_left_out(
    tokenizer: Any,
) -> None:
    names = ["apply", "edit", "exec", "write", "ls", "read", "read"]
    text = text_of(tokenizer, [user("Hi")], tools=[tool(name) for name in names])
    assert "Tools:\nwrite()\nread()\napply()\nedit()<|im_end|>" in text


def test_a_long_system_message_is_cut_to_its_first_line(tokenizer: Any) -> None:
    for role in ("system", "developer"):
        text = text_of(tokenizer, [{**LONG_SYSTEM, "role": role}, user("Hi")])
        assert text.startswith("<|im_start|>system\nYou are an assistant.<|im_end|>\n")
    endless = text_of(tokenizer, [{"role": "system", "content": "y" * 9_000}, user("Hi")])
    assert len(endless) < 300


def test_openclaws_additions_to_a_users_message_are_left_out(tokenizer: Any) -> None:
    assert spoken(tokenizer, f"{STAMP}Read notes.txt\n\n{RUNTIME}") == "Read notes.txt"
    queued = (
        f"{STAMP}[Queued user message from a previous active turn; kept.]\nRead notes.txt\n\n"
        f"Continue the current task from the existing transcript, as before.\n\n{RUNTIME}"
    )
    assert spoken(tokenizer, queued) == "Read notes.txt"
    inside = f"{CONTEXT['content'][0]['text']}Hi"  # type: ignore[index]
    assert spoken(tokenizer, inside) == "Hi"
    assert (
        spoken(tokenizer, [{"type": "text", "text": "Hi"}, {"type": "text", "text": RUNTIME}])
        == "Hi"
    )


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2] is a list",
        "[a b-c-d e: f] is no stamp",
        "The Runtime: agent=main is odd",
        "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
        "",
    ],
)
def test_a_users_own_words_are_kept(tokenizer: Any, text: str) -> None:
    assert spoken(tokenizer, text) == text


def test_a_message_of_internal_context_alone_vanishes(tokenizer: Any) -> None:
    messages = [user("Hi")]
    assert text_of(tokenizer, [*messages, CONTEXT]) == text_of(tokenizer, messages)


def test_a_block_that_never_ends_hides_what_follows_it(tokenizer: Any) -> None:
    assert spoken(tokenizer, "Hi <<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> secret") == "Hi"


def test_a_heartbeat_reads_the_same_when_sent_and_in_openclaws_history(tokenizer: Any) -> None:
    sent = f"Follow the heartbeat monitor and so on.\nCurrent time: now\n\n{RUNTIME}"
    kept = f"{STAMP}[OpenClaw heartbeat poll]"
    assert spoken(tokenizer, sent) == spoken(tokenizer, kept) == "[OpenClaw heartbeat poll]"
    merged = [{"type": "text", "text": kept}, {"type": "text", "text": "Which city?"}]
    assert spoken(tokenizer, merged) == spoken(tokenizer, f"{STAMP}Which city?") == "Which city?"


def test_long_messages_and_results_are_cut_and_replies_never(tokenizer: Any) -> None:
    long = "word " * 2_000
    assert len(spoken(tokenizer, long)) < 600
    result = text_of(tokenizer, [{"role": "tool", "tool_call_id": "1", "content": long}])
    assert len(result) < 600
    reply = {"role": "assistant", "content": long}
    assert long in text_of(tokenizer, [user("Hi"), reply])


def test_openclaws_turns_extend_each_other_though_its_requests_do_not(tokenizer: Any) -> None:
    """The internal context comes last and vanishes; ids and spacing of calls are rewritten."""
    first = user(f"{STAMP}Hello\n\n{RUNTIME}")
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call20",
                "type": "function",
                "function": {"name": "read", "arguments": {"path": "notes.txt"}},
            }
        ],
    }
    turns = [
        ([LONG_SYSTEM, first, CONTEXT], "Hello! How can I help?"),
        (
            [
                LONG_SYSTEM,
                first,
                {"role": "assistant", "content": "Hello! How can I help?"},
                user(f"{STAMP}Read notes.txt"),
                CONTEXT,
            ],
            '<tool_call>\n{"name": "read", "arguments": {"path": "notes.txt"}}\n</tool_call>',
        ),
        (
            [
                LONG_SYSTEM,
                first,
                {"role": "assistant", "content": "Hello! How can I help?"},
                user(f"{STAMP}Read notes.txt"),
                called,
                {"role": "tool", "tool_call_id": "call20", "content": "hello\n"},
                CONTEXT,
            ],
            "It says: hello",
        ),
    ]
    before = ""
    for messages, reply in turns:
        prompt = text_of(
            tokenizer, messages, tools=[tool("read"), tool("exec")], add_generation_prompt=True
        )
        assert prompt.startswith(before)
        assert len(prompt) < 600
        before = f"{prompt}{reply}<|im_end|>\n"


RECORDED = Path(__file__).parents[1] / "fixtures" / "openclaw"
FOLLOWS = [
    ("conversation", (1, 2, 3)),
    ("correction", (1, 2)),
    ("heartbeat", (1, 2)),
    ("heartbeat", (1, 3, 4)),
    ("heartbeat", (3, 5)),
    ("interleaved", (1, 3)),
    ("interleaved", (2, 4)),
    ("local", (1, 2)),
    ("memory_flush", (1, 2)),
    ("parallel", (1, 2, 3)),
    ("retry", (2, 3)),
    ("retry_tools", (1, 3, 4)),
    ("steer", (1, 2)),
    ("tools", (1, 2, 3, 4, 5, 6, 7, 8)),
]
"""Recorded requests of which each goes on where the one before was answered."""


def recorded(folder: str, number: int) -> dict[str, Any]:
    exchange = json.loads((RECORDED / folder / f"{number}.json").read_text())
    return {**exchange["body"], "reply": exchange.get("reply")}


def as_vllm_gives_them(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Arguments parsed, text parts as one text: what vLLM hands to a template."""
    given = json.loads(json.dumps(messages))
    for message in given:
        if isinstance(message.get("content"), list):
            message["content"] = "\n".join(part["text"] for part in message["content"])
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return list(given)


@pytest.mark.parametrize(("folder", "numbers"), FOLLOWS)
def test_recorded_turns_of_openclaw_extend_each_other(
    tokenizer: Any, folder: str, numbers: tuple[int, ...]
) -> None:
    before = ""
    for number in numbers:
        body = recorded(folder, number)
        for messages in (body["messages"], as_vllm_gives_them(body["messages"])):
            again = text_of(tokenizer, messages, tools=body["tools"], add_generation_prompt=True)
            assert "OPENCLAW_INTERNAL" not in again
            assert "Runtime:" not in again
        assert again.startswith(before)
        assert again != before
        if body["reply"] is not None:
            answered = [*body["messages"], {"role": "assistant", **body["reply"]}]
            before = text_of(tokenizer, as_vllm_gives_them(answered), tools=body["tools"])
            assert before.startswith(again)


def test_every_recorded_request_of_openclaw_is_short_in_the_digest(tokenizer: Any) -> None:
    paths = sorted(RECORDED.rglob("*.json"))
    assert len(paths) > 40
    for path in paths:
        body = json.loads(path.read_text())["body"]
        ids = ids_of(tokenizer, body["messages"], tools=body.get("tools"))
        assert len(ids) < 1_000, path
