"""In which form a model reads a hint: how much likelier the right reply becomes by it, by a hint of
another task, and by random words, each against no hint.

    PYTHONPATH=. python bench/hint_forms.py --model FOLDER [--kind conversation] [--count 140]
                                            [--forms NAME ...] [--json FILE]
    PYTHONPATH=. python bench/hint_forms.py --model tiny --kind terminal --forms hint

Differences of log-probs of the whole right reply, its end token included, paired by example, with
95 % intervals of resampled examples. `per token` divides by the reply's tokens. `told` is what the
hint says: the gain less that of another task's hint.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from bench.hint_examples import KINDS, Example, examples, unrelated
from clawrl_gym.core.intervals import Estimate, mean_of
from clawrl_gym.core.types import Message
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.judge.enhance import with_hint


@dataclass(frozen=True, slots=True)
class Said:
    """Feedback: as it came back, and as the rules put it."""

    words: str
    hint: str


Form = Callable[[Example, Said], list[Message]]
"""The prompt of a teacher."""
COUNTS = {"conversation": 140, "terminal": 50, "tools": 50}


def _at_end(form: str) -> Form:
    def put(example: Example, said: Said) -> list[Message]:
        text = form.format(hint=said.hint, words=said.words)
        return with_hint(example.messages, text) or []

    return put


def _in_system(example: Example, said: Said) -> list[Message]:
    first, *rest = example.messages
    if first["role"] != "system":
        return [{"role": "system", "content": f"Hint: {said.hint}"}, *example.messages]
    return [{"role": "system", "content": f"{first['content']}\n\nHint: {said.hint}"}, *rest]


def _before(example: Example, said: Said) -> list[Message]:
    *earlier, last = example.messages
    return [*earlier, {"role": "user", "content": said.words}, last]


def _next(example: Example, said: Said) -> list[Message]:
    """The first reply, and what came back, for which the same turn is made again."""
    return [
        *example.messages,
        {"role": "assistant", "content": example.wrong},
        {"role": "user", "content": said.words},
    ]


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "hint": _at_end("\n\n[hint]\n{hint}"),
        "Hint:": _at_end("\n\nHint: {hint}"),
        "instruction": _at_end("\n\n[user's hint / instruction]\n{hint}"),
        "words": _at_end("\n\n{words}"),
        "system": _in_system,
        "turn before": _before,
        "next words": _next,
    }
)
CONTROLS = ("own", "other", "random")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="whatever policy.model takes")
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--count", type=int, help="examples of each kind")
    parser.add_argument("--forms", choices=tuple(FORMS), nargs="+", default=list(FORMS))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--json", type=Path, help="where each example's figures go")
    options = parser.parse_args()
    reader = Reader(options.model, getattr(torch, options.dtype))
    rows: list[dict[str, object]] = []
    for kind in options.kind:
        drawn = examples(kind, options.count or COUNTS[kind])
        for at, example in enumerate(drawn):
            found, tokens = reader.gains(example, list(variants(drawn, at, options.forms)))
            rows.append({"kind": kind, "family": example.family, "tokens": tokens, "gain": found})
            if options.json:
                options.json.write_text(json.dumps(rows))
            if sys.stderr.isatty():
                print(f"{kind} {at + 1} of {len(drawn)}", end="\r", file=sys.stderr)
        print(f"{options.model}, {kind}, n = {len(drawn)} ({options.dtype})")
        for line in table([row for row in rows if row["kind"] == kind], options.forms):
            print(line, flush=True)
    if len(options.kind) > 1:
        print(f"{options.model}, all, n = {len(rows)}")
        print("\n".join(table(rows, options.forms)))
    print(f"{' '.join(sys.argv)} at {_commit()}")


def variants(
    drawn: Sequence[Example], at: int, forms: Sequence[str]
) -> Iterator[tuple[str, list[Message]]]:
    """Each form with each of the hints, by name."""
    chance = random.Random(at)
    example, other = drawn[at], unrelated(drawn, at, chance)
    pool = [word for each in drawn for word in each.words.split()]
    own = Said(example.words, example.hint)
    said = {
        "own": own,
        "other": Said(other.words, other.hint),
        "random": Said(_shuffled(own.words, pool, chance), _shuffled(own.hint, pool, chance)),
    }
    for form, control in itertools.product(forms, CONTROLS):
        yield f"{form}/{control}", FORMS[form](example, said[control])


def _shuffled(text: str, pool: Sequence[str], chance: random.Random) -> str:
    """As many shuffled words as the text has."""
    return " ".join(chance.choice(pool) for _ in text.split())


class Reader:
    """A model that says how likely a reply is."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        folder = resolve_model(name)
        self._model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        self._model.eval()
        self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)

    def gains(
        self, example: Example, prompts: Sequence[tuple[str, list[Message]]]
    ) -> tuple[dict[str, float], int]:
        """Gain of the right reply's log-prob on the plain prompt, by variant; its tokens."""
        named = {"none": example.messages, **dict(prompts)}
        reply = self._reply(example)
        found = dict(
            zip(
                named,
                self._logprobs([self._prompt(messages) for messages in named.values()], reply),
                strict=True,
            )
        )
        return {name: found[name] - found["none"] for name, _ in prompts}, len(reply)

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _reply(self, example: Example) -> list[int]:
        ids: list[int] = self._tokenizer(example.right, add_special_tokens=False)["input_ids"]
        return [*ids, self._tokenizer.eos_token_id]

    @torch.inference_mode()
    def _logprobs(self, prompts: Sequence[list[int]], reply: list[int]) -> list[float]:
        """Log-probs of the reply behind each prompt. A common beginning of prompts is read once."""
        found: dict[int, float] = {}
        for group in _alike(prompts):
            chosen = [prompts[at] for at in group]
            shared = _shared(chosen)
            rest = [[*ids[shared:], *reply] for ids in chosen]
            width = max(map(len, rest))
            rows = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in rest])
            cache = DynamicCache(config=self._model.config)
            if shared:
                self._model.model(torch.tensor([chosen[0][:shared]]), past_key_values=cache)
                cache.batch_repeat_interleave(len(group))
            # padding is on the right, where causal attention never looks
            hidden = self._model.model(rows, past_key_values=cache).last_hidden_state
            for at, ids, hidden_TH in zip(group, rest, hidden, strict=True):
                first = len(ids) - len(reply) - 1
                logits = self._model.lm_head(hidden_TH[first : len(ids) - 1]).float()
                logprobs = logits.log_softmax(-1).gather(-1, torch.tensor(reply)[:, None])
                found[at] = float(logprobs.sum())
        return [found[at] for at in range(len(prompts))]


