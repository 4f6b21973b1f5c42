"""python -m clawrl_gym.serve: serve a policy that learns from the conversations it has.

python -m clawrl_gym.serve policy=tiny gateway.port=8808 run.dir=runs/serve
python -m clawrl_gym.serve print_config=true      # the snippet for openclaw.json

It goes on with what is in run.dir. This process only holds the port and watches: what serves and
learns is a child, started again when it dies, while new connections wait.
"""

from __future__ import annotations

import os
import socket
import sys

from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.run.command import print_help, run_command
from clawrl_gym.run.supervisor import SOCKET_VARIABLE, listen, supervise


def configure(arguments: list[str]) -> ServeConfig:
    """The configuration; `resume=` names the folder, which serving goes on with anyway."""
    config = compose("serve", arguments, ServeConfig)
    if config.resume is None:
        return config
    run = config.run.model_copy(update={"dir": config.resume})
    return config.model_copy(update={"run": run})


async def _hold(config: ServeConfig) -> int:
    """The first process: everything that can be wrong is found before the port is opened."""
    from clawrl_gym.run.serve import check, write_snippet

    folder = check(config)
    if config.print_config:
        sys.stdout.write(write_snippet(config, folder))
        return 0
    with listen(config.gateway) as sock:
        arguments = [sys.executable, "-m", "clawrl_gym.serve", *sys.argv[1:]]
        return await supervise(arguments, sock)


async def _serve(config: ServeConfig) -> int:
    """The child: serves on the socket that the first process holds."""
    from clawrl_gym.policy.vllm_process import die_with_parent
    from clawrl_gym.run.serve import serve

    die_with_parent()
    return await serve(config, socket.socket(fileno=int(os.environ[SOCKET_VARIABLE])))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        print_help("serve", __doc__ or "", ServeConfig)
        return 0
    is_child = SOCKET_VARIABLE in os.environ
    return run_command(lambda: configure(arguments), _serve if is_child else _hold)


if __name__ == "__main__":
    sys.exit(main())
