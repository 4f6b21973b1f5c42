"""Attention of a pack: causal inside each of its sequences, which lie end to end.

Sequences of about equal length attend in one call: padding costs next to nothing, no mask is
built, and nothing crosses from one sequence to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from clawrl_gym.core.errors import TrainerError

ATTENTION = "clawrl_packed"
"""Our attention's name in the registry of transformers."""
EVEN = 0.75
"""Sequences attend together when the shortest has at least this share of the longest's length."""
_OTHER_KINDS = ("sliding_window", "softcap", "s_aux", "chunk_size")
"""Arguments of attention that is not plain: windows, caps of scores, sinks, chunks."""


@dataclass(frozen=True, slots=True)
class Block:
    """Sequences of about equal length that attend in one call, as rows padded on the right.

    Causal attention never looks to the right, so the padding needs no mask.
    """

    rows: int
    width: int
    gather: Tensor
    """(rows * width,) place of each cell in the pack; padding repeats a token that is there."""
    scatter: Tensor
    """Cells that are tokens, in pack order."""


class Packing(list[Block]):
    """The blocks of a pack, and whether any attention has used them."""

    was_met = False


def make_blocks(lengths: list[int], even: float, device: torch.device) -> Packing:
    """Blocks of neighbours whose lengths (longest first) differ by at most the factor `even`."""
    blocks = Packing()
    start = 0
    for group in _neighbours(lengths, even):
        width = max(group)
        lengths_B = torch.tensor(group)
        starts_B = start + lengths_B.cumsum(0) - lengths_B
        columns = torch.arange(width)
        cells = starts_B[:, None] + columns.minimum(lengths_B[:, None] - 1)
        real = (columns < lengths_B[:, None]).flatten().nonzero().flatten()
        blocks.append(Block(len(group), width, cells.flatten().to(device), real.to(device)))
        start += sum(group)
    return blocks


def _neighbours(lengths: list[int], even: float) -> Iterator[list[int]]:
    first = 0
    for index in range(1, len(lengths) + 1):
        if index == len(lengths) or lengths[index] < even * lengths[first]:
            yield lengths[first:index]
            first = index


def packed_attention(
    module: nn.Module,
    query: Tensor,  # (1, heads, T, D)
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packing: Packing,
    scaling: float | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence; the signature is that of transformers' registry.

    Raises TrainerError for what it would leave out.
    """
    packing.was_met = True
    unknown = [name for name in _OTHER_KINDS if more.get(name) is not None]
    if unknown:
        raise TrainerError(
            f"got a model whose attention has {', '.join(unknown)} ({type(module).__name__}), "
            "expected plain causal attention: the learner cannot train this family"
        )
    copies = query.shape[1] // key.shape[1]
    outputs = []
    for block in packing:
        q, k, v = (_rows(streams, block) for streams in (query, key, value))
        if copies > 1:
            k, v = k.repeat_interleave(copies, 1), v.repeat_interleave(copies, 1)
        out = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling)
        out = out.transpose(1, 2).flatten(0, 1)  # (rows * width, heads, D)
        outputs.append(out.index_select(0, block.scatter))
    return torch.cat(outputs)[None], None


def _rows(streams: Tensor, block: Block) -> Tensor:
    """(1, heads, T, D) -> (rows, heads, width, D)."""
    heads, _, size = streams.shape[1:]
    cells = streams[0].index_select(1, block.gather)
    return cells.view(heads, block.rows, block.width, size).transpose(0, 1)
