"""A real model for a real vLLM that says what a test wants: a chain of tokens, by its weights.

Each chunk of a script is a token of its own, and the output head maps a token to its successor. The
chat template ends the prompt with the token of the script that `chat_template_kwargs` names.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from tests.support.tiny_models import TEMPLATE, make_tokenizer

END = "<|im_end|>"
_START = "<|im_start|>assistant\n"
_HIDDEN = 256
_SURE = 40.0  # logit of the successor; of any other token about 0


def make_scripted_model(folder: Path, scripts: dict[str, list[str]], max_len: int = 1024) -> Path:
    """The folder of a model that answers with a script's chunks, each a token, and then ends.

    A chunk may stand in several places only with the same chunk after it; a script that ends with
    its first chunk goes on for ever.
    """
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder)
    chains = [[f"[{name}]", *chunks, *_end(chunks)] for name, chunks in scripts.items()]
    ids = _add_tokens(folder, [chunk for chain in chains for chunk in chain])
    after: dict[int, int] = {}
    for chain in chains:
        for one, next_one in pairwise(chain):
            if after.setdefault(ids[one], ids[next_one]) != ids[next_one]:
                raise ValueError(f"{one!r} has two successors: split the scripts otherwise")
    _write_settings(folder)
    _write_weights(folder, max(ids.values()) + 1, after, max_len)
    return folder


def _end(chunks: list[str]) -> list[str]:
    return [] if len(chunks) > 1 and chunks[0] == chunks[-1] else [END]


def _add_tokens(folder: Path, chunks: list[str]) -> dict[str, int]:
    from tokenizers import AddedToken, Tokenizer

    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    known = tokenizer.get_vocab()
    new = [chunk for chunk in dict.fromkeys(chunks) if chunk not in known]
    tokenizer.add_tokens([AddedToken(chunk, normalized=False) for chunk in new])
    tokenizer.save(path)
    ids = tokenizer.get_vocab()
    return {chunk: ids[chunk] for chunk in chunks}


def _write_settings(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    start = _START + "{% if script %}[{{ script }}]{% endif %}"
    template = TEMPLATE.replace(_START, start)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))


def _write_weights(folder: Path, vocab_size: int, after: dict[int, int], max_len: int) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=_HIDDEN,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=max_len,
        tie_word_embeddings=False,
        eos_token_id=2,
        bos_token_id=None,
        pad_token_id=0,
        dtype="float32",
    )
    config.architectures = ["Qwen3ForCausalLM"]
    config.save_pretrained(folder)
    model = Qwen3ForCausalLM(config)
    embedding = torch.randn(vocab_size, _HIDDEN)
    head = torch.zeros(vocab_size, _HIDDEN)
    for one, next_one in after.items():
        head[next_one] += embedding[one] * (_SURE / _HIDDEN)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()  # the layer adds nothing: the last token alone decides
        model.model.embed_tokens.weight.copy_(embedding)
        model.lm_head.weight.copy_(head)
    model.save_pretrained(folder)
