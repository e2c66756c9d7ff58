"""What transactional clients know: every transaction that was tried, and how it ended for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.history import require

if TYPE_CHECKING:
    from sim.history import History

Place = tuple[str, int]  # topic and partition

OPEN = "open"  # nobody asked to commit it
UNKNOWN = "unknown"  # commit was asked for, and not answered
COMMITTED = "committed"
ABORTED = "aborted"  # for sure


class Attempt:
    """One transaction as its producer has it. `source` of a copy: partition, first offset
    and the one after the last."""

    def __init__(self, transactional_id: str, number: int) -> None:
        self.transactional_id, self.number = transactional_id, number
        self.outcome = OPEN
        self.values: dict[Place, list[bytes]] = {}
        self.source: tuple[int, int, int] | None = None
        self._count = 0

    def __repr__(self) -> str:
        return f"{self.transactional_id}/{self.number} ({self.outcome})"

    def new_value(self, place: Place, text: str) -> bytes:
        """A value that no other record has."""
        self._count += 1
        value = f"{self.transactional_id}/{self.number}/{self._count}/{text}".encode()
        self.values.setdefault(place, []).append(value)
        return value

    def end(self, outcome: str) -> None:
        """How it ended, as far as its producer heard."""
        self.outcome = outcome


class Ledger:
    """All transactions of a run, and who got which producer epoch."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.attempts: list[Attempt] = []
        self._numbers: dict[str, int] = {}
        self._of: dict[tuple[bytes, bytes], Attempt] = {}
        self._holders: dict[tuple[int, int], str] = {}  # of a producer id and epoch
        self._newest: dict[str, tuple[float, str]] = {}  # by id: when it began, who

    def new_attempt(self, transactional_id: str) -> Attempt:
        """Numbered by transactional id."""
        number = self._numbers[transactional_id] = self._numbers.get(transactional_id, 0) + 1
        attempt = Attempt(transactional_id, number)
        self.attempts.append(attempt)
        self._of[transactional_id.encode(), str(number).encode()] = attempt
        return attempt

    def of(self, value: bytes) -> Attempt:
        """The transaction that a record belongs to."""
        writer, number, _ = value.split(b"/", 2)
        attempt = self._of.get((writer, number))
        require(attempt is not None, f"nobody sent {value[:40]!r}")
        assert attempt is not None
        return attempt

    def holds(self, producer_id: int, epoch: int, who: str) -> None:
        """An instance was told to use this producer id and epoch: nobody else ever is."""
        known = self._holders.setdefault((producer_id, epoch), who)
        require(known == who, f"epoch {epoch} of producer {producer_id} is {known}'s and {who}'s")

    def began(self, transactional_id: str, who: str, asked_s: float, now_s: float) -> None:
        """An instance was told that it is the only one now."""
        before = self._newest.get(transactional_id)
        # Two that ask at the same time may hear in any order.
        if before is None or asked_s >= before[0]:
            self._newest[transactional_id] = (now_s, who)

    def committed(self, attempt: Attempt, who: str, asked_s: float) -> None:
        """An instance heard that its transaction is committed; it asked for that at `asked_s`."""
        since_s, newest = self._newest.get(attempt.transactional_id, (0.0, who))
        require(
            newest == who or asked_s <= since_s,
            f"{attempt} of {who} was committed after {newest} had taken over",
        )
        attempt.end(COMMITTED)
        self.history.count("transactions committed")
