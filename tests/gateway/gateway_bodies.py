"""Bodies that clients may send to the gateway, mostly right, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from clawrl_gym.gateway.wire.request_fields import REFUSED

ANY_TEXT = st.text(st.characters(), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def mostly(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Right more often than not, so that the wrong one of many fields is met deep inside."""
    return st.integers(0, 11).flatmap(lambda n: JSON if n == 0 else right)


TEXT = st.text(st.characters(), max_size=20)
"""With halves of surrogate pairs, which clients send as escapes."""
FUNCTION = st.fixed_dictionaries(
    {"name": mostly(st.text(min_size=1, max_size=9))},
    optional={"arguments": mostly(st.sampled_from(["{}", '{"a": 1}', '{"a', "[]", ""]))},
)
CALL = st.fixed_dictionaries(
    {"function": mostly(FUNCTION)},
    optional={"id": mostly(TEXT), "type": mostly(st.just("function"))},
)
PART = st.fixed_dictionaries(
    {"type": mostly(st.sampled_from(["text", "text", "refusal", "thinking", "document", "file"]))},
    optional={name: mostly(TEXT) for name in ("text", "refusal", "thinking", "source", "content")},
)
MESSAGE = st.fixed_dictionaries(
    {"role": mostly(st.sampled_from(["system", "developer", "user", "assistant", "tool"]))},
    optional={
        "content": mostly(TEXT | st.lists(PART, max_size=3) | st.none()),
        "tool_calls": mostly(st.lists(CALL, max_size=3)),
        "tool_call_id": mostly(TEXT),
        "reasoning_content": mostly(TEXT),
    },
)
KEYWORDS = (
    "type", "properties", "items", "required", "enum", "const", "anyOf", "allOf", "$ref", "$defs",
    "not", "minimum", "pattern", "additionalProperties", "prefixItems",
)  # fmt: skip
SCHEMA = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"type": ["integer", "null"]}, {"$ref": "#"}, True]),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYWORDS),
        JSON | inner | st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
        max_size=3,
    ),
    max_leaves=8,
)
"""Of JSON Schema's words, seldom in its grammar."""
WRAPPED = st.fixed_dictionaries(
    {"schema": mostly(SCHEMA)}, optional={"name": mostly(TEXT), "strict": mostly(st.booleans())}
)
FORMAT = st.fixed_dictionaries(
    {"type": mostly(st.sampled_from(["text", "json_object", "json_schema"]))},
    optional={"json_schema": mostly(WRAPPED)},
)
FORM = st.fixed_dictionaries(
    {},
    optional={
        "json": mostly(SCHEMA | TEXT),
        "regex": mostly(TEXT),
        "choice": mostly(st.lists(TEXT, max_size=3)),
        "grammar": mostly(TEXT),
        "json_object": mostly(st.just(True)),
    },
)
CHOICE = st.sampled_from(["auto", "none", "required"]) | st.builds(
    lambda name: {"type": "function", "function": {"name": name}}, TEXT
)
WISHES: dict[str, st.SearchStrategy[Any]] = {
    "model": mostly(st.sampled_from(["tiny", "policy"])),
    "stream": mostly(st.booleans()),
    "stream_options": mostly(st.just({"include_usage": True})),
    "temperature": mostly(st.floats(0, 2)),
    "top_p": mostly(st.floats(0.1, 1)),
    "max_tokens": mostly(st.integers(1, 64)),
    "seed": mostly(st.integers(-5, 5)),
    "stop": mostly(st.text(min_size=1, max_size=4)),
    "n": mostly(st.just(1)),
    "logprobs": mostly(st.just(False)),
    "session_id": mostly(st.sampled_from(["s1", "s2", "a b"])),
    "turn_type": mostly(st.sampled_from(["main", "side", "odd"])),
    "session_done": mostly(st.booleans() | st.just("yes")),
    "user": JSON,
    "metadata": JSON,
    "top_k": mostly(st.integers(-1, 5)),
    "min_p": mostly(st.floats(0, 1)),
    "presence_penalty": mostly(st.floats(-2, 2)),
    "logit_bias": mostly(st.dictionaries(st.integers(0, 9).map(str), st.floats(-9, 9))),
    "stop_token_ids": mostly(st.lists(st.integers(0, 9), max_size=3)),
    "bad_words": mostly(st.lists(st.text(min_size=1, max_size=4), max_size=2)),
    "min_tokens": mostly(st.integers(0, 9)),
    "ignore_eos": mostly(st.booleans()),
    "response_format": mostly(FORMAT),
    "structured_outputs": mostly(FORM),
    "guided_json": mostly(SCHEMA | TEXT),
    "guided_choice": mostly(st.lists(TEXT, max_size=2)),
    "nobody_knows": JSON,
}
NOT_OFFERED: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.dictionaries(
    st.sampled_from(sorted(REFUSED)), JSON, max_size=1
)
TOOLS: dict[str, st.SearchStrategy[Any]] = {
    "max_completion_tokens": mostly(st.integers(1, 64)),
    "tools": mostly(st.lists(CALL, max_size=3)),
    "tool_choice": mostly(CHOICE),
    "parallel_tool_calls": mostly(st.booleans()),
    "chat_template_kwargs": mostly(st.dictionaries(TEXT, JSON, max_size=2)),
    "reasoning_effort": mostly(st.sampled_from(["none", "high"])),
    "documents": mostly(st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2)),
}
CHATS = st.builds(
    lambda chat, others: chat | others,
    st.fixed_dictionaries(
        {"messages": mostly(st.lists(MESSAGE, min_size=1, max_size=4))}, optional=WISHES | TOOLS
    ),
    NOT_OFFERED,
)
PROMPT = st.text(min_size=1, max_size=20) | st.lists(st.integers(0, 9), min_size=1, max_size=5)
TEXTS = st.builds(
    lambda text, others: text | others,
    st.fixed_dictionaries({"prompt": mostly(PROMPT)}, optional=WISHES),
    NOT_OFFERED,
)
BLOCK = st.fixed_dictionaries(
    {
        "type": mostly(
            st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "document"])
        )
    },
    optional={
        "text": mostly(TEXT),
        "thinking": mostly(TEXT),
        "id": mostly(TEXT),
        "name": mostly(TEXT),
        "input": mostly(st.dictionaries(TEXT, JSON, max_size=2)),
        "tool_use_id": mostly(TEXT),
        "content": mostly(TEXT | st.lists(PART, max_size=2)),
        "source": mostly(st.dictionaries(st.sampled_from(["type", "data", "url"]), TEXT)),
        "cache_control": JSON,
    },
)
SAID = st.fixed_dictionaries(
    {
        "role": mostly(st.sampled_from(["user", "assistant", "system"])),
        "content": mostly(TEXT | st.lists(BLOCK, max_size=3)),
    }
)
CUSTOM_TOOL = st.fixed_dictionaries(
    {"name": mostly(st.text(min_size=1, max_size=9))},
    optional={
        "type": mostly(st.sampled_from(["custom", "web_search_20250305"])),
        "input_schema": mostly(st.dictionaries(TEXT, JSON, max_size=2)),
    },
)
COUNTED = st.fixed_dictionaries(
    {
        "model": mostly(st.sampled_from(["tiny", "policy"])),
        "messages": mostly(st.lists(SAID, min_size=1, max_size=4)),
    },
    optional={
        "system": mostly(TEXT | st.lists(BLOCK, max_size=2)),
        "tools": mostly(st.lists(CUSTOM_TOOL, max_size=3)),
        "tool_choice": mostly(
            st.fixed_dictionaries({"type": st.sampled_from(["auto", "any", "tool", "none"])})
        ),
        "thinking": mostly(
            st.fixed_dictionaries({"type": st.sampled_from(["enabled", "disabled", "adaptive"])})
        ),
        "output_config": JSON,
        "context_management": JSON,
    },
)
ANTHROPIC = st.builds(
    lambda counted, wishes: counted | wishes,
    COUNTED,
    st.fixed_dictionaries(
        {"max_tokens": mostly(st.integers(1, 64))},
        optional={
            **{name: WISHES[name] for name in ("stream", "temperature", "top_p", "top_k")},
            "stop_sequences": mostly(st.lists(st.text(min_size=1, max_size=4), max_size=2)),
            "metadata": JSON,
            "nobody_knows": JSON,
        },
    ),
)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": mostly(
            st.sampled_from([
                "message", "reasoning", "function_call", "function_call_output", "item_reference",
                "custom_tool_call", "custom_tool_call_output", "local_shell_call", "odd_call",
            ])
        ),
        "role": mostly(st.sampled_from(["user", "assistant", "system", "developer"])),
        "content": mostly(TEXT | st.lists(PART, max_size=2)),
        "id": mostly(TEXT | st.just("msg_" + "0" * 32)),
        "call_id": mostly(TEXT),
        "name": mostly(TEXT),
        "arguments": mostly(TEXT),
        "input": mostly(TEXT),
        "output": mostly(TEXT | st.lists(PART, max_size=2)),
        "summary": mostly(st.lists(PART, max_size=2)),
        "status": mostly(st.sampled_from(["completed", "incomplete"])),
    },
)  # fmt: skip
FREE_TOOL = st.fixed_dictionaries(
    {"type": mostly(st.sampled_from(["function", "custom", "namespace", "web_search"]))},
    optional={
        "name": mostly(st.text(min_size=1, max_size=9)),
        "parameters": mostly(st.dictionaries(TEXT, JSON, max_size=2)),
        "tools": JSON,
        "format": JSON,
    },
)
RESPONSES = st.fixed_dictionaries(
    {"input": mostly(TEXT | st.lists(ITEM, min_size=1, max_size=4))},
    optional={
        **{name: WISHES[name] for name in ("model", "stream", "temperature", "top_p", "metadata")},
        "instructions": mostly(TEXT),
        "tools": mostly(st.lists(FREE_TOOL, max_size=3)),
        "tool_choice": mostly(st.sampled_from(["auto", "none", "required"]) | JSON),
        "max_output_tokens": mostly(st.integers(1, 64)),
        "text": JSON,
        "reasoning": JSON,
        "previous_response_id": mostly(st.just("resp_" + "0" * 32)),
        "store": mostly(st.booleans()),
        "include": JSON,
        "nobody_knows": JSON,
    },
)
OPINIONS = st.fixed_dictionaries(
    {"session_id": mostly(st.sampled_from(["s1", "other"]))},
    optional={
        "turn_id": mostly(st.integers(1, 5)),
        "thumb": mostly(st.sampled_from(["up", "down"])),
        "score": mostly(st.floats(-1, 1)),
        "text": mostly(TEXT),
    },
)
ENDS = st.fixed_dictionaries(
    {},
    optional={
        "reward": mostly(st.floats(-1, 1)),
        "stop_reason": mostly(st.just("terminated")),
        "next_state": mostly(st.lists(MESSAGE, max_size=3)),
        "error": mostly(TEXT),
        "split": mostly(st.just("train")),
    },
)
