"""Weight files on disk: which there are, and whether they are whole. Loads none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

SUFFIXES = (".safetensors", ".safetensors.index.json")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of an element, by the names of element types in a model's config.json."""
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx")
_OF_THESE_WEIGHTS = (
    "README.md", "recipe.json", "training_args.json", "trainer_state.json", "all_results.json",
    "eval_results.json", "train_results.json",
)  # fmt: skip
"""Files that tell how a folder's own weights were made and what they reach."""
_HEADER_LIMIT_BYTES = 100 * 2**20


class TensorHeader(TypedDict):
    """Header of a tensor in a safetensors file."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


def weight_files(weights: Path) -> dict[str, Path]:
    """Weight files by the names that engines look for: one, or a folder's shards with their index.

    Raises FileNotFoundError, or ValueError for a file that is not whole.
    """
    if weights.is_file():
        files = {"model.safetensors": weights}
    else:
        files = {path.name: path for path in weights.glob("*") if path.name.endswith(SUFFIXES)}
    if not any(name.endswith(".safetensors") for name in files):
        raise FileNotFoundError(f"{weights} has no *.safetensors file")
    for name, path in files.items():
        if name.endswith(".safetensors"):
            check_whole(path)
    return files


def files_beside_weights(folder: Path) -> list[Path]:
    """Configuration, tokenizer, template, processor, code: what other weights go with, too."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and not path.name.startswith(".")
        and not path.name.endswith(SUFFIXES + _OTHER_WEIGHTS)
        and path.name not in _OF_THESE_WEIGHTS
    )


def shapes(files: dict[str, Path]) -> dict[str, list[int]]:
    """The shape of every tensor in the files, from their headers."""
    return {
        name: entry["shape"]
        for file, path in files.items()
        if file.endswith(".safetensors")
        for name, entry in check_whole(path).items()
    }


def layer_shapes(files: dict[str, Path]) -> dict[str, list[list[int]]]:
    """Shapes of the linear layers that can have an adapter, by the last part of their names
    (`q_proj`)."""
    layers: dict[str, list[list[int]]] = {}
    for name, shape in shapes(files).items():
        *path, layer, last = name.split(".") if name.count(".") > 1 else ["", "", ""]
        is_inside = any(part.isdecimal() for part in path)
        if last == "weight" and len(shape) == 2 and is_inside and "embed" not in layer:
            layers.setdefault(layer, []).append(shape)
    return layers


def check_fit(new: dict[str, Path], old: dict[str, Path]) -> None:
    """ValueError when new weights are clearly not of the model that the old ones are of."""
    new_shapes, old_shapes = shapes(new), shapes(old)
    common = new_shapes.keys() & old_shapes.keys()
    if not common:
        raise ValueError(
            f"they are of another model: none of its {len(old_shapes)} tensors is there"
        )
    wrong = sorted(name for name in common if new_shapes[name] != old_shapes[name])
    if wrong:
        name = wrong[0]
        raise ValueError(
            f"they are of another model: {name} is {new_shapes[name]}, expected {old_shapes[name]}"
        )


def check_whole(path: Path) -> dict[str, TensorHeader]:
    """The header's tensors; ValueError unless the file is as long as they say."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_LIMIT_BYTES):
            raise ValueError(
                f"{path} is not a safetensors file ({size} bytes): a Git LFS pointer, or cut off?"
            )
        try:
            tensors: dict[str, TensorHeader] = json.loads(file.read(length))
            tensors.pop("__metadata__", None)
            ends = [entry["data_offsets"][1] for entry in tensors.values()]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"{path} is not a safetensors file: its header is broken") from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ValueError(f"{path} is cut off: got {size} bytes, expected {expected}")
    return tensors
