"""Imported by a process of the tests.

It ends where a socket is to connect to another machine, and says to which.
"""

import socket
from typing import Any, Never


def _refused(_: socket.socket, address: Any) -> Never:
    raise SystemExit(f"a connection to {address}")


socket.socket.connect = _refused
socket.socket.connect_ex = _refused
