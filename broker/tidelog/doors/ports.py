"""Ports for brokers that come and go: free now, and nobody else's while one of them is away."""

# ruff: noqa: PLC0415 - asyncio and socket are imported by who starts a cluster

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socket import socket

    from tidelog.seams import Listener, Runtime

__all__ = ["Ports"]

RANGE = (15_000, 32_768)
TAKEN_MAX = 1000


class Ports:
    """The ports of one cluster, claimed until `release`.

    A broker that was killed listens nowhere: without a claim another cluster could be given its
    port meanwhile. A claim is a name in the abstract namespace of this machine's Unix sockets,
    which goes with the process; systems that have none do without.
    """

    def __init__(self) -> None:
        self._claims: list[socket] = []

    async def take(self, runtime: Runtime, host: str, count: int) -> list[int]:
        """Ports that nobody listens on at this moment. OSError if none can be had on that host.

        None of those that systems give to outgoing connections (32768 and up): a node that is away
        for a while finds its own as it left it.
        """
        import asyncio
        import errno

        listeners: dict[int, Listener] = {}
        taken = 0
        try:
            while len(listeners) < count:
                port = int(runtime.rng.uniform(*RANGE))
                if port in listeners:
                    continue
                try:
                    if not self._claim(port):
                        raise OSError(errno.EADDRINUSE, "claimed")
                    listeners[port] = await runtime.network.listen(host, port, asyncio.Protocol)
                except OSError as error:
                    taken += 1
                    if error.errno != errno.EADDRINUSE or taken == TAKEN_MAX:
                        raise
            return list(listeners)
        finally:
            for listener in listeners.values():
                listener.close()

    def _claim(self, port: int) -> bool:
        """Whether nobody else on this machine claims the port."""
        import socket
        import sys

        if sys.platform != "linux":
            return True
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0tidelog-port-{port}")
        except OSError:
            claim.close()
            return False
        self._claims.append(claim)
        return True

    def release(self) -> None:
        """Claim none of them any more."""
        claims, self._claims = self._claims, []
        for claim in claims:
            claim.close()