def _alike(prompts: Sequence[list[int]]) -> list[list[int]]:
    """Places of prompts by what they begin with: at least half of the shorter one."""
    groups: list[list[int]] = []
    for at, ids in enumerate(prompts):
        for group in groups:
            first = prompts[group[0]]
            if _shared([first, ids]) >= min(len(first), len(ids)) / 2:
                group.append(at)
                break
        else:
            groups.append([at])
    return groups


def _shared(rows: Sequence[list[int]]) -> int:
    """Ids that all begin with; at least one of each is left."""
    least = min(map(len, rows)) - 1
    return next((at for at in range(least) if len({ids[at] for ids in rows}) > 1), least)


def table(rows: Sequence[Mapping[str, object]], forms: Sequence[str]) -> Iterator[str]:
    """A line a form."""
    yield f"  {'form':12} {'own hint':>22} {'another task':>22} {'random words':>22} {'told':>22}"
    for form in forms:
        gains = {
            control: [row["gain"][f"{form}/{control}"] for row in rows]  # type: ignore[index]
            for control in CONTROLS
        }
        told = [own - other for own, other in zip(gains["own"], gains["other"], strict=True)]
        per_token = [gain / row["tokens"] for gain, row in zip(gains["own"], rows, strict=True)]
        columns = [*(mean_of(gains[control]) for control in CONTROLS), mean_of(told)]
        ratio = columns[0].value / columns[1].value if columns[1].value > 0 else None
        yield (
            f"  {form:12} {' '.join(f'{_shown(column):>22}' for column in columns)}"
            f"  own / other {'-' if ratio is None else f'{ratio:.1f}'},"
            f" per token {mean_of(per_token).value:+.3f}"
        )


def _shown(estimate: Estimate) -> str:
    return f"{estimate.value:+.2f} ({estimate.low:+.2f} to {estimate.high:+.2f})"


def _commit() -> str:
    return subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
