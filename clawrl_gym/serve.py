"""python -m clawrl_gym.serve: serve a policy that learns from the conversations it has.

python -m clawrl_gym.serve policy=tiny gateway.port=8808 run.dir=runs/serve
python -m clawrl_gym.serve print_config=true      # the snippet for openclaw.json
python -m clawrl_gym.serve print_unit=true        # a systemd unit: docs/operating.md

It resumes with what is in run.dir. This process only holds the port and watches: what serves and
learns is a child, started again when it dies, while new connections wait.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterator

import clawrl_gym as cg
from clawrl_gym.core.errors import ClawError, NoRoom, first_of, lacks_room
from clawrl_gym.core.processes.descendants import die_with_parent
from clawrl_gym.core.processes.interrupt import HOLDING_S, INTERRUPTS
from clawrl_gym.run.command import command
from clawrl_gym.serving.supervisor import SOCKET_VARIABLE, listen, supervise


def _check(config: cg.ServeConfig) -> Iterator[str]:
    from clawrl_gym.preflight.dry_run import plan_lines
    from clawrl_gym.preflight.preflight import preflight_serving

    return plan_lines(preflight_serving(config))


async def _hold(config: cg.ServeConfig) -> int:
    """The first process: everything that can be wrong is found before the port is opened."""
    from clawrl_gym.preflight.preflight import preflight_of_run, preflight_serving
    from clawrl_gym.serving.clients import write_snippet
    from clawrl_gym.serving.service_unit import service_unit

    if config.print_config:
        sys.stdout.write(write_snippet(config))
        return 0
    if config.print_unit:
        sys.stdout.write(service_unit(config, sys.argv[1:]))
        return 0
    plan = await asyncio.to_thread(preflight_of_run, preflight_serving, config)
    INTERRUPTS.patience_s = HOLDING_S
    with listen(config.gateway) as sock, INTERRUPTS.goes_on(plan.folder.way_on("serve")):
        arguments = [sys.executable, "-m", "clawrl_gym.serve", *sys.argv[1:]]
        return await supervise(arguments, sock)


async def _serve(config: cg.ServeConfig) -> int:
    """The child: serves on the socket that the first process holds."""
    die_with_parent()
    INTERRUPTS.silent = True  # the first process says how it ended
    sock = socket.socket(fileno=int(os.environ[SOCKET_VARIABLE]))
    try:
        await cg.run_serving_async(config, sock)
    except (ClawError, BaseExceptionGroup) as error:
        if not lacks_room(error):
            raise
        raise NoRoom(str(first_of(error))) from error
    return 0


def _configure(arguments: list[str]) -> cg.ServeConfig:
    return cg.load_config(arguments, "serve")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    is_child = SOCKET_VARIABLE in os.environ
    return command("serve", __doc__, _configure, _check, _serve if is_child else _hold, arguments)


if __name__ == "__main__":
    sys.exit(main())
