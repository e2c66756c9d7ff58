"""`tidelog broker`: run one node of a cluster.

All nodes take the same `--controller-quorum`. A node listens at its own entry of it for the other
nodes, and at `--host` and `--port` for clients. A node without an entry is a broker only, not a
voter. Its directories must be formatted before its first start (`tidelog format`); with
`--kafka-env` they are formatted for the cluster of the variable CLUSTER_ID, as in Kafka's image.
Ready line, stop and exit codes are those of `tidelog serve`.
"""

# ruff: noqa: PLC0415 - what takes long to import waits until the arguments are known to be good

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tidelog.cli import common, heap
from tidelog.cli.ending import STOP_SECONDS_MAX, Ending, stop_within_limit
from tidelog.cli.serve import add_common_options, given_settings
from tidelog.cli.streams import read_stdin, refuse, say
from tidelog.embedded.cluster_settings import FAILED_WORDS, READY_WORDS, TELL_STARTER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tidelog.control.broker import BrokerControl
    from tidelog.control.wire import CallReader
    from tidelog.seams import Runtime
    from tidelog.server import BrokerServer

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return _main(options, Ending())


def _main(options: argparse.Namespace, ending: Ending) -> int:
    heap.start()
    from tidelog.cli.log_lines import set_up_logging
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.vocabulary import ConfigError
    from tidelog.runtime import system_runtime, volume_bytes
    from tidelog.server import BrokerServer, StartError

    tell = _tell_starter if options.tell_starter else refuse
    try:
        config = BrokerConfig.from_properties(_properties(options))
    except ConfigError as error:
        return tell(f"{error.key}: {error.message}")
    except (OSError, UnicodeDecodeError) as error:
        return tell(f"{options.config}: {getattr(error, 'strerror', None) or error}")
    set_up_logging(options.log_level, options.log_format)
    runtime = system_runtime(durable=options.fsync)
    if options.clock is not None:
        _set_clock(runtime, options.clock)
    server = BrokerServer(
        config,
        runtime,
        volume_bytes=volume_bytes,
        new_cluster_id=(os.environ.get("CLUSTER_ID") or None) if options.kafka_env else None,
    )
    try:
        return ending.run(
            lambda: _serve(server, ending, tell, until_stdin_ends=options.until_stdin_ends)
        )
    except StartError as error:
        return tell(str(error))


def _set_clock(runtime: Runtime, setting: str) -> None:
    """Take the time of the cluster, which a tester has moved."""
    import json

    from tidelog.control.broker_clock import MovableTime
    from tidelog.control.cluster_time import ClockSetting
    from tidelog.control.values import from_json

    MovableTime(runtime).set(from_json(ClockSetting, json.loads(setting)))


async def _serve(
    server: BrokerServer, ending: Ending, tell: Callable[[str], int], *, until_stdin_ends: bool
) -> int:
    import asyncio

    from tidelog.membership import LEAVE_S_MAX
    from tidelog.start_error import one_line

    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    input_ended = False

    def end_of_input() -> None:
        nonlocal input_ended
        input_ended = True
        asked_to_stop.set()

    server.on_failure = asked_to_stop.set
    if until_stdin_ends:
        loop.add_reader(0, read_stdin, ending.ask)
    await server.start()
    calls = _control(server, end_of_input) if until_stdin_ends else None
    ending.started(asked_to_stop.set)
    heap.freeze()
    say(f"{READY_WORDS}{server.bootstrap_servers}")
    await asked_to_stop.wait()
    if calls is not None:
        await calls.stop()
    failure = server.failure
    try:
        # The end of the input stops the whole cluster: no broker is left to take over.
        leave_s_max = 0.0 if input_ended else LEAVE_S_MAX
        with stop_within_limit(STOP_SECONDS_MAX + leave_s_max + server.flush_seconds_max):
            await server.stop(controlled=not input_ended)
            if failure is None and server.failure is not None:
                raise server.failure
    except Exception as error:  # noqa: BLE001 - the reason is one line
        return refuse(f"did not stop cleanly: {one_line(error)}")
    return 0 if failure is None else tell(one_line(failure))


def _control(server: BrokerServer, at_end: Callable[[], None]) -> CallReader:
    """Perform the calls on standard input, which come from `ProcessNode`."""
    from tidelog.control.wire import CallReader

    control: BrokerControl | None = None

    async def perform(call: str, args: Mapping[str, Any]) -> Any:
        nonlocal control
        from tidelog.control import table
        from tidelog.control.broker import BrokerControl
        from tidelog.control.values import to_json

        control = control or BrokerControl(server)
        return to_json(await table.perform(control, call, args))

    return CallReader(0, perform, write=say, at_end=at_end)


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(
        prog="tidelog broker", description="Run one node of a cluster until SIGTERM or Ctrl-C."
    )
    parser.add_argument("--node-id", type=int, metavar="N", help="id of this node")
    parser.add_argument(
        "--controller-quorum",
        metavar="ID@HOST:PORT,...",
        help="addresses of the controllers, the same for all nodes",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address for clients (127.0.0.1)")
    parser.add_argument("--port", type=int, default=9092, help="port for clients (9092)")
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the data")
    parser.add_argument("--rack", help="rack of this node")
    parser.add_argument(
        "--no-fsync",
        action="store_false",
        dest="fsync",
        help="skip fsync; only for data that may be lost",
    )
    parser.add_argument(TELL_STARTER, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--clock", help=argparse.SUPPRESS)
    add_common_options(parser)
    return parser


def _tell_starter(reason: str) -> int:
    """Write the reason where the parent waits for the ready line; return the exit code."""
    say(f"{FAILED_WORDS}{reason}")
    return 1


def _properties(options: argparse.Namespace) -> dict[str, str]:
    """Return the properties of a node of a cluster, or only those of --set and --config."""
    from tidelog.config.vocabulary import ConfigError
    from tidelog.embedded.cluster_settings import has_data_dir, node_properties

    settings = given_settings(options)
    if options.controller_quorum is None:
        # Kafka's image runs a lone node without a list of voters.
        names = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
        if not any(name in settings for name in names) and not options.kafka_env:
            raise ConfigError("--controller-quorum", "is missing")
        return settings
    if options.node_id is None:
        raise ConfigError("--node-id", "is missing")
    if options.data_dir is None and not has_data_dir(settings):
        raise ConfigError("--data-dir", "is missing")
    voters = {}
    for entry in options.controller_quorum.split(","):
        node_id, at, address = entry.partition("@")
        if not (at and node_id.isascii() and node_id.isdigit()):
            raise ConfigError("--controller-quorum", f"{entry!r} is not ID@HOST:PORT")
        voters[int(node_id)] = address
    if options.rack is not None:
        settings["broker.rack"] = options.rack
    return node_properties(
        settings,
        node_id=options.node_id,
        voters=voters,
        host=options.host,
        port=options.port,
        data_dir=options.data_dir,
    )
