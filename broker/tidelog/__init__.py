"""tidelog: a Kafka-compatible broker in pure Python.

    with tidelog.run() as cluster:              # a broker in its own process
        print(cluster.bootstrap_servers)

    async with tidelog.Cluster() as cluster:    # a broker in this event loop
        ...

The rooms, outermost first; each imports only rooms below it:

    __main__.py, cli/          the command line
    testing/                   helpers of tests that need another library: containers
    embedded/, pytest_plugin.py  entry points: run(), Cluster, one node, a client
    simulation/                brokers in one deterministic loop, with simulated machines
    control/                   what tests ask of running brokers: faults, actions, state
    server.py                  the composition root: builds a broker and stops it
    foundation.py              what `server.py` needs first: listeners, logs, settings
    membership.py              builds the parts that talk to other nodes
    disk_watch.py              what a broker does when its disk fails
    dynamic_settings.py        tells parts of a broker of settings that change while it runs
    maintenance.py             timers: flush, retention, compaction, checkpoints
    healing/                   finds and repairs damaged logs and remote segments
    publisher.py               calls what follows the cluster's metadata, in one order
    assembly.py                the handlers of each listener
    authorization/             what each API asks the authorizer for
    api/                       one file per API family
    shares/                    share partitions: records for share consumers
    coordinators/, tiered/     groups and transactions; the remote tier
    replication/               partitions, followers, and the requests parked on them
    quotas/                    how much clients may use, and have used
    cluster/                   metadata, quorum, controller, this broker's life cycle
    network/                   sockets to frames, frames to handlers, requests to other brokers
    security/                  identities of clients, and how connections prove them
    metrics/, config/          Kafka's metrics; settings by Kafka's names
    runtime.py, descriptors.py, handshakes.py, watchdog.py  the real seams; TLS; slow callbacks
    timeline.py                the time of a broker's work, which a tester may move
    awaiting.py, turns.py      ways to await; work in parts
    java_order.py              Java's hash of strings, and the order of its hash maps and heaps
    start_error.py, seams.py   errors of a start; the seams themselves

Modules are imported on first use, so that `import tidelog` costs almost nothing.
"""

# ruff: noqa: PLC0415 - imports wait behind the door

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tidelog.control.errors import ControlError
    from tidelog.embedded.cluster import Cluster, ClusterError
    from tidelog.embedded.running import RunningCluster, run
    from tidelog.start_error import StartError
    from tidelog_storage.base_error import TidelogError
    from tidelog_storage.config_key import ConfigError

__all__ = [
    "Cluster",
    "ClusterError",
    "ConfigError",
    "ControlError",
    "RunningCluster",
    "StartError",
    "TidelogError",
    "__version__",
    "run",
]

# The modules of the names that `embedded.cluster` does not have.
_HOMES = {
    "ConfigError": "tidelog_storage.config_key",
    "ControlError": "tidelog.control.errors",
    "RunningCluster": "tidelog.embedded.running",
    "StartError": "tidelog.start_error",
    "TidelogError": "tidelog_storage.base_error",
    "run": "tidelog.embedded.running",
}

__version__: str


def __getattr__(name: str) -> Any:
    """Import an entry point on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tidelog")
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(_HOMES.get(name, "tidelog.embedded.cluster")), name)
    raise AttributeError(f"module 'tidelog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
