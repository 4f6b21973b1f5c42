"""Asks the head of a Ray cluster who is in it, in a process of its own.

Ray's client would wait for most of a minute for what is no head, and print while it does: here it
is ended in time, and what it says is read.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

_LIMIT_S = 15.0
_ANSWER_S = 5.0


class Member(TypedDict):
    """A living node."""

    address: str
    is_head: bool
    is_here: bool
    """Whether its Ray runs on this machine."""


class Answer(TypedDict, total=False):
    """Answer to the question: `address` and `members`, or `error`."""

    address: str
    """HOST:PORT of the head."""
    members: list[Member]
    error: str
    is_open: bool
    """Whether it answers everybody, with whatever token."""


def ask(address: str, environment: Mapping[str, str]) -> Answer:
    """Ask the cluster at HOST:PORT, or at `auto`; `environment` holds its token."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, os.environ.get("PYTHONPATH", "")]
    variables = {
        **os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))
    }  # fmt: skip
    command = [sys.executable, "-m", __name__, address]
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
        answer: Answer = json.loads(done.stdout.splitlines()[-1])
        return answer
    except subprocess.TimeoutExpired:
        return {"address": address, "error": f"no answer within {_LIMIT_S:g} s"}
    except (ValueError, IndexError):
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"address": address, "error": words[-1]}


def _look(address: str) -> Answer:
    from ray._private import services

    if address == "auto":
        address = services.canonicalize_bootstrap_address(address) or ""
    here = set(services.find_node_ids())
    nodes = (
        importlib.import_module("ray._raylet")
        .GcsClient(address=address)
        .get_all_node_info(timeout=_ANSWER_S)
        .values()
    )
    members: list[Member] = [
        {
            "address": node.node_manager_address,
            "is_head": node.is_head_node,
            "is_here": node.node_id.hex() in here,
        }
        for node in nodes
        if not node.state  # 0 is ALIVE
    ]
    return {"address": address, "members": members, "is_open": _answers_a_stranger(address)}


def _answers_a_stranger(address: str) -> bool:
    raylet = importlib.import_module("ray._raylet")
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    try:
        raylet.GcsClient(address=address).get_all_node_info(timeout=_ANSWER_S)
    except Exception:  # noqa: BLE001 - the border to Ray's own errors: it was refused
        return False
    return True


def main() -> None:
    """The process of its own: `python -m clawrl_gym.cluster.ray_probe ADDRESS`."""
    answer: Answer
    try:
        answer = _look(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - the border to Ray's own errors
        answer = {"address": sys.argv[1], "error": f"{type(error).__name__}: {error}"}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # threads of Ray's must not hold it up


if __name__ == "__main__":
    main()
