"""Fields of requests for replies that are not honoured: each is refused by name, or has no effect
by its nature; what is in neither list nor in the request's class is unknown.

`tests/gateway/test_request_fields.py` holds these lists against the request classes of vLLM and
OpenAI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clawrl_gym.gateway.wire.refusals import Refusal

_FORM = "a form is sent as response_format or structured_outputs"
_LOGPROBS = "log-probs are recorded with the turn and not sent"
_IDS = "token ids are recorded with the turn and not sent"
_TEMPLATE = "the prompt is the chat template's, ready for a reply"
_ONE = "one reply a request: send several requests, in sessions of their own"
_TEXT = "replies are text"
_ENGINE = "it belongs to the engine, which the gateway alone speaks to"
_SHOWN_CHARS = 100
_OTHER_NAMES = {
    "max_length": "max_tokens", "max_new_tokens": "max_tokens", "max_output_tokens": "max_tokens",
    "n_predict": "max_tokens", "num_predict": "max_tokens", "random_seed": "seed",
    "repeat_penalty": "repetition_penalty", "stop_sequences": "stop", "stop_strings": "stop",
    "max_completion_length": "max_tokens", "maxTokens": "max_tokens", "topK": "top_k",
    "topP": "top_p",
}  # fmt: skip
_OTHER_FORMS = (
    "guided_decoding_backend", "guided_whitespace_pattern", "grammar", "json_schema", "regex",
    "ebnf", "structural_tag", "format",
)  # fmt: skip
_OTHER_SAMPLERS = {
    "do_sample": True, "dry_multiplier": 0, "dynatemp_range": 0, "epsilon_cutoff": 0,
    "eta_cutoff": 0, "logit_processors": [], "logits_processors": [], "mirostat": 0,
    "no_repeat_ngram_size": 0, "num_beams": 1, "penalty_alpha": 0, "samplers": [],
    "smoothing_factor": 0, "tfs_z": 1, "top_a": 0, "top_n_sigma": -1, "typical_p": 1,
    "xtc_probability": 0,
}  # fmt: skip
"""Names, and the value with which each does nothing."""
_NESTED = ("extra_body", "options", "parameters", "sampling_params", "generation_config")
TEMPLATE_ARGUMENTS = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents",
    "max_length", "messages", "padding", "return_assistant_tokens_mask", "return_dict",
    "return_tensors", "tokenize", "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
"""Arguments of a chat template that are the gateway's own."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that would change the reply and is not offered."""

    why: str
    neutral: tuple[object, ...] = ()
    """Values that ask for nothing; None and nothing at all always do."""


REFUSED: Mapping[str, Refused] = {
    "add_generation_prompt": Refused(_TEMPLATE, (True,)),
    "audio": Refused(_TEXT),
    "best_of": Refused(_ONE, (1,)),
    "chat_template": Refused("the chat template is the model's own"),
    "continue_final_message": Refused(_TEMPLATE, (False,)),
    "echo": Refused("the prompt is not repeated", (False,)),
    "ec_transfer_params": Refused(_ENGINE, ({},)),
    "function_call": Refused("functions are offered as tools", ("none", "auto")),
    "functions": Refused("functions are offered as tools", ([],)),
    "include_reasoning": Refused("reasoning is part of the reply", (True,)),
    "include_stop_str_in_output": Refused("a stop text is not part of the message", (False,)),
    "kv_transfer_params": Refused(_ENGINE, ({},)),
    "length_penalty": Refused("there is no beam search", (1,)),
    "logprob_token_ids": Refused(_LOGPROBS, ([],)),
    "logprobs": Refused(_LOGPROBS, (False,)),
    "media_io_kwargs": Refused(_ENGINE, ({},)),
    "mm_payload": Refused(_ENGINE, ("tensors",)),
    "mm_processor_kwargs": Refused(_ENGINE, ({},)),
    "modalities": Refused(_TEXT, (["text"], [])),
    "moderation": Refused("nothing is moderated"),
    "n": Refused(_ONE, (1,)),
    "prompt_embeds": Refused("a prompt is text or token ids"),
    "prompt_logprobs": Refused(_LOGPROBS),
    "repetition_detection": Refused("a reply ends by itself, its stop texts or its length"),
    "return_mm_kwargs": Refused(_IDS, (False,)),
    "return_prompt_text": Refused("the prompt is not repeated", (False,)),
    "return_token_ids": Refused(_IDS, (False,)),
    "return_token_offsets": Refused(_IDS, (False,)),
    "return_tokens_as_token_ids": Refused(_IDS, (False,)),
    "routed_experts_prompt_start": Refused(_ENGINE, (0,)),
    "spaces_between_special_tokens": Refused("the text is the engine's own", (True,)),
    "suffix": Refused("text is only written after the prompt", ("",)),
    "thinking_token_budget": Refused("a thought ends by itself or with the reply"),
    "top_logprobs": Refused(_LOGPROBS, (0,)),
    "truncate_prompt_tokens": Refused("a prompt that does not fit is refused, never cut"),
    "truncation_side": Refused("a prompt that does not fit is refused, never cut"),
    "use_beam_search": Refused("there is no beam search", (False,)),
    "verbosity": Refused("the model knows no such setting: say it in a message", ("medium",)),
    "vllm_xargs": Refused(_ENGINE, ({},)),
    "watermarking": Refused("no reply is marked", (False,)),
    "web_search_options": Refused("the gateway searches nothing"),
    # what other servers, and earlier releases of vLLM, sample by
    **{name: Refused(f"send it as {ours}") for name, ours in _OTHER_NAMES.items()},
    **dict.fromkeys(_OTHER_FORMS, Refused(_FORM, ("",))),
    **{
        name: Refused("no such sampler is offered", (neutral,))
        for name, neutral in _OTHER_SAMPLERS.items()
    },
    **dict.fromkeys(_NESTED, Refused("send what it holds as fields of the request itself", ({},))),
}

WITHOUT_EFFECT = frozenset({
    "cache_salt", "metadata", "prediction", "priority", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "request_id", "safety_identifier", "service_tier", "store",
    "stream_interval", "user",
})  # fmt: skip
"""They say who asks, how urgent it is, what it costs and what is kept elsewhere: what is sampled
does not depend on them."""


def refuse_fields(body: object, fields: Mapping[str, Refused] = REFUSED) -> None:
    """Raise Refusal (400) for the first field that wants what is not offered."""
    if not isinstance(body, dict):
        return
    for name in body.keys() & fields.keys():
        refused, value = fields[name], body[name]
        if value is not None and not any(_equals(value, one) for one in refused.neutral):
            sent = repr(value)
            sent = sent if len(sent) <= _SHOWN_CHARS else f"{sent[:_SHOWN_CHARS]}..."
            raise Refusal(400, f"got {name}={sent}, expected none: {refused.why}", param=name)


def _equals(value: object, neutral: object) -> bool:
    """False is not 0, and 1.0 is 1."""
    return isinstance(value, bool) is isinstance(neutral, bool) and value == neutral
