"""A slow machine: below which speed waiting for a reply is not the agent's own time.

How long its replies are is the agent's doing, how fast they are sampled is not. So a reply counts
at the seconds that it takes at `SLOWEST_TOKENS_PER_S`, and at fewer where it was faster.
"""

SLOWEST_TOKENS_PER_S = 10.0
"""Speed of one request, about as fast as people read."""


def own_seconds(tokens: int) -> float:
    """The most that so many sampled tokens cost an agent."""
    return tokens / SLOWEST_TOKENS_PER_S


def is_slow(tokens: int | None, timeout_s: float) -> bool:
    """Whether a request of at most so many tokens (None: no bound is known) that has not ended in
    this time cannot have been too long."""
    return tokens is not None and own_seconds(tokens) < timeout_s
