"""Where processes listen."""

import ipaddress
from collections.abc import Collection

import psutil


def listening(pids: Collection[int]) -> set[tuple[str, str]]:
    """Name and address of each TCP socket on which one of the processes listens."""
    return {
        (psutil.Process(socket.pid).name(), socket.laddr[0])
        for socket in psutil.net_connections("inet")
        if socket.pid in pids and socket.status == psutil.CONN_LISTEN and socket.laddr
    }


def is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
