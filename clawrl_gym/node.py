"""python -m clawrl_gym.node --address=HOST:PORT: this machine as a node of a Ray cluster.

Checks what it can hold (sandboxes, Docker's containers, browsers), joins the cluster with these
resources, and leaves it at Ctrl-C. `--head` begins a cluster instead.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterable
from typing import NoReturn

from clawrl_gym.checks import host, software
from clawrl_gym.checks.check import MachineCheck, Status
from clawrl_gym.cluster import joining
from clawrl_gym.cluster.ray_node import (
    NodePlan,
    check_cluster,
    made_token,
    own_address,
    running_node,
)
from clawrl_gym.core import provenance, redact
from clawrl_gym.core.errors import ClawError, ConfigError

_A_CORE = {"sandbox": 128, "docker": 16, "browser": 16}
"""Environments of each kind that a core is taken to hold, unless it is said."""
_OTHERS = {"engine": "vLLM engines", "learner": "learners"}
"""Other roles that a node may take (policy.placement, learner.placement)."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        plan = plan_of(options)
        with running_node(plan) as node:
            _say(_joined(plan))
            node.wait()
    except _Stopped as stop:
        _say(f"stopped by {stop.signal.name}: this machine has left the cluster")
        return 128 + stop.signal
    except ClawError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ConfigError) else 3


def plan_of(options: argparse.Namespace) -> NodePlan:
    """Plan of what to start. Raises ConfigError."""
    if options.head:
        token = made_token(options.token_file)
        address = _head_address(options.host, options.port)
        own = joining.split(address)[0]
    else:
        token = joining.token_of(options.token_file)
        address = options.address
        own = options.host or own_address(address)
    redact.install([token])
    resources = {}
    for kind, checks in machine_checks().items():
        wanted = getattr(options, kind)
        if wanted != 0:
            resources[kind], line = resource_of(kind, checks, wanted)
            _say(line)
    resources |= {kind: getattr(options, kind) for kind in _OTHERS}
    resources = {kind: count for kind, count in resources.items() if count}
    plan = NodePlan(address, options.head, own, resources, token)
    if not options.head:
        check_cluster(plan)
    return plan


def machine_checks() -> dict[str, list[MachineCheck]]:
    """Requirements of each kind of environments here; sandboxes are proved by starting one."""
    return {
        "sandbox": host.check_isolation(),
        "docker": [software.check_docker()],
        "browser": [software.check_browser()],
    }


def resource_of(kind: str, checks: Iterable[MachineCheck], wanted: int | None) -> tuple[int, str]:
    """Environments of a kind that this machine offers, and a line on it.

    Raises ConfigError for what was asked for and cannot be.
    """
    needed = Status.MISSING if kind == "sandbox" else Status.OPTIONAL
    missing = [check for check in checks if check.status in (Status.MISSING, needed)]
    if not missing:
        count = _A_CORE[kind] * provenance.usable_cores() if wanted is None else wanted
        return count, f"{kind}: {count} environments"
    first = missing[0]
    why = f"{first.name}: {first.finding}; {first.cure}"
    if wanted:
        raise ConfigError(f"got --{kind}={wanted} on a machine that can hold none ({why})")
    return 0, f"{kind}: none ({why})"


def _head_address(own: str | None, port: int) -> str:
    if own is None:
        from ray.util import get_node_ip_address

        own = str(get_node_ip_address())
    if own.startswith("127."):
        raise ConfigError(
            f"got {own} as this machine's address, which no other machine reaches: give "
            "--host=ADDRESS, the one that the others know it by"
        )
    return f"[{own}]:{port}" if ":" in own else f"{own}:{port}"


def _joined(plan: NodePlan) -> str:
    has = ", ".join(f"{kind} {count}" for kind, count in plan.resources.items()) or "cores alone"
    if not plan.is_head:
        return f"{plan.host} is a node of the cluster at {plan.address} ({has}); Ctrl-C leaves it"
    return (
        f"a cluster begins at {plan.address} ({has}); other machines join it with\n"
        f"  python -m clawrl_gym.node --address={plan.address}\n"
        f"and this machine's token ({joining.DEFAULT_TOKEN_FILE}); a run takes it with\n"
        f"  python -m clawrl_gym.train ray.address={plan.address}\n"
        "Ctrl-C ends it"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m clawrl_gym.node", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--address", type=_address, help="HOST:PORT of the cluster's head")
    where.add_argument("--head", action="store_true", help="begin a cluster on this machine")
    parser.add_argument("--host", help="this machine's address as the others know it")
    parser.add_argument("--port", type=_port, default=6379, help="of a head (default: 6379)")
    parser.add_argument("--token-file", help=f"default: {joining.DEFAULT_TOKEN_FILE}")
    for kind, count in _A_CORE.items():
        parser.add_argument(
            f"--{kind}", type=_count, metavar="N",
            help=f"environments of this kind at a time, 0: none (default: {count} a core)",
        )  # fmt: skip
    for kind, words in _OTHERS.items():
        parser.add_argument(
            f"--{kind}", type=_count, metavar="N", default=0,
            help=f"{words} that this machine takes (default: 0)",
        )  # fmt: skip
    return parser


def _address(text: str) -> str:
    from clawrl_gym.config import RayConfig

    try:
        config = RayConfig.of({"address": text}, "ray.")
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not config.is_joined or ":" not in text:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected HOST:PORT")
    return text


def _port(text: str) -> int:
    number = _count(text)
    if not 0 < number < 65536:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected 1 to 65535")
    return number


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number, 0 or more")
    return int(text)


class _Stopped(BaseException):
    """Stopped by a signal."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)


def _interrupt(number: int, frame: object) -> NoReturn:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # leaving takes its time, and is bounded
    raise _Stopped(number)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
