"""What each replica of a play's topic must hold, whatever is where: the memory of the simulation.

A log that was cut and went on is another log: of each broker every version is kept, with the time
from which on it held. A replica that begins anew behind the remote tier has what its leader has
below that, by definition; what it has itself is read from its disk.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from sim.raw_logs import read_log
from sim.stage import FOLDER
from tidelog_storage.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.stage import Stage


class Held(NamedTuple):
    """A record: its leader epoch and value."""

    epoch: int
    value: str


class Lineages:
    """Versions of the logs of all brokers; `look` after every step."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._versions: dict[str, list[tuple[float, list[Held]]]] = {}
        self._seen: dict[str, tuple[int, ...]] = {}
        self._anew: set[Log] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Hear of logs that begin anew while this lasts."""
        real = Log.restart_from_remote

        def restart_from_remote(log: Log, *args: Any, **options: Any) -> None:
            real(log, *args, **options)
            self._anew.add(log)

        with mock.patch.object(Log, "restart_from_remote", restart_from_remote):
            yield

    def look(self) -> None:
        """The broker whose step it was may have appended, cut or begun anew."""
        name = self._stage.loop.lane.partition(".")[0]
        if name not in self._stage.ids or not self._stage.has_replica(name):
            return
        log = self._stage.partition(name).log
        seen = (self._stage.machines[name].life, log.log_end_offset, log.truncations)
        if seen != self._seen.get(name):
            self._seen[name] = seen
            self._take(name, log)

    def _take(self, name: str, log: Log) -> None:
        known = self.now(name)
        if log in self._anew:
            self._anew.discard(log)
            known = self.now(self._stage.letters[self._stage.partition(name).leader])
        first = log.local_log_start_offset
        assert len(known) >= first, f"{log!r} of {name}: nobody knows what is below {first}"
        content = known[:first]
        for batch in read_log(self._stage.machines[name].disk, FOLDER).batches():
            for record in batch.records():
                if record.offset >= len(content):
                    assert record.offset == len(content), f"{log!r} of {name}: hole"
                    value = (record.value or b"").decode()
                    content.append(Held(batch.header.leader_epoch, value))
        self._versions.setdefault(name, []).append((self._stage.loop.time(), content))

    def now(self, name: str) -> list[Held]:
        """What a broker has."""
        versions = self._versions.get(name)
        return versions[-1][1] if versions else []

    def since(self, name: str, then_s: float) -> list[list[Held]]:
        """What a broker has had at any time since then."""
        versions = self._versions.get(name, [])
        later = [content for at_s, content in versions if at_s >= then_s]
        return [content for at_s, content in versions if at_s < then_s][-1:] + later
