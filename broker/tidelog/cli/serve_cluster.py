"""Run the brokers of `tidelog serve`: in this process, or each in its own (`--isolated`).

Ready line, stop and exit codes are those of `serve.py`; the ready line names all brokers. With
`--until-stdin-ends`, lines of standard input are commands from the handles of `running.py`: `stop
ID`, `kill ID`, `start ID`, `add [RACK]`. The answer is one line on standard output: `tidelog done
bootstrap.servers=...` (with the new id for `add`), or `tidelog failed: REASON`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from tidelog.cli.ending import Ending, stop_within_limit
from tidelog.cli.heap import freeze, thaw
from tidelog.cli.streams import read_stdin, refuse, say
from tidelog.config.vocabulary import ConfigError
from tidelog.embedded.cluster import Cluster, ClusterError
from tidelog.embedded.cluster_settings import DONE_WORDS, FAILED_WORDS, READY_WORDS
from tidelog.start_error import StartError, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from tidelog.embedded.nodes import Node

__all__ = ["serve_cluster"]


def serve_cluster(settings: Mapping[str, str], options: argparse.Namespace, ending: Ending) -> int:
    """Serve until asked to stop; return the exit code."""
    level = options.log_level
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=level.upper(), format=form)
    is_alone = options.brokers == 1 and not options.isolated
    port = options.port
    if port is None and not (is_alone and "listeners" in settings):
        port = 9092
    try:
        cluster = Cluster(
            settings,
            brokers=options.brokers,
            isolated=options.isolated,
            racks=options.racks.split(",") if options.racks else None,
            host=options.host,
            port=port,
            data_dir=options.data_dir,
            temporary=options.temporary,
            log_level=level,
        )
        until_end = options.until_stdin_ends
        return ending.run(lambda: _serve(cluster, ending, until_stdin_ends=until_end))
    except ConfigError as error:
        return refuse(f"{error.key}: {error.message}")
    except (ClusterError, StartError) as error:
        return refuse(str(error))


async def _serve(cluster: Cluster, ending: Ending, *, until_stdin_ends: bool) -> int:
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    code = 0

    def tell(broker: Node[Any]) -> None:
        assert broker.failure is not None
        reason = one_line(broker.failure)
        left = ", ".join(str(other.node_id) for other in cluster.brokers if other.is_running)
        refuse(f"broker {broker.node_id} is gone: {reason}; still running: {left or 'none'}")

    def end() -> None:
        nonlocal code
        code = 1
        asked_to_stop.set()

    cluster.on_broker_failure, cluster.on_failure = tell, end
    if until_stdin_ends:
        loop.add_reader(0, read_stdin, ending.ask)
    await cluster.start()
    ending.started(asked_to_stop.set)
    freeze()
    orders = Orders(cluster, asked_to_stop) if until_stdin_ends else None
    say(f"{READY_WORDS}{cluster.bootstrap_servers}")
    await asked_to_stop.wait()
    if orders is not None:
        await orders.stop()
    try:
        try:
            with stop_within_limit():
                await cluster.stop_brokers()
        finally:
            # It has its own limit: many files to remove must not make a clean stop fail.
            with stop_within_limit():
                cluster.remove_temporary()
    except ClusterError:
        raise
    except Exception as error:  # noqa: BLE001 - the reason is one line
        return refuse(f"did not stop cleanly: {one_line(error)}")
    return code


class Orders:
    """Runs the commands for single brokers, one after the other."""

    def __init__(self, cluster: Cluster, asked_to_stop: asyncio.Event) -> None:
        self._cluster = cluster
        self._asked_to_stop = asked_to_stop
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._rest = b""
        loop = asyncio.get_running_loop()
        loop.add_reader(0, self._read)
        self._task = loop.create_task(self._run(), name="orders")

    def _read(self) -> None:
        data = os.read(0, 4096)
        if not data:
            asyncio.get_running_loop().remove_reader(0)
            self._asked_to_stop.set()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line.decode(errors="replace"))

    async def _run(self) -> None:
        while True:
            line = await self._lines.get()
            try:
                said = await self._obey(line.split())
            except Exception as error:  # noqa: BLE001 - reported to the parent
                said = " ".join(str(error).split()) or type(error).__name__
                say(f"{FAILED_WORDS}{said}")
            else:
                say(f"{DONE_WORDS}{self._servers()} {said}".rstrip())

    def _servers(self) -> str:
        try:
            return self._cluster.bootstrap_servers
        except ClusterError:
            return ""  # no broker is left

    async def _obey(self, words: list[str]) -> str:
        match words:
            case ["add", *rack]:
                added = await self._cluster.add_broker(rack=rack[0] if rack else None)
                return str(added.node_id)
            case ["stop" | "kill" | "start" as verb, node_id]:
                for node in self._cluster.brokers:
                    if str(node.node_id) == node_id:
                        await getattr(node, verb)()
                        thaw()
                        return ""
                raise ClusterError(f"no broker {node_id}")
        raise ClusterError(f"unknown command: {' '.join(words)}")

    async def stop(self) -> None:
        """Accept no more commands."""
        asyncio.get_running_loop().remove_reader(0)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
