"""Joining a Ray cluster that was there before: where its head listens, which token, which node.

What is wrong is one ConfigError within seconds, before anything is started; Ray itself would wait
for a minute and answer with a page. Ray is not imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.cluster.ray_probe import Member, ask
from clawrl_gym.config import RayConfig
from clawrl_gym.config.cluster import AUTO
from clawrl_gym.core.errors import ConfigError, ConfigErrors
from clawrl_gym.core.reach import why_closed

TOKEN, TOKEN_PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
DEFAULT_TOKEN_FILE = "~/.ray/auth_token"
"""Ray's own default path."""
_REACH_S = 3.0


def token_of(file: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The cluster's token. Raises ConfigError where there is none."""
    if file is None and environment.get(TOKEN):
        return environment[TOKEN].strip()
    path = Path(file or environment.get(TOKEN_PATH) or DEFAULT_TOKEN_FILE).expanduser()
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(
            f"got no token of the cluster ({path}: {why}), expected the one that its head was "
            f"started with: copy the head's {DEFAULT_TOKEN_FILE} here, set {TOKEN}, or give "
            "ray.token_file=PATH"
        ) from error
    if not token:
        raise ConfigError(f"got an empty token in {path}, expected the one of the cluster's head")
    return token


@dataclass(frozen=True, slots=True)
class Membership:
    """This machine's place in a cluster."""

    address: str
    """HOST:PORT of the head."""
    host: str
    """This machine's address for the others."""
    token: str


def membership(config: RayConfig) -> Membership:
    """Membership of this machine in the cluster to join. Raises ConfigError for whatever is wrong
    with it."""
    lines = [] if config.address == AUTO else list(_closed(config.address))
    try:
        token = token_of(config.token_file)
    except ConfigError as error:
        lines.append(str(error))
    if lines:
        raise ConfigErrors(lines)
    address, members = members_at(config.address, token)
    own = sorted((member for member in members if member["is_here"]), key=_head_first)
    if not own:
        others = ", ".join(sorted(member["address"] for member in members)) or "none"
        raise ConfigError(
            f"this machine is not a node of the cluster at {address}, and a run begins on one of "
            f"them ({others}): join it first with python -m clawrl_gym.node --address={address}"
        )
    return Membership(address, own[0]["address"], token)


def members_at(address: str, token: str) -> tuple[str, list[Member]]:
    """The head's address and the living nodes. Raises ConfigError for a wrong token, and for what
    is no head of a cluster."""
    if address != AUTO:
        for line in _closed(address):
            raise ConfigError(line)
    answer = ask(address, authentication(token))
    if "error" not in answer:
        if answer["is_open"]:
            raise ConfigError(
                f"the cluster at {answer['address']} asks for no token, so that whoever reaches it "
                "commands its machines: start it with RAY_AUTH_MODE=token on every node (python -m "
                "clawrl_gym.node does)"
            )
        return answer["address"], answer["members"]
    error = " ".join(answer["error"].split())
    if "nauthenticated" in error or "InvalidAuthToken" in error:
        raise ConfigError(
            f"the cluster at {address} refused this token: expected the one that its head was "
            f"started with (the head's {DEFAULT_TOKEN_FILE}, or what {TOKEN} was there)"
        )
    if address == AUTO:
        raise ConfigError(
            f"got ray.address=auto on a machine that belongs to no Ray cluster ({error[:200]}): "
            "join one first (python -m clawrl_gym.node --address=HOST:PORT), or give "
            "ray.address=HOST:PORT"
        )
    raise ConfigError(
        f"got the cluster's address {address}, where something answers that is no head of a Ray "
        f"cluster, or one of another version ({error[:200]})"
    )


def _head_first(member: Member) -> bool:
    return not member["is_head"]


def _closed(address: str) -> Iterator[str]:
    host, port = split(address)
    why = why_closed(host, port, _REACH_S)
    if why is not None:
        yield closed(address, why)


def closed(address: str, why: str) -> str:
    """The error for an address where nothing listens."""
    return (
        f"got the cluster's address {address}, where nothing answers ({why}): start its head first "
        "(python -m clawrl_gym.node --head), or fix the address or the firewall between"
    )


def authentication(token: str) -> dict[str, str]:
    """Environment variables that every process of a cluster has."""
    return {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", TOKEN: token}


def authenticate(token: str) -> None:
    """Have this process, and all that it starts, know the cluster's token."""
    os.environ.update(authentication(token))


def split(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def versions_differ(error: Exception) -> str | None:
    """Ray's own words on two versions in one line; None when it is about something else."""
    text = str(error)
    if "Version mismatch" not in text:
        return None
    words = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{'; '.join(words)}: install the same versions on every machine"
