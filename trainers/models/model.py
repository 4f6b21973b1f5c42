"""The learner's model: a pack of sequences in, log-probs and entropies of its sampled tokens out.

Sequences of a pack share everything but attention, which runs inside each of them. Logits exist
only for positions that predict a sampled token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.inference.generation import UNSPOKEN_BIAS
from clawrl_gym.inference.models.resolve import picture_ids, sees
from clawrl_gym.trainers.models import nf4
from clawrl_gym.trainers.models.adapter import add_adapter, left_out, merged
from clawrl_gym.trainers.models.attention import ATTENTION, EVEN, make_blocks, packed_attention
from clawrl_gym.trainers.models.average import MovingAverage
from clawrl_gym.trainers.models.distillation import topk_logprobs
from clawrl_gym.trainers.models.logprobs import MAX_LOGITS, Head, logprobs_of
from clawrl_gym.trainers.models.memory import autocasts
from clawrl_gym.trainers.models.packing import Pack
from clawrl_gym.trainers.models.pictures import Images, PictureReader

Layout = Literal["packed", "padded"]
_BASES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "nf4": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Scores:
    """The model's scores of the M sampled tokens of a pack."""

    logprobs_M: Tensor
    entropies_M: Tensor
    """Entropies of the whole distribution at each position, in nats; no gradient."""
    topk_MK: Tensor | None = None
    """Log-probs of the pack's `topk_ids_MK` at these positions."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """The model's scores of the M sampled tokens of a pack, and the tokens that it prefers."""

    logprobs_M: Tensor
    topk_MK: Tensor | None
    """Log-probs of the pack's `topk_ids_MK`."""
    best_ids_MK: Tensor
    """The most likely tokens at each position, best first."""
    best_MK: Tensor
    """Their log-probs."""


