"""How much likelier the right command becomes by a hint, and how much by any hint.

    PYTHONPATH=. python bench/hint_content.py [--model tiny runs/NAME] [--tasks 600]

Held-out terminal tasks of single commands at the policy's last turn: the mean probability of the
oracle's command without a hint, with a hint of a task of another family, and with one of its own
failure, as on-policy distillation gives them; by family where `--families` is given.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from clawrl_gym.policy.models import resolve_model
from tools.tiny_policy.conversations import Conversation, Encoded, encode
from tools.tiny_policy.hints import task_hint, with_hint_before
from tools.tiny_policy.terminal_tasks import TerminalDemonstrations

KINDS = ("none", "unrelated", "its own")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["tiny"], help="whatever policy.model takes")
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--families", action="store_true")
    options = parser.parse_args()
    drawn = list(itertools.islice(hinted_tasks(), options.tasks))
    for name in options.model:
        folder = resolve_model(name)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        rows = [encode(tokenizer, list(forms)) for _, forms in drawn]
        found = [[probability(model, row) for row in forms] for forms in rows]
        print(f"{name}: {_line(found)}")
        by_family = defaultdict(list)
        for (family, _), values in zip(drawn, found, strict=True):
            by_family[family].append(values)
        for family in sorted(by_family) if options.families else ():
            print(f"  {family}: {_line(by_family[family])}")


def hinted_tasks(seed: int = 0) -> Iterator[tuple[str, tuple[Conversation, ...]]]:
    """Family and the three forms of a task, endlessly."""
    chance = random.Random(seed)
    source = TerminalDemonstrations("heldout", careless=False)
    others = source.tasks(seed + 1)
    for task, plain in zip(source.tasks(seed), source.conversations(seed), strict=True):
        other = next(other for other in others if other.family != task.family)
        before = frozenset(
            at for at, m in enumerate(plain.messages[:-1]) if m["role"] == "assistant"
        )
        none = Conversation(plain.messages, plain.family, unlearned=before)
        hinted = [
            with_hint_before(plain, len(plain.messages) - 1, task_hint(of, chance), plain.family)
            for of in (other, task)
        ]
        yield task.family, (none, *hinted)


@torch.inference_mode()
def probability(model: PreTrainedModel, row: Encoded) -> float:
    """Of the last reply, its end token included."""
    ids = torch.tensor([row.ids_T])  # (1, T)
    logprobs = model(ids).logits.log_softmax(-1)[0, :-1]  # (T - 1, V)
    chosen = logprobs.gather(-1, ids[0, 1:, None])[:, 0]  # (T - 1,)
    return math.exp(float(chosen[torch.tensor(row.mask_T[1:])].sum()))


def _line(found: list[list[float]]) -> str:
    none, unrelated, own = (sum(values) / len(values) for values in zip(*found, strict=True))
    gains = f"a hint +{unrelated - none:.3f}, its being the right one +{own - unrelated:.3f} more"
    means = zip(KINDS, (none, unrelated, own), strict=True)
    told = ", ".join(f"{kind} {mean:.3f}" for kind, mean in means)
    return f"{told} (n = {len(found)}); {gains}"


if __name__ == "__main__":
    main()
