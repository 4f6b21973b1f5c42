"""The tokens at which vLLM ends a reply: the tokenizer's own, and those of generation_config.json.

A model whose chat template ends a reply with another one would talk on, in all roles, up to the
longest reply: it never learned to write the token at which it is stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from clawrl_gym.inference.models.chat_template import read_template, settings_of, token_text


def end_tokens(folder: Path) -> tuple[str, ...]:
    """Texts of end tokens, the tokenizer's own first; ids whose text is unknown are left out."""
    own = token_text(settings_of(folder), "eos_token")
    texts = _texts(folder)
    named = (texts.get(number) for number in _ids(folder))
    return tuple(dict.fromkeys(text for text in (own, *named) if text))


def end_token_problems(folder: Path) -> Iterator[str]:
    """Why replies of the model would never end, a line each."""
    template = read_template(folder)
    ends = end_tokens(folder)
    if template is None:
        return
    if not ends:
        if not _ids(folder):
            yield (
                f"the model {folder} names no token that ends a reply, expected eos_token in "
                "tokenizer_config.json or eos_token_id in generation_config.json"
            )
        return
    written = next((t for t in _special(folder).items() if template.ends.startswith(t[1])), None)
    if written is None or template.ends_with(ends) or written[0] in _ids(folder):
        return
    number, text = written
    known, ids = " and ".join(map(repr, ends)), [number, *_ids(folder)]
    yield (
        f"replies of the model {folder} would never end: its chat template ends them with "
        f"{text!r}, and vLLM stops at {known} alone (eos_token in tokenizer_config.json, "
        f"eos_token_id in generation_config.json): put {text!r}, which is token {number}, into "
        f'generation_config.json: "eos_token_id": {ids}'
    )


def _ids(folder: Path) -> list[int]:
    """Ids as vLLM takes them: of the model's configuration where there is none for generating."""
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            ids = _object(folder / name).get("eos_token_id")
            found = ids if isinstance(ids, list) else [ids]
            return [number for number in found if isinstance(number, int)]
    return []


def _texts(folder: Path) -> Mapping[int, str]:
    model = _object(folder / "tokenizer.json").get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    texts = {}
    if isinstance(vocabulary, dict):
        texts = {number: text for text, number in vocabulary.items()}
    return texts | _special(folder)


def _special(folder: Path) -> dict[int, str]:
    """Tokens beside the vocabulary."""
    listed = _object(folder / "tokenizer.json").get("added_tokens")
    found = {
        token["id"]: token["content"]
        for token in (listed if isinstance(listed, list) else [])
        if isinstance(token, dict) and token.get("content")
    }
    decoder = settings_of(folder).get("added_tokens_decoder")
    for number, token in (decoder if isinstance(decoder, dict) else {}).items():
        if isinstance(token, dict) and token.get("content"):
            found.setdefault(int(number), token["content"])
    return found


def _object(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
