"""A space of any Unicode text: Gymnasium's own `Text` knows only an enumerated alphabet.

`Text` would cost 150 MB for all of Unicode and walks every character of every observation.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Space

PRINTABLE = "".join(chr(code) for code in range(32, 127))
"""Characters that samples are made of; the space itself holds every str."""


class Unicode(Space[str]):  # type: ignore[misc]
    """All strings of at most `max_length` characters."""

    def __init__(
        self,
        max_length: int = 1 << 20,
        sample_length: int = 32,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if max_length < 0 or sample_length < 0:
            raise ValueError(
                f"got max_length={max_length}, sample_length={sample_length}, expected >= 0"
            )
        self.max_length = max_length
        self.sample_length = min(sample_length, max_length)
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed width: False."""
        return False

    def sample(self, mask: object = None, probability: object = None) -> str:
        """Printable ASCII of at most `sample_length` characters; masks mean nothing here."""
        if mask is not None or probability is not None:
            raise ValueError("got a mask or probability, expected None: text is not enumerated")
        length = int(self.np_random.integers(0, self.sample_length + 1))
        picks = self.np_random.integers(0, len(PRINTABLE), size=length)
        return "".join(PRINTABLE[int(i)] for i in picks)

    def contains(self, x: object) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unicode) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((Unicode, self.max_length))

    def __repr__(self) -> str:
        return f"Unicode({self.max_length})"
