"""The process that becomes vLLM's server: `python -m clawrl_gym.inference.vllm.process ARGUMENTS`.

It dies with the process that started it, and so does everything it starts. On the CPU build the
engine is forked from the server, which has already imported everything, instead of being spawned:
that halves start-up time and memory. It must be started from a thread that lives as long as the
server shall. Started with a socket, it is the fork server of one server after the other.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys

from clawrl_gym.core.processes.descendants import die_with_parent, forks_die_with_parent
from clawrl_gym.inference.vllm.objects import VllmConfig

PARENT_VARIABLE = "CLAWRL_PARENT_PID"
"""Environment variable with the pid of the process that the server belongs to."""
FORKSERVER_VARIABLE = "CLAWRL_FORKSERVER_FD"
"""Environment variable with the number of the socket on which servers are asked for."""


def fork_the_engine() -> None:
    """Let vLLM's CPU platform fork its engine process, as vLLM does by default elsewhere.

    The platform asks for `spawn` because an OpenMP pool does not survive a fork; this server runs
    no parallel region before it forks.
    """
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    class ForkingCpuPlatform(CpuPlatform):  # type: ignore[misc]
        @classmethod
        def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
            super().check_and_update_config(vllm_config)
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    vllm.platforms.current_platform = ForkingCpuPlatform()


def main() -> None:
    """Run vLLM's server in this process."""
    if os.getppid() != int(os.environ.get(PARENT_VARIABLE, os.getppid())):
        sys.exit("the process that started this server is gone")
    forks_die_with_parent()
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        fork_the_engine()
    from vllm.entrypoints.launchers.api_server.entry import main as serve

    descriptor = os.environ.pop(FORKSERVER_VARIABLE, None)
    if descriptor is None or forked_for(socket.socket(fileno=int(descriptor))):
        serve()


def forked_for(requests: socket.socket) -> bool:
    """Fork a server for every line that comes: True in the server, False when no more is asked.

    Answers with the server's pid and, when it has ended, with its exit code.
    """
    gc.freeze()  # what is imported stays shared: no collection touches it
    with requests, requests.makefile("rw") as lines:
        for _ in lines:
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                return True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpgid(pid, pid)  # here too: whoever is first
            lines.write(f"{pid}\n")
            lines.flush()
            _, status = os.waitpid(pid, 0)
            lines.write(f"{os.waitstatus_to_exitcode(status)}\n")
            lines.flush()
    return False


if __name__ in ("__main__", "__mp_main__"):  # the second in every process that vLLM spawns
    die_with_parent()
if __name__ == "__main__":
    main()
