"""The text of a reply, id by id, whatever the engine merged and whichever server began it.

vLLM merges outputs under load, and its parsers say other things of two ids at once than of one
after the other. So the text is made here, by vLLM's detokenizer, from the ids alone: each id with
the text that it adds, once no stop text can begin in it any more.

It is also the text of a reply that another server began. To the engine the ids that were sampled
before are a part of the prompt. Its own text begins behind them: within a character that they cut,
where its decoding is the whole prompt's, or behind the beginning of a stop text, with the
characters lost that the other server held back.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace

from clawrl_gym.inference.vllm.objects import (
    CompletionOutput,
    IncrementalDetokenizer,
    VllmTokenizer,
)

Step = tuple[int, str]
"""A sampled id and the text that it adds."""


class ReplyText:
    """The text of a reply's ids."""

    def __init__(self, detokenizer: IncrementalDetokenizer, stop: Sequence[str] = ()) -> None:
        """`detokenizer`: it has read the prompt and nothing of the reply. `stop`: the texts that it
        looks for."""
        self._detokenizer = detokenizer
        self._hold_length = max(map(len, stop), default=1) - 1
        """Length of text that may be the beginning of a stop text."""
        self._held: deque[Step] = deque()
        self._held_length = 0
        self._told_length = 0
        self.is_stopped = False
        """A stop text has ended the reply."""
        self.stop: str | None = None

    def next(self, token: int, *, says_nothing: bool = False, is_last: bool = False) -> list[Step]:
        """The steps that can be told with the next id. `says_nothing`: it only ends the reply."""
        self.stop = self._detokenizer.update([token], says_nothing)
        self._hold(token, self._detokenizer.get_next_output_text(True, True))
        if self.stop is not None:
            self.is_stopped = True
            whole_length = len(self._detokenizer.get_next_output_text(True, False))
            self._cut(whole_length - self._told_length)
        return self._told(0 if is_last or self.is_stopped else self._hold_length)

    def read(self, output: CompletionOutput) -> tuple[CompletionOutput, list[Step]]:
        """The engine's output, which ends where a stop text does, and the steps to be told."""
        ids, is_last = list(output.token_ids), output.finish_reason is not None
        by_token = output.finish_reason == "stop" and not isinstance(output.stop_reason, str)
        read, steps = copy.copy(output), list[Step]()
        for at, token in enumerate(ids, 1):
            ends = is_last and at == len(ids)
            steps += self.next(token, says_nothing=ends and by_token, is_last=ends)
            if self.is_stopped:
                read.token_ids = ids[:at]
                read.logprobs = output.logprobs and output.logprobs[:at]
                read.finish_reason, read.stop_reason = "stop", self.stop
                break
        return read, steps if ids or not is_last else self._told(0)

    def _hold(self, token: int, text: str) -> None:
        self._held.append((token, text))
        self._held_length += len(text)

    def _cut(self, length: int) -> None:
        """Keep so many characters of the text that is held."""
        held, self._held, self._held_length = self._held, deque(), 0
        for token, text in held:
            self._hold(token, text[: max(length - self._held_length, 0)])

    def _told(self, hold_length: int) -> list[Step]:
        steps: list[Step] = []
        while self._held and self._held_length - len(self._held[0][1]) >= hold_length:
            token, text = self._held.popleft()
            self._held_length -= len(text)
            self._told_length += len(text)
            steps.append((token, text))
        return steps


def reply_text(
    tokenizer: VllmTokenizer,
    prompt_ids: list[int],
    stop: Sequence[str] = (),
    *,
    skips_special: bool,
    min_tokens: int = 0,
) -> ReplyText:
    """The text of a reply to a prompt; `stop` are the texts that end it, after `min_tokens`."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    params = SamplingParams(
        stop=[*stop], skip_special_tokens=skips_special, min_tokens=min_tokens, max_tokens=None
    )
    asked = SimpleNamespace(  # of vLLM's request to its engine, what the text depends on
        request_id="", prompt_token_ids=prompt_ids, prompt_embeds=None, sampling_params=params
    )
    return ReplyText(IncrementalDetokenizer.from_new_request(tokenizer, asked), stop)
