"""`tidelog serve`: run one broker until SIGTERM, Ctrl-C or the end of its parent.

Standard output carries one line, `tidelog ready bootstrap.servers=HOST:PORT`, once clients are
answered; everything else goes to standard error. Exit code 0 after a clean stop, 1 when the broker
can't start, with one line that says why.
"""

# ruff: noqa: PLC0415 - what takes long to import waits until the arguments are known to be good

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from tidelog.config.broker import BrokerConfig
    from tidelog.seams import Runtime

STOP_SECONDS_MAX = 4.5  # after this the process ends with what has been flushed


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    # Until the loop listens to it: else an early SIGTERM leaves the temporary folder behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _main(options)
    except KeyboardInterrupt:
        return 0


def _main(options: argparse.Namespace) -> int:
    from tidelog.cluster import has_data_dir, temporary_data_dir
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.vocabulary import ConfigError
    from tidelog.runtime import SystemRng, raise_open_files_limit, system_runtime

    folder = None
    try:
        properties = _properties(options)
        if not has_data_dir(properties):
            folder = properties["log.dirs"] = temporary_data_dir(SystemRng())
        elif options.temporary and options.data_dir is not None:
            folder = properties["log.dirs"]
        config = BrokerConfig.from_properties(properties)
    except ConfigError as error:
        return _refuse(f"{error.key}: {error.message}")
    except (OSError, UnicodeDecodeError) as error:
        return _refuse(f"{options.config}: {getattr(error, 'strerror', None) or error}")
    raise_open_files_limit()
    runtime = system_runtime(durable=folder is None)
    try:
        if folder is not None:
            os.makedirs(folder, 0o700, exist_ok=True)
        return _run(
            config,
            runtime,
            until_stdin_ends=options.until_stdin_ends,
            level=options.log_level.upper(),
        )
    finally:
        if folder is not None:
            runtime.files.remove_tree(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidelog serve", description="Run a broker until SIGTERM or Ctrl-C."
    )
    parser.add_argument("--host", help="address to listen on (127.0.0.1; 0.0.0.0 for all)")
    parser.add_argument("--port", type=_port, help="port to listen on (9092); 0 takes a free one")
    parser.add_argument(
        "--data-dir", metavar="DIR", help="where the data lives; a temporary folder if not given"
    )
    parser.add_argument(
        "--temporary", action="store_true", help="remove the folder of --data-dir at the end"
    )
    parser.add_argument(
        "-c", "--config", metavar="FILE", help="settings in Kafka's server.properties format"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="one setting by its Kafka name, over those of the file; can be repeated",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="what to tell on standard error (warning)",
    )
    parser.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="also stop when standard input ends, so as not to outlive the process that started it",
    )
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _properties(options: argparse.Namespace) -> dict[str, str]:
    """All settings: the developer's profile under the file under --set under other options."""
    from tidelog.cluster import broker_properties
    from tidelog.config.vocabulary import ConfigError

    settings: dict[str, str] = {}
    if options.config is not None:
        from tidelog.config.properties import parse_properties

        with open(options.config, "rb") as file:
            settings.update(parse_properties(file.read()))
    for setting in options.settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--set", f"{setting!r} is not of the form KEY=VALUE")
        settings[key.strip()] = value.strip()
    return broker_properties(
        settings, host=options.host, port=options.port, data_dir=options.data_dir
    )


def _run(config: BrokerConfig, runtime: Runtime, *, until_stdin_ends: bool, level: str) -> int:
    import asyncio
    import logging

    from tidelog.server import StartError

    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return asyncio.run(_serve(config, runtime, until_stdin_ends=until_stdin_ends))
    except StartError as error:
        return _refuse(str(error))


async def _serve(config: BrokerConfig, runtime: Runtime, *, until_stdin_ends: bool) -> int:
    import asyncio
    import gc

    from tidelog.runtime import volume_bytes
    from tidelog.server import BrokerServer
    from tidelog_storage.types import StorageError

    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    if until_stdin_ends:
        loop.add_reader(0, _read_stdin, asked_to_stop)
    server = BrokerServer(config, runtime, volume_bytes=volume_bytes)
    server.on_failure = asked_to_stop.set
    await server.start()
    gc.freeze()  # what was built lives as long as the process: no collection need look at it
    _say(f"tidelog ready bootstrap.servers={server.bootstrap_servers}")
    await asked_to_stop.wait()
    # A timer of the system's: a disk that hangs would hang the loop's own.
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS_MAX)
    try:
        await server.stop()
    except (OSError, StorageError) as error:
        return _refuse(f"not stopped in order: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0 if server.failure is None else _refuse(f"stopped: {server.failure}")


def _give_up(*_: object) -> None:
    """End now: what is not flushed is recovered at the next start, as after a crash."""
    os.write(2, f"tidelog: not stopped within {STOP_SECONDS_MAX} s, ending\n".encode())
    os._exit(1)


def _read_stdin(asked_to_stop: asyncio.Event) -> None:
    """Throw away what is typed; stop at the end."""
    import asyncio

    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        asked_to_stop.set()


def _say(line: str) -> None:
    """Print, unless nobody is left to read it."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _refuse(reason: str) -> int:
    print(f"tidelog: {reason}", file=sys.stderr)
    return 1
