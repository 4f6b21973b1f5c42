"""The text that engine and learner both read after each publication, as ids of the run's model."""

from __future__ import annotations

import random
from pathlib import Path

from clawrl_gym.core.types import Sample

MOST_TOKENS = 96
_TEXT = """The quick brown fox asks: how many files are in /home/ada? Run `ls -l | wc -l`, please.
{"name": "copy", "arguments": {"from": "notes.txt", "to": "backup/notes-2.txt", "lines": 37}}
Thank you! No, that is wrong; write it shorter, in two sentences, and say why (3 * 14 = 42).
"""


def probe_sample(model_dir: Path, width: int, context: int | None) -> Sample:
    """The probe: a text by the model's tokenizer, or drawn ids where that is none of `tokenizers`.
    It is the same for the same model; all ids but the first are read."""
    tokenizer = model_dir / "tokenizer.json"
    if tokenizer.is_file():
        from tokenizers import Tokenizer

        ids: list[int] = Tokenizer.from_file(str(tokenizer)).encode(_TEXT).ids
    else:
        draw = random.Random(0)
        ids = [draw.randrange(width) for _ in range(MOST_TOKENS)]
    ids_T = ids[: min(MOST_TOKENS, (context or MOST_TOKENS) - 1)]
    known = [0.0] * len(ids_T)
    mask_T = [False] + [True] * (len(ids_T) - 1)
    return Sample("probe", 0, ids_T, mask_T, known, [-1] * len(ids_T), known, 0.0)
