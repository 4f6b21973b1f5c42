"""Configuration of the judge, and the rules of the one that needs no model."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from clawrl_gym.config.part import Part
from clawrl_gym.core.plugins import HINT_SOURCES, JUDGES


@functools.lru_cache(4096)  # the shipped rules are more patterns than `re` remembers
def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    return pattern


Regex = Annotated[str, AfterValidator(_compiles)]
"""A regular expression, matched without regard to case."""


class ReplyRule(Part):
    """A rule about a person's answer: its meaning for the reply before it."""

    patterns: tuple[Regex, ...]
    """A match begins a clause of the answer's opening, perhaps after words of no weight."""
    unless: tuple[Regex, ...] = ()
    """A match of one of them in the opening rules the rule out."""
    first: bool = False
    """Only the first clause with words of weight counts."""
    rest_chars: int | None = Field(None, ge=0)
    """Longest rest of the clause after the match, in characters; None: of any length."""
    after_question: bool = True
    """False: it does not apply when the reply asked something (a bare "no" is then an answer)."""
    lasting: bool = False
    """True: an instruction for the future. Its words are a hint, and the other rules decide; where
    none of them applies, the value is this rule's."""
    otherwise: bool = False
    """True: it applies only where no other rule does."""
    value: Literal[-1, 0, 1]
    """Verdict of the rule. Where several apply, 0 wins over -1 and -1 over +1. Where none applies,
    the judge abstains: the meaning is unknown."""


class ResultRule(Part):
    """A rule about a tool's result in words; every given pattern must match."""

    head: Regex | None = None
    """Pattern at the very beginning of the result."""
    line: Regex | None = None
    """Pattern at the beginning of a line among the first or the last characters of the result."""
    tail: Regex | None = None
    """Pattern in the last characters of the result."""
    tools: Regex | None = None
    """Pattern in the tool's name, without a server's name before it."""
    of_contents: bool | Literal["tools"] = False
    """True: it applies too to a result that is the contents of a file or a page. `tools`: only if a
    tool gives them, not a command of `judge.reading`, whose programs begin complaints with their
    name."""
    doubtless: bool = False
    """value=1: it does not apply where `judge.doubts` match anywhere in the result."""
    value: Literal[-1, 0, 1]
    """Verdict of the rule. Where several apply, 0 wins over -1 and -1 over +1; but a failure beside
    a success that is `of_contents` and of any tool (an exit code of 0) is a contradiction. The
    judge abstains then, and for results without any rule."""
    weight: float | None = Field(None, gt=0, le=1)
    """Strength of the evidence; None: judge.tool_success_weight for a success, 1 for a failure."""


class HintConfig(Part):
    """Hindsight hints in words: their source, and which are accepted."""

    source: str = "judge"
    """`judge`: the judge's own; else a class with `hints(case)`: package.module:Name."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of that class, as its `Options` say."""
    candidates: int = Field(2, ge=1)
    """type=model: requests to the judge for a hint on one turn."""
    min_chars: int = Field(10, ge=1)
    max_chars: int = Field(500, ge=1)
    """Most characters of a hint; longer ones are not accepted."""
    max_copied_words: int = Field(12, ge=1)
    """A hint with a run of so many words copied from the next state is not accepted: it gives away
    the answer instead of teaching."""
    selection: Literal["longest", "overlap"] = "longest"
    """Choice among several candidates: the longest one, or the one with which the teacher's most
    likely tokens have most in common with the policy's own."""
    form: str = "\n\n[hint]\n{hint}"
    """Form of the hint in the teacher's prompt, at `place`."""
    place: Literal["end", "next"] = "end"
    """`end`: at the end of the last user message; `next`: as the user's next message behind the
    reply itself, before the same turn is asked for again. Behind a reply that was read, any words
    make the same reply likelier: combine it with trainer.distillation.baseline=control."""
    controls: Annotated[tuple[str, ...], Field(min_length=1)] = (
        "The user said: the bakery on our street is closed until Tuesday.",
        "The user said: my sister took the early train and it was almost empty.",
        "The checks failed: the second lamp in the hall does not burn.",
        "It failed: the parcel was left with a neighbour on the third floor.",
    )
    """trainer.distillation.baseline=control: hints about something else, one of which replaces a
    turn's own."""

    @model_validator(mode="before")
    @classmethod
    def _fits_its_class(cls, values: object) -> object:
        return HINT_SOURCES.with_options(values, "source", "judge")


