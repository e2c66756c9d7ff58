"""Run the brokers of `tidelog serve`: in this process, or each in its own (`--isolated`).

Ready line, stop and exit codes are those of `serve.py`; the ready line names all brokers. With
`--until-stdin-ends`, lines of standard input are control calls from the handles of `running.py`,
and their answers are lines of standard output (`control/wire.py`). `--control` has the same calls
over HTTP (`control/http.py`).
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.cli.ending import (
    REMOVE_SECONDS_MAX,
    STOP_SECONDS_MAX,
    Ending,
    stop_within_limit,
)
from tidelog.cli.heap import freeze, thaw
from tidelog.cli.log_lines import set_up_logging
from tidelog.cli.streams import read_stdin, refuse, say
from tidelog.config.vocabulary import ConfigError
from tidelog.embedded.cluster import Cluster, ClusterError
from tidelog.embedded.cluster_settings import READY_WORDS
from tidelog.start_error import StartError, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from tidelog.control.http import HttpDoor
    from tidelog.control.wire import CallReader
    from tidelog.embedded.nodes import Node
    from tidelog.embedded.security import Security

__all__ = ["serve_cluster"]


def serve_cluster(settings: Mapping[str, str], options: argparse.Namespace, ending: Ending) -> int:
    """Serve until asked to stop; return the exit code."""
    set_up_logging(options.log_level, options.log_format)
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
            security=_security(options),
            log_level=options.log_level,
            log_format=options.log_format,
        )
        if options.control is None:
            return ending.run(lambda: _serve(cluster, ending, options))
        door = _door(cluster, options.control)
        return ending.run(lambda: _serve_with(door, cluster, ending, options))
    except ConfigError as error:
        return refuse(f"{error.key}: {error.message}")
    except (ClusterError, StartError) as error:
        return refuse(str(error))


def _security(options: argparse.Namespace) -> Security | None:
    if options.security is None:
        return None
    from tidelog.embedded.security import Security  # noqa: PLC0415 - few ask for it

    bad_port: int | None = options.bad_certificates
    return Security(options.security, options.security_dir, bad_port=bad_port)


def _door(cluster: Cluster, address: str) -> HttpDoor:
    """Return the HTTP door; StartError if it cannot be had."""
    try:
        from tidelog.control.http import Address, HttpDoor  # noqa: PLC0415 - an extra, and 0.1 s
    except ModuleNotFoundError as error:
        raise StartError(
            f"--control: needs {error.name} (pip install 'tidelog[control]')"
        ) from error
    return HttpDoor(
        Address.parse(address, os.environ.get("TIDELOG_CONTROL_TOKEN")),
        partial(_perform, cluster),
    )


async def _serve_with(
    door: HttpDoor, cluster: Cluster, ending: Ending, options: argparse.Namespace
) -> int:
    """Serve with the HTTP door, which listens first: a taken port is known before files change."""
    await door.start()
    try:
        return await _serve(cluster, ending, options, door)
    finally:
        await door.stop()


async def _serve(
    cluster: Cluster, ending: Ending, options: argparse.Namespace, door: HttpDoor | None = None
) -> int:
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
    if options.until_stdin_ends:
        loop.add_reader(0, read_stdin, ending.ask)
    await cluster.start()
    ending.started(asked_to_stop.set)
    freeze()
    calls = _control(cluster, asked_to_stop.set) if options.until_stdin_ends else None
    control = "" if door is None else f" control={door.url}"
    say(f"{READY_WORDS}{cluster.bootstrap_servers}{control}")
    if options.security is not None and calls is None:
        _tell_clients(cluster)
    await asked_to_stop.wait()
    if calls is not None:
        await calls.stop()
    if door is not None:
        await door.stop()  # a call that starts a broker is cancelled, and so undone
    try:
        try:
            more = cluster.leave_seconds_max + cluster.flush_seconds_max
            with stop_within_limit(STOP_SECONDS_MAX + more):
                await cluster.stop_brokers()
        finally:
            # It has its own limit: many files to remove must not make a clean stop fail.
            with stop_within_limit(REMOVE_SECONDS_MAX):
                cluster.remove_temporary()
    except ClusterError:
        raise
    except Exception as error:  # noqa: BLE001 - the reason is one line
        return refuse(f"did not stop cleanly: {one_line(error)}")
    return code


def _tell_clients(cluster: Cluster) -> None:
    """Print the command that prints what clients of a cluster with security need."""
    import shlex  # noqa: PLC0415 - with security alone

    folder = cluster.security.folder
    assert folder is not None
    words = ["tidelog", "client-config", "java", "--security-dir", folder]
    say(f"clients need: {shlex.join([*words, '-b', cluster.bootstrap_servers])}")


def _control(cluster: Cluster, at_end: Callable[[], None]) -> CallReader:
    """Perform the calls on standard input, which come from the handles of `running.py`."""

    from tidelog.control.wire import CallReader  # noqa: PLC0415 - for handles alone

    async def perform(call: str, args: Mapping[str, Any]) -> Any:
        from tidelog.control.values import to_json  # noqa: PLC0415 - on the first call

        return to_json(await _perform(cluster, call, args))

    return CallReader(0, perform, write=say, at_end=at_end)


async def _perform(cluster: Cluster, call: str, args: Mapping[str, Any]) -> Any:
    result = await cluster.ask(call, args)
    if call in ("brokers.stop", "brokers.kill"):
        thaw()
    return result
