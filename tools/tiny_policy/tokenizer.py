"""The tiny policy's tokenizer: byte-level BPE over our own task texts, with ChatML's tokens.

Names, numbers and punctuation are split the same way wherever they stand, so that copying an
argument from the instruction into a command copies its tokens one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 2048
MIN_FREQUENCY = 8
"""A pair of pieces that is rarer is not merged: nonsense words stay letters."""
PAD = "<|endoftext|>"
START = "<|im_start|>"
END = "<|im_end|>"
SPECIAL = (PAD, START, END)
MARKERS = (
    "<tools>", "</tools>", "<tool_call>", "</tool_call>",
    "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
"""Single tokens that decoding keeps: tool parsers look for them in the text."""
_MARKED = re.compile("|".join(re.escape(token) for token in (*SPECIAL, *MARKERS)))

_COMMON = (
    "a|about|Add|add|added|again|AI|all|almost|an|and|Answer|answer|answers|any|apples|archive|"
    "are|as|ask|assistant|at|away|back|balls|bash|be|beads|before|below|block|bold|books|boring|"
    "both|boxes|branch|breaks|brief|but|buys|by|bytes|call|called|came|can|cannot|capitals|cards|"
    "case|casual|cause|change|characters|check|coins|cold|column|comes|command|Comment|comment|"
    "commit|concise|copy|correct|count|cups|day|did|do|does|done|drops|each|eggs|else|end|every|"
    "executable|file|files|find|finds|first|fit|flags|folder|follow|for|formal|found|friendly|"
    "from|full|gets|git|go|going|got|great|had|has|hats|have|heartbeat|help|helpful|Here|here|"
    "homework|How|how|I|i|if|in|inside|into|is|It|it|Its|its|just|Keep|keys|know|last|left|like|"
    "line|lines|Linux|list|lists|little|long|loses|lower|make|many|maps|matter|me|message|minus|"
    "mode|mom|more|morning|much|must|my|name|names|need|new|nice|no|not|Now|now|number|nuts|of|"
    "on|one|only|OpenClaw|or|order|other|out|output|path|pens|permissions|personal|Please|please|"
    "plums|plus|poll|prints|pupil|put|read|record|Reply|reply|result|reverse|Rewrite|rewrite|"
    "right|robot|run|running|say|says|script|see|sells|sentence|session|set|settle|settled|shell|"
    "shells|short|small|so|solution|solve|something|sorted|sounds|stamps|Start|start|starts|step|"
    "stones|story|submit|Subtract|subtracted|sum|sums|tag|task|teacher|tell|than|thanks|that|"
    "thats|The|the|them|Then|then|there|this|title|to|too|total|toys|trail|try|turn|unit|up|"
    "upper|use|user|value|variable|want|wanted|was|way|we|welcome|went|were|what|When|when|which|"
    "who|will|wins|with|without|word|words|work|Wow|write|wrong|wrote|You|you|your"
)
"""Words of plain English that take the space before them along: shorter prompts. Words that are
copied into commands and files are not among them."""

_PIECES = (
    rf" (?:{_COMMON})(?![A-Za-z]|[./][A-Za-z])"  # not the start of a file's name
    r"|\{\"name\": \"|\", \"arguments\": \{\"path\": \"|\", \"content\": \"|\"\}\}"  # a tool call
    r"|\n[a-z_]+\([a-z, ]*\)(?=\n|<|$)"  # a tool's signature
    r"|\.[A-Za-z]+"  # a file's suffix
    r"|[A-Za-z]+"
    r"|[0-9]"
    r"|```[a-z]+\n|```|\*\*"
    r"|\s"
    r"|[^\sA-Za-z0-9]"
)


def template() -> str:
    """The chat template, see `chat_template.jinja`."""
    return (Path(__file__).parent / "chat_template.jinja").read_text()


def untrained() -> PreTrainedTokenizerFast:
    """A tokenizer that renders conversations and knows no token."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE()), chat_template=template()
    )


def unmarked(text: str) -> list[str]:
    """The pieces of a rendered conversation between special tokens and markers."""
    return [piece for piece in _MARKED.split(text) if piece]


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> PreTrainedTokenizerFast:
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
        min_frequency=MIN_FREQUENCY,
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
    wrapped.chat_template = template()
    return wrapped
