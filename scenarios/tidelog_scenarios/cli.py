"""`tidelog scenario`: scenarios of replication and tiering, played on a live cluster."""

# ruff: noqa: PLC0415 - what a subcommand needs is imported by it

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.cli import common

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code: 1 if the cluster differs from the scenario."""
    options = _parser().parse_args(arguments)
    if options.name is None:
        return common.run("scenario", _list)
    return common.run("scenario", lambda: _play(options.name, isolated=options.isolated))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidelog scenario",
        description="Play a scenario of KIP-101 or KIP-405, an outage of the remote tier or the"
        " deletion of a tiered topic on a live cluster of this process, and show the state of every"
        " broker and of the remote tier after each step. Without a name: list them.",
    )
    parser.add_argument("name", nargs="?")
    parser.add_argument(
        "--isolated", action="store_true", help="run each broker in its own process"
    )
    return parser


def _list() -> None:
    from tidelog_scenarios import NAMES, load

    width = max(map(len, NAMES))
    for name in NAMES:
        print(f"{name:<{width}}  {load(name)['title']}")


def _play(name: str, *, isolated: bool) -> None:
    import asyncio
    import logging

    from tidelog.embedded.cluster_settings import ClusterError
    from tidelog.start_error import StartError
    from tidelog_scenarios import NAMES, load
    from tidelog_scenarios.host_stage import HostStage
    from tidelog_scenarios.player import play

    if name not in NAMES:
        raise common.CommandError(f"unknown scenario {name!r}; run it without a name to list them")
    print(f"tidelog scenario {name}")
    # Killing a broker makes the others log warnings; the output shows the kill already.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    document = load(name)

    async def perform() -> str:
        stage = HostStage(document, isolated=isolated)
        return await play(stage, document, lambda line: print(line, flush=True))

    try:
        difference = asyncio.run(perform())
    except (ClusterError, StartError) as error:
        raise common.CommandError(str(error)) from None
    print()
    if difference:
        raise common.CommandError(f"{name} differs from its vector {difference}")
    print(f"{name}: all {len(document['steps'])} steps match the vector")
