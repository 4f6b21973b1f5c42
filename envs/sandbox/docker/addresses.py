"""Where a Docker engine may answer, and which of these places does.

A place that the user names (DOCKER_HOST, DOCKER_CONTEXT) is the only one that is asked. Else in
turn: the engine of this folder (`make engine`), the current docker context, and the sockets where
Docker listens by itself. Starts nothing, and needs no package.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from clawrl_gym.core.installation import make_command

FOLDER = ".docker"
"""Where `make engine` keeps its engine, below the checkout or the current folder."""
_HOST_FILE = "host"
"""File in that folder: the engine's address, as docker/engine.sh writes it."""
_SYSTEM_SOCKET = Path("/var/run/docker.sock")
_KNOCK_S = 10.0
_CONNECT_S = 3.0
"""Seconds for a connection to another machine."""
_PING = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n"
_PORT = 2375
_WRAPPED = (
    "got an engine over {way}, expected unix://PATH or tcp://HOST:PORT without TLS, for a"
    " container's shell is spoken with over the bare connection; forward the engine's socket:"
    " ssh -NL /tmp/docker.sock:/var/run/docker.sock USER@HOST, DOCKER_HOST=unix:///tmp/docker.sock"
)
_NOTHING = "no such socket"
_TLS_KEYS = ("DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
_DEFAULT_CONTEXT = "default"


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """A place where an engine may answer."""

    url: str
    origin: str
    """Origin of the address, in words."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that Docker's clients read too: DOCKER_CERT_PATH, DOCKER_TLS_VERIFY."""
    problem: str = ""
    """Why it cannot be asked at all."""

    def __str__(self) -> str:
        return f"{self.origin} ({self.url})" if self.url else self.origin


@dataclass(frozen=True, slots=True)
class EngineSearch:
    """Result of looking for an engine."""

    address: EngineAddress | None
    """The first that answers."""
    failures: tuple[str, ...]
    """The places before it, each with why it does not answer."""
    named: bool
    """The user says where, so nothing else will do."""

    @property
    def troubles(self) -> list[str]:
        """The failures of places where there is something."""
        return [failure for failure in self.failures if not failure.endswith(_NOTHING)]

    def refusal(self) -> str:
        """Why there is none, and what to do."""
        return f"no Docker engine answers: {'; '.join(self.failures)}; {cure()}"


def find_engine() -> EngineSearch:
    """Ask each place in turn; the first answer counts."""
    failures: list[str] = []
    named = _naming_key() is not None
    for address in engine_addresses():
        failure = address.problem or _wrapped(address) or knock(address.url)
        if not failure:
            return EngineSearch(address, tuple(failures), named)
        failures.append(f"{address}: {failure}")
    return EngineSearch(None, tuple(failures), named)


def engine_addresses() -> Iterator[EngineAddress]:
    """The places, in the order in which they are asked."""
    host, context = os.environ.get("DOCKER_HOST"), os.environ.get("DOCKER_CONTEXT")
    if host:
        tls = {name: os.environ[name] for name in _TLS_KEYS if name in os.environ}
        yield EngineAddress(host, "DOCKER_HOST", tls)
    elif context:
        yield _context_address(context, "DOCKER_CONTEXT")
    else:
        yield from _folder_addresses()
        current = _current_context()
        if current != _DEFAULT_CONTEXT:
            yield _context_address(current, "the docker context")
        yield _system_address()
        runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
        if Path(runtime).is_dir():
            yield EngineAddress(f"unix://{runtime}/docker.sock", "a rootless engine")


def _wrapped(address: EngineAddress) -> str:
    """Why an engine is refused whose connection carries more than bytes; empty when it is bare."""
    scheme = address.url.partition("://")[0]
    if scheme == "ssh":
        return _WRAPPED.format(way="ssh")
    has_tls = any(address.environment.get(name) for name in _TLS_KEYS)
    if scheme == "https" or (has_tls and scheme not in ("unix", "http+unix")):
        return _WRAPPED.format(way="TLS")
    return ""


def knock(url: str) -> str:
    """Why no engine answers there; empty when one does, or when only a client can tell."""
    scheme, _, rest = url.rpartition("://")
    if scheme in ("unix", "http+unix"):
        return _failure(lambda: _ping(rest), rest)
    if scheme in ("", "tcp", "http"):
        return _failure(lambda: _connect(rest), rest)
    return "expected unix://PATH or tcp://HOST:PORT"


def cure() -> str:
    """Commands that provide an engine on this machine, ready to type, and those that need none."""
    words = []
    key = _naming_key()
    if key is not None:
        words.append(f"mend {key}, or unset it to have the usual places asked")
    words.append(f"to start one of this folder's own: {start_command()}")
    words.append("sandbox=bubblewrap needs no engine")
    return "; ".join(words)


def _naming_key() -> str | None:
    """The variable in which the user says where the engine is."""
    return next((key for key in ("DOCKER_HOST", "DOCKER_CONTEXT") if os.environ.get(key)), None)


def start_command() -> str:
    """Command to start an engine below the checkout or the current folder, for root or by sudo."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    script = sudo + shlex.quote(str(_checkout() / "docker" / "engine.sh"))
    make = make_command("engine")
    return f"{sudo}{make}" if make else f"{script} install && {script} start {FOLDER}"


def _checkout() -> Path:
    """The folder that holds docker/: the checkout, or the installed package."""
    return Path(__file__).resolve().parents[3]


def _folder_addresses() -> Iterator[EngineAddress]:
    for folder in dict.fromkeys((Path.cwd() / FOLDER, _checkout() / FOLDER)):
        path = folder / _HOST_FILE
        try:
            url = path.read_text().strip()
        except FileNotFoundError:
            continue
        except OSError as error:
            yield EngineAddress("", f"the engine of {folder}", problem=str(error))
            continue
        yield EngineAddress(url, f"the engine of {folder}")


def _system_address() -> EngineAddress:
    return EngineAddress(f"unix://{_SYSTEM_SOCKET}", "the system's engine")


def _docker_config() -> Path:
    """Where Docker's own client keeps what it was told."""
    return Path(os.environ.get("DOCKER_CONFIG") or "~/.docker").expanduser()


def _current_context() -> str:
    try:
        client_config = json.loads((_docker_config() / "config.json").read_text())
        return str(client_config.get("currentContext") or _DEFAULT_CONTEXT)
    except (OSError, ValueError, AttributeError):  # the user's own and none of our business
        return _DEFAULT_CONTEXT


def _context_address(name: str, origin: str) -> EngineAddress:
    if name == _DEFAULT_CONTEXT:
        return _system_address()
    origin = f"{origin} {name!r}"
    folder, key = _docker_config() / "contexts", hashlib.sha256(name.encode()).hexdigest()
    try:
        meta = json.loads((folder / "meta" / key / "meta.json").read_text())
        endpoint = meta["Endpoints"]["docker"]
        url, skips_verify = str(endpoint["Host"]), bool(endpoint.get("SkipTLSVerify"))
    except FileNotFoundError:
        return EngineAddress("", origin, problem="there is none of that name; docker context ls")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return EngineAddress("", origin, problem=f"it cannot be read: {error!r}")
    certificates = folder / "tls" / key / "docker"
    tls = {"DOCKER_CERT_PATH": str(certificates)} if certificates.is_dir() else {}
    if tls and not skips_verify:
        tls["DOCKER_TLS_VERIFY"] = "1"
    return EngineAddress(url, origin, tls)


def _ping(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_KNOCK_S)
        client.connect(path)
        client.sendall(_PING)
        answer = client.recv(1024).decode(errors="replace").partition("\r\n")[0]
    return "" if " 200 " in f"{answer} " else f"answers {answer[:60]!r}, expected Docker's ping"


def _connect(place: str) -> str:
    parts = urlsplit(f"//{place}")
    with socket.create_connection((parts.hostname, parts.port or _PORT), _CONNECT_S):
        return ""


def _failure(ask: Callable[[], str], place: str) -> str:
    try:
        return ask()
    except FileNotFoundError:
        return _NOTHING
    except PermissionError:
        return f"permission denied; {_permission_cure(place)}"
    except ConnectionRefusedError:
        return "nobody listens there, so its engine has ended"
    except TimeoutError:
        return "no answer in time"
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)


def _permission_cure(path: str) -> str:
    try:
        group = Path(path).group()
    except (OSError, KeyError):
        group = "docker"
    if group == "root":
        return "only root may ask it"
    user = shlex.quote(getpass.getuser())
    return f"have root type `usermod -aG {group} {user}` and log in again (`newgrp {group}` here)"
