"""EngineCapabilities: what an engine declares that it can do. A run that needs more is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """Capabilities of an engine class, known before one is made. Undeclared ones are not used."""

    token_ids: bool = False
    """It samples from the ids that it is given, and tells the ids that it sampled."""
    logprobs: bool = False
    """Log-probs of each sampled token, under the distribution that it was sampled from."""
    weights: bool = False
    """It loads new weights while it serves, and names the version that sampled each token."""
    adapter_ranks: tuple[int, ...] = ()
    """Ranks that it makes room for, ascending: adapters of these ranks and smaller ones are served
    beside the model's weights, several at a time. Empty: it serves none."""
    probe: bool = False
    """It tells the log-probs of ids that it is given, so that a publication can be verified."""
    tools: bool = False
    """It reads tool calls in replies, as `policy.tool_parser` says where that matters."""
    pictures: bool = False
    """It serves models that see."""
    nodes: bool = False
    """It can run on another machine of a cluster (`policy.placement=nodes`)."""
    model: bool = True
    """It loads `policy.model`. False: a server elsewhere has a model of its own."""
    compiles: bool = False
    """It compiles the model where `policy.enforce_eager` is false."""
