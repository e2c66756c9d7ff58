"""Channels to the controllers of a quorum, whose voters the log may name (KIP-853).

An address is that of a voter in the log, or of a leader that another node has named, or one of
the settings: `controller.quorum.voters`, or `controller.quorum.bootstrap.servers`, which have ids
from -2 down, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.network.peers import Channels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.network.peers import PeerChannel

__all__ = ["Addresses", "ControllerChannels"]

BOOTSTRAP_ID = -2  # of the first server; the next ones are below
LEARNED_MAX = 16  # leaders named by other nodes: the latest are kept


class Addresses:
    """The addresses of the other controllers by node id."""

    def __init__(
        self,
        metadata: MetadataLog,
        listener: str,
        bootstrap: Sequence[tuple[str, int]],
        voters: Mapping[int, tuple[str, int]] | None = None,
    ) -> None:
        """`listener` is the name of the controllers' listener, `voters` those of the settings."""
        assert metadata.own_entry is not None
        self._own_id = metadata.own_entry.node_id
        self._metadata = metadata
        self._listener = listener
        self._bootstrap = {BOOTSTRAP_ID - n: address for n, address in enumerate(bootstrap)}
        self._bootstrap |= voters or {}
        self._learned: dict[int, tuple[str, int]] = {}

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Note a leader's address that another node has named."""
        if node_id >= 0 and host and port:
            self._learned.pop(node_id, None)
            self._learned[node_id] = (host, port)
            if len(self._learned) > LEARNED_MAX:
                del self._learned[next(iter(self._learned))]

    def all(self) -> dict[int, tuple[str, int]]:
        """Return them; the log's are the last word, and those of the settings count more than a
        leader's own, which another machine may see otherwise."""
        found = {**self._learned, **self._bootstrap}
        for voter in self._metadata.voter_set:
            address = voter.address(self._listener)
            if address is not None:
                found[voter.node_id] = address
        found.pop(self._own_id, None)
        return found

    def of_settings(self) -> Mapping[int, tuple[str, int]]:
        """Return those that the settings give."""
        return self._bootstrap

    def of(self, node_id: int) -> tuple[str, int] | None:
        """Return a controller's address, None if it is unknown."""
        return self.all().get(node_id)


class ControllerChannels(Mapping[int, "PeerChannel"]):
    """A channel to each controller with a known address; its keys change with the addresses."""

    def __init__(
        self, addresses: Addresses, new_channel: Callable[[str, int], PeerChannel]
    ) -> None:
        self._addresses = addresses
        self._channels = Channels(new_channel, addresses.of)

    def __getitem__(self, node_id: int) -> PeerChannel:
        if self._addresses.of(node_id) is None:
            raise KeyError(node_id)
        return self._channels.to(node_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._addresses.all())

    def __len__(self) -> int:
        return len(self._addresses.all())
