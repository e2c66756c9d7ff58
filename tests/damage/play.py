"""Plays a case on one broker: a damaged copy, a start, a scrub, and what a client reads then."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from damage.directory import TOPICS, server_on
from damage.reading import read_offset, read_topic
from support.txn_client import Nodes
from tidelog.server import BrokerServer, StartError

if TYPE_CHECKING:
    from pathlib import Path

    from damage.cases import Case
    from damage.directory import Truth

END_OFFSET = 40  # 30 values, two aborted ones, and a marker of each of eight transactions
UNDETECTABLE = frozenset({"last .log, swap, kill"})
"""Kafka's files do not name their partition. The indexes of the active segment would show it, but
after a kill they are made anew."""
NAMED_BY = {"r-0": ["r-0", "__remote_log_metadata-0"]}
"""What may be named in the place of a partition: without its events a remote part is not known."""
PLAY_S_MAX = 40.0


class Verdict(Enum):
    """WHOLE: nothing is lost. NAMED: what is lost is named. REFUSED: no start, and one line says
    why. SILENT: something is lost or wrong without a word. TRACEBACK: an error was a surprise."""

    WHOLE = "whole"
    NAMED = "named"
    REFUSED = "refused"
    SILENT = "SILENT"
    TRACEBACK = "TRACEBACK"

    @property
    def is_fault(self) -> bool:
        """Whether it may never be."""
        return self in (Verdict.SILENT, Verdict.TRACEBACK)


class Outcome(NamedTuple):
    """Of a case: the verdict, what is missing, and what the broker said."""

    verdict: Verdict
    losses: list[str]
    said: list[str]


class Listener(logging.Handler):
    """Keeps what is logged from WARNING on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self.has_traceback = False

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self.has_traceback |= bool(record.exc_info)


async def play(case: Case, originals: Path, place: Path, truth: Truth) -> Outcome | None:
    """None if there is nothing to damage."""
    shutil.copytree(originals / case.stop, place)
    listener = Listener()
    logger = logging.getLogger("tidelog")
    logger.addHandler(listener)
    try:
        if not case.apply(place):
            return None
        async with asyncio.timeout(PLAY_S_MAX):
            outcome = await _start_and_read(place, truth, listener)
        return outcome._replace(verdict=Verdict.TRACEBACK) if listener.has_traceback else outcome
    finally:
        logger.removeHandler(listener)
        shutil.rmtree(place)


async def _start_and_read(place: Path, truth: Truth, listener: Listener) -> Outcome:
    server = server_on(place / "data", place / "tier")
    try:
        await server.start()
    except StartError as error:
        is_one_line = "\n" not in str(error)
        return Outcome(Verdict.REFUSED if is_one_line else Verdict.TRACEBACK, [], [str(error)])
    try:
        await _scrub(server)
        losses = await find_losses(server.bootstrap_servers, truth)
    finally:
        await server.stop(controlled=False)
    if not losses:
        return Outcome(Verdict.WHOLE, [], listener.said)
    is_named = all(
        any(names(listener.said, each) for each in NAMED_BY.get(loss.split()[0], [loss.split()[0]]))
        for loss in losses
    )
    return Outcome(Verdict.NAMED if is_named else Verdict.SILENT, losses, listener.said)


async def _scrub(server: BrokerServer) -> None:
    await server.healing.healer.scrub_all()


def names(said: list[str], partition: str) -> bool:
    """Whether something was said of a partition."""
    return any(re.search(rf"\b{re.escape(partition)}\b", text) for text in said)


async def find_losses(
    bootstrap_servers: str, truth: Truth, end_offset: int = END_OFFSET
) -> list[str]:
    """What a client misses or has too much, in words."""
    losses: list[str] = []
    async with Nodes(bootstrap_servers) as nodes:
        for topic in TOPICS:
            seen = await read_topic(nodes, topic, end_offset)
            if seen.values != truth.values[topic]:
                missing = len(set(truth.values[topic]) - set(seen.values))
                wrong = len(seen.values) - len(truth.values[topic]) + missing
                errors = "; ".join(seen.errors[:2])
                losses.append(f"{topic}-0 misses {missing}, has {wrong} wrong ({errors})")
        offset = await read_offset(nodes)
        if offset != truth.offset:
            losses.append(f"__consumer_offsets-0 has offset {offset}")
    return losses
