"""The OpenAI wire form of what goes out: whole answers, and the parts that streams share."""

from __future__ import annotations

from typing import Any

from clawrl_gym.core.types import Turn


def usage_json(turn: Turn) -> dict[str, int]:
    """Tokens in and out."""
    prompt, sampled = len(turn.prompt_ids_T), len(turn.sampled_ids_T)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def finish_reason_of(turn: Turn) -> str:
    """In the client's words."""
    called = bool(turn.reply.get("tool_calls")) and turn.finish_reason == "stop"
    return "tool_calls" if called else turn.finish_reason


def completion_json(turn: Turn, model: str) -> dict[str, Any]:
    """The whole answer to a chat request."""
    choice = {
        "index": 0,
        "message": turn.reply,
        "logprobs": None,
        "finish_reason": finish_reason_of(turn),
    }
    return {
        "id": f"chatcmpl-{turn.session_id}-{turn.index}",
        "object": "chat.completion",
        "created": int(turn.created_s),
        "model": model,
        "session_id": turn.session_id,
        "choices": [choice],
        "usage": usage_json(turn),
    }


def text_json(turn: Turn, model: str) -> dict[str, Any]:
    """The whole answer to a plain completion."""
    choice = {
        "index": 0,
        "text": turn.reply.get("content") or "",
        "logprobs": None,
        "finish_reason": finish_reason_of(turn),
    }
    return {
        "id": f"cmpl-{turn.session_id}-{turn.index}",
        "object": "text_completion",
        "created": int(turn.created_s),
        "model": model,
        "session_id": turn.session_id,
        "choices": [choice],
        "usage": usage_json(turn),
    }
