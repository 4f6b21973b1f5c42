"""The text of a reply that another server began, as one server alone would have told it.

To the engine the ids that were sampled before are a part of the prompt. Its own text begins behind
them: within a character that they cut, where its decoding is the whole prompt's, or behind the
beginning of a stop text, with the characters lost that the other server held back. So the text is
made here, by vLLM's detokenizer, from the prompt that the client asked with.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace

from clawrl_gym.policy.vllm_objects import (
    CompletionOutput,
    IncrementalDetokenizer,
    VllmTokenizer,
)


class ContinuedText:
    """What a reply's ids say, those from before and those that come."""

    def __init__(self, detokenizer: IncrementalDetokenizer) -> None:
        """`detokenizer`: it has read the prompt and nothing of the reply."""
        self._detokenizer = detokenizer
        self.is_stopped = False
        """A stop text has ended the reply; the engine, which does not know it, goes on."""

    def sent(self, token: int) -> str:
        """What the client was sent when the next one of the ids from before was sampled."""
        self._detokenizer.update([token], False)
        text: str = self._detokenizer.get_next_output_text(False, True)
        return text

    def read(self, output: CompletionOutput) -> CompletionOutput:
        """The engine's output with its text; the last one where a stop text ends in it."""
        known = self._detokenizer.num_output_tokens()
        stop = self._detokenizer.update([*output.token_ids], output.finish_reason == "stop")
        read = copy.copy(output)
        if stop is not None:
            self.is_stopped = True
            kept = self._detokenizer.num_output_tokens() - known
            read.token_ids = output.token_ids[:kept]
            read.logprobs = output.logprobs and output.logprobs[:kept]
            read.finish_reason, read.stop_reason = "stop", stop
        is_last = read.finish_reason is not None
        read.text = self._detokenizer.get_next_output_text(is_last, True)
        return read


def continued_text(
    tokenizer: VllmTokenizer, prompt_ids: list[int], stop: list[str], *, skips_special: bool
) -> ContinuedText:
    """Of a reply to a prompt; `stop` are the texts that end it."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    asked = SimpleNamespace(  # of vLLM's request to its engine, what the text depends on
        request_id="",
        prompt_token_ids=prompt_ids,
        prompt_embeds=None,
        sampling_params=SamplingParams(stop=stop, skip_special_tokens=skips_special),
    )
    return ContinuedText(IncrementalDetokenizer.from_new_request(tokenizer, asked))
