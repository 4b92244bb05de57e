"""A network switch that delays every frame: it gives the links of ``bench.hosts`` their latency.

``python -m mpicomp.lab.bench.relay SECONDS INTERFACE...`` forwards between the interfaces until it is killed.
Linux has a queueing discipline for this, netem, but not every kernel is built with it.

Frames are read and sent raw, with a header that says which part of their checksum and segmentation is still
to be done (``PACKET_VNET_HDR``).  So a bulk transfer arrives in frames of up to 64 KB, and the relay keeps
pace with it.  A frame that finds a full queue at its port is dropped, as by any switch.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections import deque
from contextlib import suppress

# Constants of <linux/if_packet.h> and <asm/socket.h> that Python does not name.
_SOL_PACKET, _VNET_HDR, _IGNORE_OUTGOING, _SNDBUFFORCE, _RCVBUFFORCE = 263, 15, 23, 32, 33
_ALL_PROTOCOLS = 3
_HEADER = 10  # bytes of struct virtio_net_hdr
_QUEUE = 32 * 2**20


def relay(delay: float, interfaces: list[str]) -> None:
    """Forward each frame ``delay`` seconds after its arrival; never returns."""
    ports = [_port(name) for name in interfaces]
    port_of: dict[bytes, socket.socket] = {}  # the port of each Ethernet address seen
    waiting: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for port in select.select(ports, [], [], patience)[0]:
            with suppress(BlockingIOError):
                while True:
                    frame = port.recv(2**17)
                    port_of[frame[_HEADER + 6 : _HEADER + 12]] = port
                    waiting.append((time.monotonic() + delay, port, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, source, frame = waiting.popleft()
            known = port_of.get(frame[_HEADER : _HEADER + 6])
            for port in (known,) if known else (port for port in ports if port is not source):
                with suppress(OSError):
                    port.send(frame)


def _port(interface: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # no protocol: receives nothing before bind
    port.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
    port.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _QUEUE)
    port.setsockopt(socket.SOL_SOCKET, _SNDBUFFORCE, _QUEUE)
    port.bind((interface, _ALL_PROTOCOLS))
    port.setblocking(False)
    return port


if __name__ == "__main__":
    relay(float(sys.argv[1]), sys.argv[2:])
