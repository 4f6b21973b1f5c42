"""The tiny policy's tokenizer: byte-level BPE over our own task texts, with ChatML's tokens.

Names, numbers and punctuation are split the same way wherever they stand, so that copying an
argument from the instruction into a command copies its tokens one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

VOCAB_SIZE = 1024
PAD = "<|endoftext|>"
START = "<|im_start|>"
END = "<|im_end|>"
SPECIAL = (PAD, START, END)
MARKERS = (
    "<tools>", "</tools>", "<tool_call>", "</tool_call>",
    "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
"""Single tokens that decoding keeps: tool parsers look for them in the text."""

_COMMON = (
    "a|add|all|an|and|any|archive|are|as|ask|at|back|bash|be|below|block|branch|by|call|called|"
    "can|capitals|case|change|column|comes|command|commit|copy|count|do|done|each|end|every|"
    "executable|file|files|find|first|folder|follow|for|from|git|go|has|have|how|in|into|is|it|"
    "Its|its|last|line|lines|Linux|list|make|many|message|mode|name|names|new|no|not|number|of|"
    "on|one|or|order|out|output|path|permissions|prints|put|read|Reply|reply|reverse|run|says|"
    "script|set|shell|so|sorted|starts|submit|tag|task|than|that|The|the|them|then|this|to|trail|"
    "turn|upper|use|value|variable|was|what|When|when|which|will|with|word|words|work|write|You|"
    "you|your"
)
"""Words of plain English that take the space before them along: shorter prompts."""

_PIECES = (
    rf" (?:{_COMMON})(?![A-Za-z])"
    r"|\.[A-Za-z]+"  # a file's suffix
    r"|[A-Za-z]+"
    r"|[0-9]"
    r"|```[a-z]+\n|```"
    r"|\s"
    r"|[^\sA-Za-z0-9]"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Any:
    """A `PreTrainedTokenizerFast` trained on `texts`; the same texts give the same tokenizer."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(MARKERS),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in MARKERS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=32768,
    )
    wrapped.chat_template = (Path(__file__).parent / "chat_template.jinja").read_text()
    return wrapped
