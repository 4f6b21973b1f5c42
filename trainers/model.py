"""The learner's model: a pack of sequences in, log-probs and entropies of its sampled tokens out.

Sequences of a pack share everything but attention, which runs causally inside each of them, in
groups of about equal length: padding costs next to nothing, no mask is built, and nothing crosses
from one sequence to another. Logits exist only for positions that predict a sampled token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from clawrl_gym.trainers.batch import Pack

Layout = Literal["packed", "padded"]
ATTENTION = "clawrl_packed"
"""Our attention's name in the registry of transformers."""
EVEN = 0.75
"""Sequences attend together when the shortest has at least this share of the longest's length."""
MAX_LOGITS = 2**26
"""Logits held at a time; more are made again in the backward pass instead of being kept."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What the model says about the M sampled tokens of a pack."""

    logprobs_M: Tensor
    entropies_M: Tensor
    """Of the whole distribution at that position, in nats; no gradient."""


@dataclass(frozen=True, slots=True)
class Block:
    """Sequences of about equal length that attend in one call, as rows padded on the right.

    Causal attention never looks to the right, so the padding needs no mask.
    """

    rows: int
    width: int
    gather: Tensor
    """(rows * width,) where each cell is in the pack; padding repeats a token that is there."""
    scatter: Tensor
    """Cells that are tokens, in pack order."""


class PackedModel:
    """A causal language model of transformers, read through packs.

    Models with other than full attention layers run right-padded instead, which is exact for any
    causal model and wastes some work.
    """

    def __init__(self, model_dir: str, device: str, temperature: float = 1.0) -> None:
        from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()  # the run has its own view
        AttentionInterface.register(ATTENTION, _packed_attention)
        config = AutoConfig.from_pretrained(model_dir)
        self.layout: Layout = "packed" if _has_full_attention_only(config) else "padded"
        self.saved_dtype: torch.dtype = getattr(config, "dtype", None) or torch.float32
        """Element type of the weights in `model_dir`, and of those that are published."""
        self.net: nn.Module = AutoModelForCausalLM.from_pretrained(
            model_dir,
            dtype=torch.float32,
            attn_implementation=ATTENTION if self.layout == "packed" else "sdpa",
        )
        self.net.to(device).eval()  # no dropout: old and new log-probs must be comparable
        self.tied = bool(getattr(config, "tie_word_embeddings", False))
        self.device = torch.device(device)
        self.temperature = temperature
        self.max_logits = MAX_LOGITS

    def score(self, pack: Pack) -> Scores:
        """Log-probs (with gradient, where enabled) under the distribution that was sampled from."""
        with self._autocast():
            hidden_TH = self._hidden(pack)
            predictors_M = torch.from_numpy(pack.predictors_M).to(self.device)
            targets_M = torch.from_numpy(pack.targets_M).to(self.device)
            return self._head_scores(hidden_TH.index_select(0, predictors_M), targets_M)

    def state(self) -> dict[str, Tensor]:
        """The tensors by their transformers names; a tied output head only once."""
        state = self.net.state_dict()
        if self.tied:
            state.pop("lm_head.weight", None)
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over tensors that `state` gave."""
        missing, unexpected = self.net.load_state_dict(state, strict=False)
        if unexpected or [name for name in missing if not (self.tied and name == "lm_head.weight")]:
            raise ValueError(f"weights of another model: missing {missing}, unknown {unexpected}")

    def _hidden(self, pack: Pack) -> Tensor:
        """(T, hidden) last hidden states, in pack order."""
        ids_T = torch.from_numpy(pack.ids_T).to(self.device)
        positions_T = torch.from_numpy(pack.positions_T).to(self.device)
        body: Any = self.net.base_model
        if self.layout == "packed":
            blocks = make_blocks(pack.lengths, EVEN, self.device)
            output = body(
                ids_T[None], position_ids=positions_T[None], use_cache=False, packing=blocks
            )
            return output.last_hidden_state[0]  # type: ignore[no-any-return]
        (block,) = make_blocks(pack.lengths, 0.0, self.device)
        rows = ids_T[block.gather].view(block.rows, block.width)
        hidden = body(rows, use_cache=False).last_hidden_state
        return hidden.flatten(0, 1).index_select(0, block.scatter)  # type: ignore[no-any-return]

    def _head_scores(self, hidden_MH: Tensor, targets_M: Tensor) -> Scores:
        head: Any = self.net.get_output_embeddings()  # type: ignore[operator]
        step = max(1, self.max_logits // head.weight.shape[0])
        if len(targets_M) <= step:
            return Scores(*_scores(head, hidden_MH, targets_M, self.temperature))
        pieces = zip(torch.split(hidden_MH, step), torch.split(targets_M, step), strict=True)
        parts = [
            checkpoint(_scores, head, hidden, targets, self.temperature, use_reentrant=False)
            for hidden, targets in pieces
        ]
        return Scores(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.device.type == "cuda":
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return nullcontext()


def make_blocks(lengths: list[int], even: float, device: torch.device) -> list[Block]:
    """Blocks of neighbours whose lengths (longest first) differ by at most the factor `even`."""
    blocks = []
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


def _packed_attention(
    module: nn.Module,
    query: Tensor,  # (1, heads, T, D)
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packing: list[Block],
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence; the signature is that of transformers' registry."""
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


def _scores(
    head: nn.Module, hidden_MH: Tensor, targets_M: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logits_MV = head(hidden_MH).float() / temperature
    log_z_M = logits_MV.logsumexp(-1)
    logprobs_M = logits_MV.gather(-1, targets_M[:, None])[:, 0] - log_z_M
    with torch.no_grad():
        mean_logit_M = ((logits_MV - log_z_M[:, None]).exp() * logits_MV).sum(-1)
    return logprobs_M, log_z_M.detach() - mean_logit_M


def _has_full_attention_only(config: Any) -> bool:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return kinds == {"full_attention"} and not getattr(config, "text_config", None)
