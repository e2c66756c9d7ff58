"""Where brokers listen: addresses that the user gives, and free ports, reserved while a broker is
away."""

# ruff: noqa: PLC0415 - asyncio and socket are imported when a cluster starts

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.control.errors import ClusterError

if TYPE_CHECKING:
    from socket import socket

    from tidelog.seams import Listener, Runtime

__all__ = ["Addresses", "Ports"]

RANGE = (15_000, 32_768)
TAKEN_MAX = 1000


class Addresses:
    """The host and ports that a user gives to the brokers of one cluster."""

    def __init__(
        self, host: str | None, port: int | Sequence[int] | None, brokers: int, *, is_listed: bool
    ) -> None:
        """`port` is that of the first broker, or each broker's. `is_listed`: the setting
        `listeners` has the address of a lone broker, and none may be given beside it."""
        self.host = host or "127.0.0.1"
        is_any = self.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        self.inner_host = "127.0.0.1" if is_any else self.host
        """Where brokers of this machine reach each other."""
        own = [] if port is None or isinstance(port, int) else list(port)
        first = port if isinstance(port, int) else 0
        if isinstance(port, Sequence) and len(own) != brokers:
            raise ClusterError(f"{len(own)} ports for {brokers} brokers")
        self.is_free = not first and not is_listed
        """Whether other ports may be tried."""
        given = port if port is None or isinstance(port, int) else own[0]
        self.lone = (host, given) if is_listed else (self.host, given or 0)
        """Host and port of a lone broker, as the user gave them."""
        self._ports = own or [first + index for index in range(brokers if first else 0)]

    def port_of(self, index: int) -> int | None:
        """Return the port of a broker of several; None for a free one."""
        return self._ports[index] if self._ports else None


class Ports:
    """The ports of one cluster, claimed until `release`.

    A killed broker listens nowhere, so without a claim another cluster could take its port. A claim
    is a name in the abstract namespace of this machine's Unix sockets, which ends with the process.
    Systems without that namespace have no claims.
    """

    def __init__(self) -> None:
        self._claims: list[socket] = []
        self._taken: list[int] = []
        self._before: list[int] = []  # of the claims released last, to be taken again

    async def take(self, runtime: Runtime, host: str, count: int) -> list[int]:
        """Return ports on which nothing listens now: those released last, in their order, as far
        as they are free, then others. OSError if that host has none.

        Ports of outgoing connections (32768 and up) are avoided, so that a connection cannot take
        the port of a node that is away.
        """
        import asyncio
        import errno

        listeners: dict[int, Listener] = {}
        wanted, self._before = self._before[:count], self._before[count:]
        taken = 0
        try:
            while len(listeners) < count:
                port = wanted.pop(0) if wanted else int(runtime.rng.uniform(*RANGE))
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
            self._taken += listeners
            return list(listeners)
        finally:
            for listener in listeners.values():
                listener.close()

    def _claim(self, port: int) -> bool:
        """Claim the port; return whether no other process on this machine has claimed it."""
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

    def forget(self) -> None:
        """Release all claims, and prefer no port: one of them was taken."""
        self.release()
        self._before = []

    def release(self) -> None:
        """Release all claims; the next `take` prefers their ports."""
        if self._taken:
            self._before, self._taken = self._taken, []
        claims, self._claims = self._claims, []
        for claim in claims:
            claim.close()
