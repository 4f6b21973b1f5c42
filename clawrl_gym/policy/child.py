"""The process that becomes vLLM's server: `python -m clawrl_gym.policy.child <vLLM's arguments>`.

It dies with the process that started it, and so does everything it starts. On the CPU build the
engine is forked from the server, which has already imported everything, instead of being spawned:
that halves start-up time and memory. It must be started from a thread that lives as long as the
server shall.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

PARENT_VARIABLE = "CLAWRL_PARENT_PID"
"""Environment variable with the pid of the process that the server belongs to."""

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process as soon as its parent has died, however it died."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def fork_the_engine() -> None:
    """Let vLLM's CPU platform fork its engine process, as vLLM does by default elsewhere.

    The platform asks for `spawn` because an OpenMP pool does not survive a fork; this server runs
    no parallel region before it forks.
    """
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    class ForkingCpuPlatform(CpuPlatform):  # type: ignore[misc]
        @classmethod
        def check_and_update_config(cls, vllm_config: Any) -> None:
            super().check_and_update_config(vllm_config)
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    vllm.platforms.current_platform = ForkingCpuPlatform()


def main() -> None:
    """Run vLLM's server in this process."""
    if os.getppid() != int(os.environ.get(PARENT_VARIABLE, os.getppid())):
        sys.exit("the process that started this server is gone")
    os.register_at_fork(after_in_child=die_with_parent)
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        fork_the_engine()
    from vllm.entrypoints.launchers.api_server.entry import main as serve

    serve()


if __name__ in ("__main__", "__mp_main__"):  # the second in every process that vLLM spawns
    die_with_parent()
if __name__ == "__main__":
    main()
