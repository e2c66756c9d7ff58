"""Brokers and an application in one deterministic loop: simulated time, network, disks, chance.

    tidelog.simulation.run(app, seeds=50, brokers=3)      # `async def app(simulation): ...`

    @pytest.mark.tidelog_simulation(seeds=50, brokers=3)
    async def test_orders(tidelog_simulation): ...

An application of its own asyncio code, with aiokafka as it is, runs while brokers and its processes
are killed, paused and cut off. A seed is a run, the same at each replay.

    search.py        run(): seeds in forks, the report of a failure
    pytest_door.py   the marker: a test as the application
    application.py   one run: application, faults, verdict
    world.py         what a run acts on: brokers, processes, invariants
    faults.py        what strikes, drawn from the seed
    processes.py     the application's processes and their lives
    shrinking.py     the shortest plan of faults that fails
    app_loop.py      the loop as an application sees it: connections, threads
    sealing.py       time, chance and the outside world of the process, while a run lasts
    machines.py      the machines of a cluster, and views of the brokers on them
    machine.py       one broker's seams and its lives: start, stop, kill, power failure
    shared_store.py  the remote tier: a directory that all brokers see
    loop.py          an asyncio loop with virtual time and a seeded order of what is ready
    network.py       in-memory transports: latency, torn deliveries, resets, slow readers, cuts
    disk.py          files that keep written and synced apart; deaths inside an operation
    disk_files.py    its open files and locks
    disk_trouble.py  failing disks: EIO, and pages that are gone afterwards
    descriptors.py   the file descriptors of a process
    timeline.py      the events of a run as lines

Modules are imported on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tidelog.simulation.application import Simulation
    from tidelog.simulation.faults import KINDS
    from tidelog.simulation.processes import Process
    from tidelog.simulation.sealing import SimulationRefusedError
    from tidelog.simulation.search import Searched, SimulationFailedError, run
    from tidelog.simulation.world import SimulationBrokenError

_HOMES = {
    "KINDS": "faults",
    "Process": "processes",
    "Searched": "search",
    "Simulation": "application",
    "SimulationBrokenError": "world",
    "SimulationFailedError": "search",
    "SimulationRefusedError": "sealing",
    "run": "search",
}
__all__ = [
    "KINDS",
    "Process",
    "Searched",
    "Simulation",
    "SimulationBrokenError",
    "SimulationFailedError",
    "SimulationRefusedError",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name in _HOMES:
        from importlib import import_module  # noqa: PLC0415 - behind the door

        return getattr(import_module(f"tidelog.simulation.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tidelog.simulation' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
