"""What the shaped link carries: the rate at which one plain TCP connection takes bytes from end to end.

This is the measure for all that runs over the link, because headers and acknowledgements take their part of
the shaped rate. As a program it is one end: `link_rate.py ROLE ADDRESS SECONDS DIRECTIONS`, with the role
`listen` or `call` and `one` direction (from the caller to the listener) or `both` at the same time. An end
that receives prints its rate as JSON.
"""

import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from answers import link_answer
from places import Namespaces
from processes import Command, run_together

PORT = 29400
CHUNK = 1 << 20
WARM_UP = 0.2
"""Seconds after the first byte that do not count: the connection finds its window."""
CONNECT_SECONDS = 20.0


def bytes_per_second(place: Namespaces, directions: str, seconds: float, timeout: float) -> float:
    """Measures the link with the two ends in their namespaces: the slower of the directions."""
    tail = [place.addresses[0], f"{seconds:g}", directions]
    commands = [
        Command(
            f"link_rate.py {role}", place.inside(rank, [sys.executable, str(Path(__file__)), role, *tail])
        )
        for rank, role in enumerate(("listen", "call"))
    ]
    outputs = run_together(commands, timeout)
    return min(link_answer("link_rate.py", output)["bytes_per_second"] for output in outputs if output)


def send(connection: socket.socket, seconds: float) -> None:
    """Sends for some seconds and says so by closing this direction."""
    chunk, until = bytes(CHUNK), time.monotonic() + WARM_UP + seconds
    while time.monotonic() < until:
        connection.sendall(chunk)
    connection.shutdown(socket.SHUT_WR)


def receive(connection: socket.socket) -> float:
    """Bytes a second that arrived after the warm-up, until the peer's end."""
    buffer, total = bytearray(CHUNK), 0
    connection.recv_into(buffer)
    begin = time.monotonic() + WARM_UP
    first = last = None
    while count := connection.recv_into(buffer):
        now = time.monotonic()
        if first is None:
            first = now if now >= begin else None
            continue
        total, last = total + count, now
    if first is None or last is None or last <= first:
        raise SystemExit("the connection ended before anything could be measured: give more seconds")
    return total / (last - first)


def connected(role: str, address: str) -> socket.socket:
    """The one connection; the caller tries until the listener is there."""
    if role == "listen":
        with socket.create_server((address, PORT)) as listener:
            listener.settimeout(CONNECT_SECONDS)
            return listener.accept()[0]
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=1)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def main(role: str, address: str, seconds: str, directions: str) -> None:
    listens, both = role == "listen", directions == "both"
    with connected(role, address) as connection, ThreadPoolExecutor(2) as threads:
        connection.settimeout(CONNECT_SECONDS + float(seconds))
        received = threads.submit(receive, connection) if listens or both else None
        sent = threads.submit(send, connection, float(seconds)) if not listens or both else None
        if sent:
            sent.result()
        if received:
            print(json.dumps({"bytes_per_second": received.result()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
