"""tidelog: a Kafka-compatible broker in pure Python.

    with tidelog.run() as cluster:              # a broker in its own process
        print(cluster.bootstrap_servers)

    async with tidelog.Cluster() as cluster:    # a broker in this event loop
        ...

The rooms, outermost first; each imports only rooms below it:

    __main__.py, cli/                       command line
    doors/, pytest_plugin.py                entry points: run(), Cluster, one node, a client
    server.py, assembly.py, maintenance.py  composition root, its handlers and its timers
    membership/                             registers this broker with the active controller
    connections.py, connection.py           sockets to frames, answers in order
    api/                                    one file per API family
    dispatch.py                             frames to handlers
    groups/, internal_topics.py             consumer groups and the topics they are kept in
    controller/                             decisions about the cluster
    replication/                            partitions, and the requests parked on them
    quorum/                                 elects the active controller
    metadata/                               the cluster's metadata
    peers.py                                requests to another broker
    config/                                 settings by Kafka's names
    seams.py                                time, network, threads and randomness

Modules are imported on first use, so that `import tidelog` costs almost nothing.
"""

# ruff: noqa: PLC0415 - imports wait behind the door

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tidelog.doors.cluster import Cluster, ClusterError, RunningCluster, run

__all__ = ["Cluster", "ClusterError", "RunningCluster", "__version__", "run"]

__version__: str


def __getattr__(name: str) -> Any:
    """Import an entry point on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tidelog")
    if name in __all__:
        from tidelog.doors import cluster

        return getattr(cluster, name)
    raise AttributeError(f"module 'tidelog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
