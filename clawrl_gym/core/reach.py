"""Check that a server answers at an address, in a moment and without a request."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_PORTS = {"http": 80, "https": 443}


def why_unreachable(url: str, timeout_s: float = 2.0) -> str | None:
    """Why no connection to an http(s) address can be opened; None when one can.

    Behind a proxy this cannot be known without a request: that counts as reachable.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        return str(error)
    if not host or not port:
        return "expected an address with http:// or https://, such as http://127.0.0.1:8000/v1"
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return None
    return why_closed(host, port, timeout_s)


def silence(key: str, url: str) -> Iterator[str]:
    """The problem of the address that a key names, as a line for people: it is not an address, or
    no server answers."""
    if not url.startswith(("http://", "https://")):
        yield (
            f"got {key}={url!r}, expected an address with http:// or https:// and its /v1, such as "
            "http://127.0.0.1:8000/v1"
        )
        return
    why = why_unreachable(url)
    if why is not None:
        yield f"got {key}={url!r}, where no server answers ({why}): start that server first"


def why_closed(host: str, port: int, timeout_s: float = 2.0) -> str | None:
    """Why no connection to the port can be opened; None when one can."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
