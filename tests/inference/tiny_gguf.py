"""GGUF files of a small Llama of random weights, as the `gguf` package writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.tiny_models import TEMPLATE, make_tokenizer

HIDDEN, INNER, HEADS, LAYERS = 64, 128, 4, 2


def write_gguf(
    file: Path,
    kind: str = "Q4_1",
    *,
    architecture: str = "llama",
    template: str | None = TEMPLATE,
    words: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """`kind`: how its large weights are kept. `words`: what else the header says, by
    `tokenizer.ggml` keys."""
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.parent / f"{file.stem}-tokenizer"
    scratch.mkdir()
    make_tokenizer(scratch)
    model = json.loads((scratch / "tokenizer.json").read_text("utf-8"))["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_name("random")
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    if template is not None:
        writer.add_chat_template(template)
    for key, value in (words or {}).items():
        writer.kv_data[0].pop(f"tokenizer.ggml.{key}", None)
        add = writer.add_uint32 if isinstance(value, int) else writer.add_string
        add(f"tokenizer.ggml.{key}", value)
    random = np.random.default_rng(seed)
    for name, shape in _shapes(len(tokens)).items():
        is_norm = len(shape) == 1
        values = (np.ones(shape) if is_norm else 0.1 * random.normal(size=shape)).astype(np.float32)
        kept = gguf.GGMLQuantizationType["F32" if is_norm else kind]
        if kept.name == "F32":
            writer.add_tensor(name, values)
        elif _can_write(kept):
            writer.add_tensor(name, gguf.quantize(values, kept), raw_dtype=kept)
        else:
            block, block_bytes = gguf.GGML_QUANT_SIZES[kept]
            row_bytes = shape[1] // block * block_bytes
            writer.add_tensor(name, np.zeros((shape[0], row_bytes), np.uint8), raw_dtype=kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _shapes(vocab: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors, by llama.cpp's names; the output head is the embedding."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (HIDDEN,),
            f"blk.{layer}.ffn_norm.weight": (HIDDEN,),
            f"blk.{layer}.attn_q.weight": (HIDDEN, HIDDEN),
            f"blk.{layer}.attn_k.weight": (HIDDEN // 2, HIDDEN),
            f"blk.{layer}.attn_v.weight": (HIDDEN // 2, HIDDEN),
            f"blk.{layer}.attn_output.weight": (HIDDEN, HIDDEN),
            f"blk.{layer}.ffn_gate.weight": (INNER, HIDDEN),
            f"blk.{layer}.ffn_up.weight": (INNER, HIDDEN),
            f"blk.{layer}.ffn_down.weight": (HIDDEN, INNER),
        }
    return shapes


def _can_write(kind: gguf.GGMLQuantizationType) -> bool:
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    try:
        gguf.quantize(np.zeros((1, block), np.float32), kind)
    except NotImplementedError:
        return False
    return True
