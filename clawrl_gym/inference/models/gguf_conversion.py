"""The process that makes a Hugging Face folder of a GGUF file.

    python -m clawrl_gym.inference.models.gguf_conversion FILE FOLDER

transformers reads weights, configuration and tokenizer; what it leaves out of the file is added
here: which tokens end a reply, how numbers are cut into tokens, and that the weights are plain.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib import metadata
from math import prod
from pathlib import Path
from typing import Any

from clawrl_gym.core import provenance
from clawrl_gym.inference.models.gguf import REFUSED

_PLAIN = ("F32", "F16", "BF16")
_SINGLE_DIGITS = (
    "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"
)  # fmt: skip
"""Values of `tokenizer.ggml.pre` whose numbers are cut into digits first, as llama.cpp does it;
transformers cuts such texts like GPT-2's."""
_LIKE_GPT2 = (
    "gpt-2", "phi-2", "jina-es", "jina-de", "roberta-bpe", "mpt", "olmo", "jais", "trillion"
)  # fmt: skip
"""And those whose texts it cuts like that, too."""


def write_folder(file: Path, folder: Path) -> str:
    """Convert a file; returns what is uncertain of it, or nothing. Raises ValueError for one that
    cannot be read, or takes too much room."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = _read(file)
    _check_quantizations(reader)
    _check_room(reader, folder)

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **place)
    model = AutoModelForCausalLM.from_pretrained(
        str(file.parent),
        dtype=getattr(torch, element_type(reader)),
        quantization_config=GgufConfig(dequantize=True),
        **place,
    )
    _check_tokens(model, tokenizer)
    _forget_quantization(model)
    ends = end_ids(reader)
    if ends:
        model.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]
    cut_numbers(tokenizer, reader)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    cut = unknown_cut(reader)
    return cut and (
        f"warning: its tokenizer cuts texts before merging by the rule {cut!r}, which is not known "
        "here: they are cut like GPT-2's, and some prompts have other tokens than in training"
    )


def element_type(reader: Any) -> str:
    """The type that holds all values of the file exactly: its 16 bits, else float32."""
    kinds = {tensor.tensor_type.name for tensor in reader.tensors}
    if kinds <= {"F32", "F16"} and "F16" in kinds:
        return "float16"
    return "bfloat16" if kinds <= {"F32", "BF16"} and "BF16" in kinds else "float32"


def end_ids(reader: Any) -> list[int]:
    """Tokens that end a reply, the file's own end token first; transformers keeps that one only."""
    fields = [reader.get_field(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    return list(dict.fromkeys(int(field.contents()) for field in fields if field is not None))


def cut_numbers(tokenizer: Any, reader: Any) -> None:
    """Cut texts before the merges as the model's own tokenizer does."""
    from tokenizers import pre_tokenizers

    field = reader.get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() in _SINGLE_DIGITS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )


def unknown_cut(reader: Any) -> str:
    """The rule of cutting that nobody here knows; empty where it is known."""
    from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping

    model, kind = (reader.get_field(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if model is None or model.contents() != "gpt2" or kind is None:
        return ""
    known = {*_SINGLE_DIGITS, *_LIKE_GPT2, *mapping.GGUF_PRE_TOKENIZER_SPLITS}
    name = str(kind.contents())
    return "" if name in known else name


def _read(file: Path) -> Any:
    import gguf

    try:
        return gguf.GGUFReader(file)
    except (OSError, ValueError, IndexError, KeyError) as error:
        if "GGMLQuantizationType" in str(error):
            number = re.findall(r"\d+", str(error).partition(" is not")[0])[-1:]
            raise ValueError(
                f"it has weights of the type {''.join(number)}, a quantization that gguf "
                f"{metadata.version('gguf')} does not know{_other_quantization()}"
            ) from error
        raise ValueError(
            f"it cannot be read ({type(error).__name__}: {error}), expected a whole GGUF file of "
            "version 2 or 3; download it again"
        ) from error


def _check_quantizations(reader: Any) -> None:
    unknown = sorted({t.tensor_type.name for t in reader.tensors if not _can_read(t.tensor_type)})
    if unknown:
        raise ValueError(f"it has weights in {', '.join(unknown)}{_other_quantization()}")


def _other_quantization() -> str:
    import gguf

    known = [kind.name for kind in gguf.GGMLQuantizationType if _can_read(kind)]
    return f", expected one of {', '.join(known)}: take the model in another quantization"


def _can_read(kind: Any) -> bool:
    """Whether gguf makes numbers of this quantization: tried on one block."""
    import gguf
    import numpy as np

    if kind.name in _PLAIN:
        return True
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    try:
        gguf.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _check_room(reader: Any, folder: Path) -> None:
    """In memory and on disk."""
    element_bytes = 4 if element_type(reader) == "float32" else 2
    parameters = sum(prod(int(number) for number in tensor.shape) for tensor in reader.tensors)
    needed_gib = parameters * element_bytes / 2**30
    memory_gib, disk_gib = provenance.memory_available_gb(), shutil.disk_usage(folder).free / 2**30
    for what, free_gib in (("memory", memory_gib), (f"room in {folder.parent}", disk_gib)):
        if free_gib < needed_gib:
            raise ValueError(
                f"its {parameters:,} weights take {needed_gib:.1f} GiB of {what}, and "
                f"{free_gib:.1f} GiB are free"
            )


def _check_tokens(model: Any, tokenizer: Any) -> None:
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ValueError(f"it has {len(tokenizer)} tokens and embeddings for {rows} of them")


def _forget_quantization(model: Any) -> None:
    """The weights are plain by now; with the mark transformers saves none of them."""
    for holder in (model, model.config):
        for name in ("hf_quantizer", "quantization_config", "quantization_method"):
            if hasattr(holder, name):
                delattr(holder, name)
    model.is_quantized = False


def main() -> int:
    file, folder = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        sys.stdout.write(write_folder(file, folder))
    except (ValueError, NotImplementedError, KeyError) as error:
        why = " ".join(str(error).split())
        sys.stdout.write(f"the GGUF file {file} cannot be converted: {why}\n")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
