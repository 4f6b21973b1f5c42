"""One Chromium: which program it is, its flags, and its start in isolation."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clawrl_gym.core import errors
from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.installation import how_to_have_chromium
from clawrl_gym.envs.gui.browser.memory import require_cgroups
from clawrl_gym.envs.gui.browser.supervisor import SupervisorSettings
from clawrl_gym.envs.gui.config import BrowserConfig
from clawrl_gym.envs.sandbox import kernel

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

_START_S = 30.0
_HEAP_MB = 256
"""Most that one page's script may keep; beyond it, its renderer ends."""
_CURE_ISOLATION = (
    "; or accept that pages run on this host unconfined, with browser.unsafe_no_isolation=true"
)
# A bare package in place of ours, whose own __init__ registers environments and imports numpy.
_PROGRAM = """\
import sys, types
package = types.ModuleType("clawrl_gym")
package.__path__ = sys.argv.pop(1).split(":")
sys.modules["clawrl_gym"] = package
from clawrl_gym.envs.gui.browser.supervisor import main
main()
"""
_FLAGS = (
    "--disable-gpu",
    "--disable-3d-apis",
    "--disable-domain-reliability",
    "--disable-file-system",
    "--disable-notifications",
    "--disable-print-preview",
    "--disable-speech-api",
    "--dns-prefetch-disable",
    "--no-pings",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    f"--js-flags=--max-old-space-size={_HEAP_MB}",
)


@dataclass(frozen=True, slots=True)
class Started:
    """A browser that runs."""

    browser: Browser
    listener: socket.socket | None
    """Socket of its proxy, in its own network namespace; None without isolation."""


def find(options: BrowserConfig, downloaded: str = "") -> str:
    """The program to start; `downloaded`: where Playwright keeps its own. Raises ConfigError."""
    if options.executable is not None:
        program = shutil.which(options.executable)
        if program is None:
            raise ConfigError(
                f"got browser.executable={options.executable!r}, expected a program; to have one: "
                + how_to_have_chromium()
            )
        return os.path.realpath(program)
    for candidate in _candidates(downloaded):
        if os.access(candidate, os.X_OK):
            return os.path.realpath(candidate)
    raise ConfigError(f"no Chromium is installed: {how_to_have_chromium()}")


def _candidates(downloaded: str) -> Iterator[str]:
    yield "/usr/lib/chromium/chromium-headless-shell"
    if downloaded:
        cache = Path(downloaded).parents[2]
        for shell in sorted(
            cache.glob("chromium_headless_shell-*/*/*headless*shell"), reverse=True
        ):
            yield str(shell)
        yield downloaded
    yield "/usr/lib/chromium/chromium"  # what /usr/bin/chromium, a script, starts


async def launch(playwright: Playwright, options: BrowserConfig) -> Started:
    """Start a browser. Raises ConfigError or EnvError, saying the cure."""
    executable = find(options, playwright.chromium.executable_path)
    bwrap = None if options.unsafe_no_isolation else _bubblewrap()
    if options.memory_mb is not None:
        require_cgroups()
    with ExitStack() as stack:
        handover_name = f"clawrl-{secrets.token_hex(16)}"
        handover = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        handover.bind("\0" + handover_name)
        handover.listen(1)
        handover.settimeout(_START_S)
        settings: SupervisorSettings = {
            "owner": os.getpid(),
            "executable": executable,
            "bwrap": bwrap,
            "memory_mb": options.memory_mb,
            "handover_name": handover_name,
        }
        folder = stack.enter_context(Scratch("browser"))
        starter = await asyncio.to_thread(_write_starter, folder, settings)
        browser = await _start(playwright, starter, isolated=bwrap is not None)
        try:
            listener = None if bwrap is None else await asyncio.to_thread(_receive, handover)
        except BaseException:
            await browser.close()
            raise
    return Started(browser, listener)


def _bubblewrap() -> str:
    bwrap = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    if bwrap is None:
        raise ConfigError("bwrap not found: `apt-get install bubblewrap`" + _CURE_ISOLATION)
    return bwrap


async def _start(playwright: Playwright, starter: Path, *, isolated: bool) -> Browser:
    from playwright.async_api import Error

    try:
        return await playwright.chromium.launch(
            executable_path=starter,
            args=list(_FLAGS),
            artifacts_dir=starter.parent,  # nothing is written there: it may go at once
            chromium_sandbox=isolated,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=_START_S * 1e3,
        )
    except Error as error:
        from clawrl_gym.envs.sandbox.isolation import cure_for

        reason = _program_output(str(error))
        cure = cure_for(reason) + _CURE_ISOLATION if isolated else how_to_have_chromium()
        raise EnvError(f"chromium did not start: {reason}; {cure}") from error


def _program_output(message: str) -> str:
    """The program's own output, out of the driver's long report."""
    lines = [line.partition("[err]")[2].strip() for line in message.splitlines() if "[err]" in line]
    return " / ".join(lines[-3:])[-500:] or message.strip().splitlines()[0][:500]


def _write_starter(folder: Path, settings: SupervisorSettings) -> Path:
    """Playwright starts one file, without arguments before its own."""
    path = ":".join(_package_path())
    supervisor = [sys.executable, "-I", "-S", "-c", _PROGRAM, path, json.dumps(settings)]
    starter = folder / "chromium"
    starter.write_text(f'#!/bin/sh\nexec env -i {shlex.join(supervisor)} "$@"\n')
    starter.chmod(0o700)
    return starter


def _package_path() -> list[str]:
    """The package's folder, and where else it may lie when it is installed for editing."""
    package = Path(errors.__file__).parents[1]
    return list(dict.fromkeys([str(package), *map(str, sys.modules["clawrl_gym"].__path__)]))


def _receive(handover: socket.socket) -> socket.socket:
    """The listening socket that the supervisor made; only this user's processes know its name."""
    try:
        connection, _ = handover.accept()
        with connection:
            connection.settimeout(_START_S)
            _, fds = kernel.receive(connection, 64, 1)
    except OSError as error:
        raise EnvError(f"chromium's network namespace was not handed over: {error}") from error
    if not fds:
        raise EnvError("chromium's network namespace was not handed over")
    return socket.socket(fileno=fds[0])
