"""Configuration of the Ray cluster that hosts a run's workers, engines and learner."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, model_validator

from clawrl_gym.config.part import Part

LOCAL, AUTO = "local", "auto"
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[\w.-]+):(?P<port>\d{1,5})")


class RayConfig(Part):
    """The Ray cluster: the run's own, or one that exists already."""

    address: str = LOCAL
    """`local`: a cluster of the run's own, on this machine and on loopback alone; HOST:PORT joins
    the cluster whose head listens there, `auto` the one that this machine belongs to."""
    token_file: str | None = None
    """File with the token of the cluster to join; None: RAY_AUTH_TOKEN, else the file that
    RAY_AUTH_TOKEN_PATH names, else ~/.ray/auth_token."""
    node_timeout_s: float = Field(60.0, gt=0)
    """Seconds that a run waits, at its start and whenever the last one is lost, for a node that can
    hold its environments."""

    @property
    def is_joined(self) -> bool:
        """Whether the cluster existed before the run, with machines of its own."""
        return self.address != LOCAL

    @model_validator(mode="after")
    def _address_can_be_one(self) -> Self:
        if self.address in (LOCAL, AUTO):
            return self
        match = _ADDRESS.fullmatch(self.address)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise ValueError(
                f"got ray.address={self.address!r}, expected local, auto, or HOST:PORT of a "
                "cluster's head, such as 10.0.0.1:6379"
            )
        return self
