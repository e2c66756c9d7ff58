"""`tidelog scenario`: scenarios of replication and tiering, played on a live cluster."""

# ruff: noqa: PLC0415 - what a subcommand needs is imported by it

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tidelog.cli import common

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tidelog_scenarios.plays import Pair


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code: 1 if the cluster differs from the scenario."""
    options = _parser().parse_args(arguments)
    return common.run("scenario", lambda: _list(options) if options.name is None else _run(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(
        prog="tidelog scenario",
        description="Play a scenario of KIP-101 or KIP-405, an outage of the remote tier or the"
        " deletion of a tiered topic on a live cluster of this process, and show what each step"
        " changes on the brokers and in the remote tier. Without a name: list them.",
    )
    parser.add_argument("name", nargs="?")
    parser.add_argument(
        "--old",
        action="store_true",
        help="play the older rule beside today's, on a second cluster: the one that lost records",
    )
    parser.add_argument(
        "--pause", action="store_true", help="wait for Enter before each further step"
    )
    parser.add_argument("--state", action="store_true", help="show the whole state after each step")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print all steps as one JSON document, with the states under both rules",
    )
    parser.add_argument(
        "--isolated", action="store_true", help="run each broker in its own process"
    )
    return parser


def _list(options: argparse.Namespace) -> None:
    from tidelog_scenarios import NAMES, load

    if options.json:
        from tidelog_scenarios.plays import described

        common.print_json([described(name) for name in NAMES])
        return
    width = max(map(len, NAMES))
    for name in NAMES:
        print(f"{name:<{width}}  {load(name)['title']}")


def _run(options: argparse.Namespace) -> None:
    import asyncio
    import logging

    from tidelog.embedded.cluster_settings import ClusterError
    from tidelog.start_error import StartError
    from tidelog_scenarios import NAMES

    name = options.name
    if name not in NAMES:
        near = common.did_you_mean(name, NAMES) or "; run it without a name to list them"
        raise common.CommandError(f"unknown scenario {name!r}{near}")
    if options.isolated and (options.old or options.json):
        raise common.CommandError(
            "--isolated excludes --old and --json, whose brokers share a process"
        )
    if options.json and (options.pause or options.state):
        raise common.CommandError("--json excludes --pause and --state")
    # Killing a broker makes the others log warnings; the output shows the kill already.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    perform = _print_values if options.json else _report
    try:
        last = asyncio.run(perform(options))
    except (ClusterError, StartError) as error:
        raise common.CommandError(str(error)) from None
    _check(name, last)
    if not options.json:
        also = "" if last.old is None else ", those of the older rule too"
        print(f"\n{name}: all {last.new.number} steps match the vector{also}")


def _check(name: str, last: Pair) -> None:
    """Raise CommandError if the last step that was played differs."""
    from tidelog_scenarios.player import differing

    for played, of in ((last.new, ""), (last.old, " of the older rule")):
        if played is not None and played.differences:
            raise common.CommandError(f"{name} differs from its vector{of} {differing(played)}")


async def _report(options: argparse.Namespace) -> Pair:
    """Print each step when it was played; return the last."""
    from tidelog_scenarios import load
    from tidelog_scenarios.plays import play
    from tidelog_scenarios.report import Report

    name, with_old = options.name, options.old
    print(f"tidelog scenario {name}")
    document = load(name)
    report = Report(name, document, lambda line: print(line, flush=True), whole=options.state)
    report.begin(with_old=with_old)
    enter = _Enter()
    async for pair in play(name, document, isolated=options.isolated, with_old=with_old):
        report.step(pair)
        if options.pause and pair.new.number < len(document["steps"]):
            await enter.wait()
    return pair


async def _print_values(options: argparse.Namespace) -> Pair:
    """Play both rules and print the document; return the last step."""
    from dataclasses import asdict

    from tidelog_scenarios import load
    from tidelog_scenarios.plays import described, play

    steps = []
    async for pair in play(options.name, load(options.name), isolated=False, with_old=True):
        steps.append(asdict(pair.value))
    common.print_json(described(options.name) | {"steps": steps})
    return pair


class _Enter:
    """Waits for lines of standard input; after its end it waits no more."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._lines = 0
        self._is_ended = False

    async def wait(self) -> None:
        """Wait for a line that was not waited for yet; the brokers work meanwhile."""
        import asyncio

        print("   Enter: the next step", end="", file=sys.stderr, flush=True)
        loop, descriptor = asyncio.get_running_loop(), self._descriptor
        while not self._lines and not self._is_ended:
            readable = asyncio.Event()
            try:
                loop.add_reader(descriptor, readable.set)
            except PermissionError:  # a file is always ready, and epoll refuses it
                readable.set()
            await readable.wait()
            loop.remove_reader(descriptor)
            data = os.read(descriptor, 1 << 12)
            self._is_ended = not data
            self._lines += data.count(b"\n")
        self._lines = max(self._lines - 1, 0)
        print(file=sys.stderr)
