"""`tidelog verify`: read logs back and check them, in a directory or through brokers."""

# ruff: noqa: PLC0415 - what a subcommand needs is imported by it

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.cli import common, connection

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_args(arguments)
    return common.run("verify", lambda: _verify(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(
        prog="tidelog verify",
        description="Read all records back and check them: checksums, offsets, leader epochs and, "
        "in a directory, the indexes and what is missing. Changes nothing; exits with 1 if "
        "something is damaged. A broker may run on the directory meanwhile. `tidelog tiers verify` "
        "checks the remote tier.",
    )
    parser.add_argument(
        "place",
        metavar="DIR | HOST:PORT",
        help="a data directory, or a broker: reads all replicas of its cluster",
    )
    common.add_command_config(parser)
    return parser


def _verify(options: argparse.Namespace) -> None:
    place = options.place
    if os.path.isdir(place):
        _verify_directories(_log_directories(place))
    elif ":" in place:
        _verify_cluster(options)
    else:
        raise common.CommandError(f"{place}: neither a directory nor of the form HOST:PORT")


# ---- directories ---------------------------------------------------------------------------------


def _log_directories(place: str) -> list[str]:
    """Return the directory itself, or the log directories in it."""
    from tidelog_storage.checkpoints import META_PROPERTIES

    inside = sorted(folder for folder, _, names in os.walk(place) if META_PROPERTIES in names)
    if not inside:
        raise common.CommandError(f"{place}: no log directory (no {META_PROPERTIES})")
    return inside


def _verify_directories(directories: list[str]) -> None:
    from tidelog.runtime import system_runtime
    from tidelog_storage.checkpoints import CheckpointError
    from tidelog_storage.scrub_folders import check_directory

    files = system_runtime(durable=False).files
    segments = size = 0
    damaged: dict[str, bool] = {}  # by log; an unreadable directory counts as one
    for directory in directories:
        try:
            for checked in check_directory(files, directory):
                segments += checked.size > 0
                size += checked.size
                log = f"{directory}/{checked.partition}"
                damaged[log] = damaged.get(log, False) or bool(checked.faults)
                for fault in checked.faults:
                    print(f"{log}: {fault}")
        except CheckpointError as error:
            damaged[directory] = True
            print(error)
    if any(damaged.values()):
        raise common.CommandError(f"{sum(damaged.values())} of {len(damaged)} logs are damaged")
    print(f"{segments} segments, {size} bytes: all match their checksums and indexes")


# ---- replicas ------------------------------------------------------------------------------------


def _verify_cluster(options: argparse.Namespace) -> None:
    from tidelog.embedded.replica_check import ReplicaChecker

    checked = records = broken = 0
    with connection.connected(ReplicaChecker, options, options.place) as checker:
        for partition, replica, seen, faults in checker.check_all():
            checked += 1
            records += seen
            broken += bool(faults)
            for fault in faults:
                print(f"{partition} on broker {replica}: {fault}")
    if broken:
        raise common.CommandError(f"{broken} of {checked} replicas are damaged or can't be read")
    print(f"{checked} replicas, {records} offsets: all match their checksums")