class PackedModel:
    """A causal language model of transformers, read through packs.

    Models with other than full attention layers run right-padded instead, which is exact for any
    causal model and wastes some work.
    """

    def __init__(
        self,
        model_dir: str,
        device: str,
        temperature: float = 1.0,
        images: Images | None = None,
        learner: LearnerConfig | None = None,
    ) -> None:
        """`images` None: sequences with pictures cannot be read. `learner`: how it is trained; a
        model without it is only read."""
        from transformers import AttentionInterface, AutoConfig
        from transformers.utils import logging

        logging.disable_progress_bar()  # the run has its own view
        AttentionInterface.register(ATTENTION, packed_attention)
        config = AutoConfig.from_pretrained(model_dir)
        self.layout: Layout = "packed" if _has_full_attention_only(config) else "padded"
        self.saved_dtype: torch.dtype = getattr(config, "dtype", None) or torch.float32
        """Element type of the weights in `model_dir`, and of those that are published."""
        text = config.get_text_config()
        self.context: int | None = getattr(text, "max_position_embeddings", None)
        """Longest sequence that it was made for, in tokens; None where it does not say."""
        self._unspoken = list(picture_ids(Path(model_dir)))
        self._reader: PictureReader | None = None
        if images is not None and self._unspoken:
            self._reader = PictureReader(model_dir, images, self._unspoken[0])
        adapter = None if learner is None else learner.adapter
        dtype = _held_dtype(learner, self.saved_dtype)
        self.base_dtype = str(dtype).removeprefix("torch.")
        """Element type in which the weights of `model_dir` are held."""
        self.device = torch.device(device)
        self._autocasts = autocasts(learner, str(self.saved_dtype).removeprefix("torch."), device)
        if device == "cuda" and not self._autocasts:
            torch.set_float32_matmul_precision("highest")  # some images switch TF32 on
        self.net: nn.Module = _loader(model_dir).from_pretrained(
            model_dir,
            dtype=dtype,
            attn_implementation=ATTENTION if self.layout == "packed" else "sdpa",
        )
        if learner is not None and adapter is not None and learner.base == "nf4":
            nf4.round_layers(self.net, device)
        self.net.to(device).eval()  # no dropout: old and new log-probs must be comparable
        self.adapted = adapter is not None
        """Whether an adapter is trained and the weights are frozen."""
        self._is_first = False
        self._average: MovingAverage | None = None
        if adapter is not None:
            add_adapter(self.net, adapter)
        if learner is not None and learner.checkpoint_layers:
            _checkpoint_layers(self.net)
        self.tied = self._output.weight is self.net.get_input_embeddings().weight
        self.temperature = temperature
        self.max_logits = MAX_LOGITS

    def first(self) -> PackedModel:
        """The model without its adapter, as the run began; it shares the memory."""
        first = copy(self)
        first._is_first = True
        return first

    def at_temperature_one(self) -> PackedModel:
        """The model at temperature 1, without any sampling setting; it shares the memory."""
        model = copy(self)
        model.temperature, model._unspoken = 1.0, []
        return model

    def averaged(self, average: MovingAverage) -> PackedModel:
        """The model with the weights of `average`; it shares the memory."""
        averaged = copy(self)
        averaged._average = average
        return averaged

    @property
    def width(self) -> int:
        """Number of tokens that the output head knows; padding of the vocabulary included."""
        return int(self._output.weight.shape[0])

    def score(self, pack: Pack) -> Scores:
        """Log-probs (with gradient, where enabled) under the distribution that was sampled from."""
        with self._mode():
            hidden_MH, ids_MK = self._predict(pack)
            logprobs_MK, entropies_M = logprobs_of(self._head(pack), hidden_MH, ids_MK)
        compared = pack.topk_ids_MK is not None
        return Scores(logprobs_MK[:, 0], entropies_M, logprobs_MK[:, 1:] if compared else None)

    @torch.no_grad()
    def look(self, pack: Pack, k: int, width: int) -> Predictions:
        """Log-probs without gradient, and the `k` most likely of the first `width` tokens."""
        with self._mode():
            hidden_MH, ids_MK = self._predict(pack)
            head = self._head(pack)
            parts = [
                _look(head.at(piece), hidden_MH[piece], ids_MK[piece], min(k, width), width)
                for piece in head.pieces(len(ids_MK))
            ]
        logprobs_MK, ids, best = (torch.cat(part) for part in zip(*parts, strict=True))
        compared = pack.topk_ids_MK is not None
        return Predictions(logprobs_MK[:, 0], logprobs_MK[:, 1:] if compared else None, ids, best)

    def state(self, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """The tensors by the names of a model's files; a tied output head only once.

        `dtype`: of those that an adapter changes.
        """
        from transformers.core_model_loading import revert_weight_conversion

        state = merged(self.net, dtype) if self.adapted else self.net.state_dict()
        if self.tied:
            state.pop("lm_head.weight", None)
        # transformers keeps some models otherwise than their files do: a layer's experts as one
        stored: dict[str, Tensor] = revert_weight_conversion(self.net, state)
        return stored

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Load tensors that `state` gave. Raises ValueError for those of another model."""
        own_names = self.net.state_dict().keys()
        if getattr(self.net, "_weight_conversions", None) and not state.keys() <= own_names:
            net: Any = type(self.net)
            state = net.from_pretrained(
                None, config=self.net.config, state_dict=state, dtype=torch.float32
            ).state_dict()
        missing, unexpected = self.net.load_state_dict(state, strict=False)
        if unexpected or [name for name in missing if not (self.tied and name == "lm_head.weight")]:
            raise ValueError(f"weights of another model: missing {missing}, unknown {unexpected}")

    def _hidden(self, pack: Pack) -> Tensor:
        """(T, hidden) last hidden states, in pack order."""
        ids_T = torch.from_numpy(pack.ids_T).to(self.device)
        positions_T = torch.from_numpy(pack.positions_T).to(self.device)
        body: Any = self.net.base_model
        if pack.pictures:
            return self._seeing(body, ids_T[None], pack.pictures)
        if self.layout == "packed":
            blocks = make_blocks(pack.lengths, EVEN, self.device)
            output = body(
                ids_T[None], position_ids=positions_T[None], use_cache=False, packing=blocks
            )
            if not blocks.was_met:
                raise TrainerError(
                    f"got a model whose attention is its own code ({type(body).__name__}), "
                    "expected one of transformers' that takes another attention: the learner "
                    "cannot train this family"
                )
            return output.last_hidden_state[0]  # type: ignore[no-any-return]
        (block,) = make_blocks(pack.lengths, 0.0, self.device)
        rows = ids_T[block.gather].view(block.rows, block.width)
        hidden = body(rows, use_cache=False).last_hidden_state
        return hidden.flatten(0, 1).index_select(0, block.scatter)  # type: ignore[no-any-return]

    def _seeing(self, body: nn.Module, ids_1T: Tensor, pictures: tuple[str, ...]) -> Tensor:
        """Hidden states of one sequence with pictures."""
        if self._reader is None:
            raise TrainerError(
                "got a sequence with pictures, expected text only: the model has no vision part"
            )
        inputs = self._reader.inputs(body, ids_1T, pictures)
        return body(ids_1T, use_cache=False, **inputs).last_hidden_state[0]  # type: ignore[no-any-return]

    def _predict(self, pack: Pack) -> tuple[Tensor, Tensor]:
        """Hidden states that predict the sampled tokens; these tokens, then those to compare."""
        hidden_TH = self._hidden(pack)
        ids_MK = pack.targets_M[:, None]
        if pack.topk_ids_MK is not None:
            ids_MK = np.concatenate([ids_MK, pack.topk_ids_MK], axis=1)
        predictors_M = torch.from_numpy(pack.predictors_M).to(self.device)
        return hidden_TH.index_select(0, predictors_M), torch.from_numpy(ids_MK).to(self.device)

    @property
    def _output(self) -> Any:
        return self.net.get_output_embeddings()  # type: ignore[operator]

    def _head(self, pack: Pack) -> Head:
        """The head as the engine samples from it: never a token that stands for a picture."""
        layer = self._output
        bias_V = getattr(layer, "bias", None)
        if self._unspoken:
            bias_V = torch.zeros(self.width, device=self.device) if bias_V is None else bias_V + 0
            bias_V[self._unspoken] += UNSPOKEN_BIAS
        return Head(layer.weight, bias_V, self._temperature(pack), self.max_logits)

    def _temperature(self, pack: Pack) -> float | Tensor:
        """Temperature of each sample, where it was sampled at another than the run's."""
        if pack.temperatures_M is None:
            return self.temperature
        own_M = np.nan_to_num(pack.temperatures_M, nan=self.temperature)
        if (own_M == own_M[0]).all():
            return float(own_M[0])
        return torch.from_numpy(own_M).to(self.device)[:, None]

    @contextmanager
    def _mode(self) -> Iterator[None]:
        """Context manager: the mode in which every pass runs."""
        with ExitStack() as stack:
            if self._autocasts:
                stack.enter_context(torch.autocast("cuda", dtype=torch.bfloat16))
            if self._is_first:
                stack.enter_context(left_out(self.net))
            if self._average is not None:
                stack.enter_context(self._average.in_place())
            yield


def _look(
    head: Head, hidden_MH: Tensor, ids_MK: Tensor, k: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    logits_MV = head.logits(hidden_MH)
    log_z_M = logits_MV.logsumexp(-1)
    best_MK, best_ids_MK = logits_MV[:, :width].topk(k, dim=-1)
    return topk_logprobs(logits_MV, log_z_M, ids_MK), best_ids_MK, best_MK - log_z_M[:, None]


def _checkpoint_layers(net: nn.Module) -> None:
    """Needs training mode, the only one with it in transformers; it must drop nothing."""
    net.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    net.train()
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if getattr(module, "attention_dropout", 0.0):
            module.attention_dropout = 0.0  # type: ignore[assignment]


def _held_dtype(learner: LearnerConfig | None, saved: torch.dtype) -> torch.dtype:
    """Element type of the weights in memory; with 4 bits, of all others."""
    if learner is None or (learner.adapter is None and not learner.offload):
        return torch.float32
    return torch.bfloat16 if learner.adapter is None else _BASES.get(learner.base, saved)


def _loader(model_dir: str) -> Any:
    """The class that loads the model with all its parts."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if sees(Path(model_dir)) else AutoModelForCausalLM


def _has_full_attention_only(config: object) -> bool:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    windowed = getattr(config, "layer_types", None) is None and getattr(
        config, "sliding_window", None
    )
    return kinds == {"full_attention"} and not windowed and not getattr(config, "text_config", None)