class JudgeConfig(Part):
    """The judge, which turns a next state into a verdict. Explicit feedback always wins over it."""

    type: str = "none"
    """`rule`: patterns in the next state; `model`: votes of an OpenAI-compatible model;
    `reward_model`: a sequence classifier behind vLLM; `chain`: the first clear verdict of several;
    `feedback` and `none`: only people (and outcomes of environments); or a class of your own:
    package.module:Name."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of a class of your own, as its `Options` say."""
    chain: tuple[str, ...] = ()
    """type=chain: judges to ask, in this order, until a verdict is clear."""
    base_url: str | None = None
    """type=model: address of another server than the policy's own engine, such as
    http://host:8000/v1; type=reward_model: of the vLLM that serves the classifier."""
    key: str | None = None
    model: str | None = None
    """The model's name at `base_url`; None asks the server for its first one."""
    votes: int = Field(3, ge=1)
    """type=model: independent votes on one turn; the majority is the verdict, a tie is neutral."""
    quorum: int = Field(2, ge=1)
    """Fewest valid votes for a verdict; with fewer the judge abstains."""
    temperature: float = Field(0.6, ge=0)
    max_tokens: int = Field(1024, ge=1)
    """Most tokens of one answer of the judge; an answer that is cut off is not a vote."""
    max_case_chars: int = Field(6000, ge=200)
    """Most characters of each quoted text that the judge reads; longer ones lose their middle."""
    instructions: str = ""
    """type=model: the judge's system message for votes."""
    hint_instructions: str = ""
    """type=model: the judge's system message for hints."""
    hints: HintConfig = HintConfig()
    positive_above: float = Field(0.66, ge=0, le=1)
    """type=reward_model: probability of the last class from which a verdict is +1."""
    negative_below: float = Field(0.33, ge=0, le=1)
    """type=reward_model: probability below which a verdict is -1."""
    concurrency: int = Field(8, ge=1)
    """Turns judged at once."""
    max_waiting: int = Field(10_000, ge=1)
    """Most turns that wait for the judge in memory; more wait in the store."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds after which a judgement abstains."""
    ignore: tuple[Regex, ...] = ()
    """Text that clients put around a person's words; removed before anything is judged."""
    languages: tuple[str, ...] = ("en", "zh", "de", "fr", "es", "pt", "ja", "ru")
    """type=rule: languages of people's words that are read, each with a file in
    judge/signals/languages/. In any other language, or an unknown one, the judge abstains."""
    resembling_weight: float = Field(0.5, ge=0, le=1)
    """type=rule: weight of a -1 for an answer that matches no rule and resembles complaints; 0: it
    abstains."""
    lasting_weight: float = Field(0.5, gt=0, le=1)
    """type=rule: weight of a -1 for an answer that also asks for something in the future: it
    corrects less than it instructs."""
    words: dict[str, tuple[Regex, ...]] = Field(default_factory=dict)
    """type=rule: named alternatives for the rules for replies, in braces there; `no_weight` are the
    words that may stand before a pattern, `taken_back` those that cancel a +1."""
    replies: dict[str, ReplyRule] = Field(default_factory=dict)
    """type=rule: the rules for people's answers, by name."""
    results: dict[str, ResultRule] = Field(default_factory=dict)
    """type=rule: the rules for the results of tools, by name."""
    result_words: dict[str, tuple[Regex, ...]] = Field(default_factory=dict)
    """type=rule: named alternatives for the rules for results, in braces there."""
    tool_success_weight: float = Field(0.1, gt=0, le=1)
    """type=rule: weight of a tool's success as evidence for the reply that called it: running
    without an error does not mean that it was the right call. A failure and a person's word
    have 1."""
    doubts: Regex | None = None
    """type=rule: words that do not occur in a result known as a success."""
    readers: tuple[str, ...] = ()
    """type=rule: tools whose result is the contents of a file; words in it are ignored."""
    fetchers: tuple[str, ...] = ()
    """type=rule: tools whose result is other people's text, such as pages; words in it are ignored,
    but an error in JSON counts."""
    telling: Regex | None = None
    """type=rule: pattern in the name of a tool that reports on other things (lists, messages,
    logs); words in its result are ignored, as for `fetchers`."""
    reading: Regex | None = None
    """type=rule: pattern at the beginning of a command whose output is the contents of a file."""

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges to ask, in order."""
        if self.type == "chain":
            return self.chain
        return () if self.type in JUDGES.words else (self.type,)

    @model_validator(mode="before")
    @classmethod
    def _fits_its_class(cls, values: object) -> object:
        return JUDGES.with_options(values, "type", "none")

    @model_validator(mode="after")
    def _askable(self) -> Self:
        if self.type == "chain" and not self.chain:
            raise ValueError(
                "got judge.type=chain and no judge.chain, expected judges such as [rule, model]"
            )
        for name in self.chain:
            if name == "chain" or name in JUDGES.words:
                raise ValueError(f"got {name!r} in judge.chain, expected judges that are asked")
            JUDGES.checked_options(name, {})
        if self.hints.source not in HINT_SOURCES.words and not self.judges:
            raise ValueError(
                f"got judge.hints.source={self.hints.source} and judge.type={self.type}, expected "
                "a judge, such as judge=rule: hints come with verdicts"
            )
        if self.quorum > self.votes:
            raise ValueError(
                f"got judge.quorum={self.quorum} of judge.votes={self.votes}, expected at most as "
                "many: no verdict would ever have enough votes"
            )
        if "reward_model" in self.judges and self.base_url is None:
            raise ValueError(
                "got a judge of type reward_model and no judge.base_url, expected the address of "
                "the vLLM that serves the classifier, such as http://127.0.0.1:8001/v1"
            )
        if self.negative_below > self.positive_above:
            raise ValueError(
                f"got judge.negative_below={self.negative_below:g} above "
                f"judge.positive_above={self.positive_above:g}, expected it below"
            )
        return self
