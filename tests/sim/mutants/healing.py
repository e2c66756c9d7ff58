"""Planted bugs of scrubs and repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.healing import healer, peer_copies, remote_copies
from tidelog.replication.aux_state import AuxState
from tidelog.tiered.tasks import aux_state
from tidelog.tiered.tasks.partition import TieredPartition
from tidelog_protocol.batch import crc_is_valid
from tidelog_protocol.messages.data import FetchRequest
from tidelog_storage import log, scrub, scrub_repair
from tidelog_storage.producer_snapshot import format_snapshot
from tidelog_storage.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = Callable[..., None]


def repair_above_the_high_watermark(patch: Patch) -> None:
    """Copies are asked for as by a debugging replica, which sees all that is there."""

    class Request(FetchRequest):
        def __init__(self, **fields: Any) -> None:
            state = FetchRequest.ReplicaState(replica_id=-2)
            super().__init__(replica_state=state, **fields)

    Request.FetchTopic = FetchRequest.FetchTopic
    patch(peer_copies, "FetchRequest", Request)


def pass_a_bad_checksum(patch: Patch) -> None:
    """The scrubber looks at headers alone."""
    patch(scrub, "crc_is_valid", lambda *_: True)


def swap_in_two_steps(patch: Patch) -> None:
    """The old segment is removed before the new one has its name."""

    def swap_files(files: Any, folder: str, base_offset: int, old: Any) -> list[str]:
        for segment in old:
            segment.remove()
        files.fsync_dir(folder)
        return original(files, folder, base_offset, ())

    original = log.swap_files
    patch(log, "swap_files", swap_files)


def swap_in_what_is_not_durable(patch: Patch) -> None:
    """The new segment is written, and not synced."""
    patch(scrub_repair, "make_durable", lambda segment: segment.write_indexes(seal=True))


def take_any_copy(patch: Patch) -> None:
    """A copy is not asked whether it is all of the damage."""
    original = peer_copies.take

    def take(records: memoryview, offset: int, end_offset: int) -> Any:
        taken, after = original(records, offset, end_offset)
        return taken[:1], max(after, end_offset) if taken else after

    patch(peer_copies, "take", take)
    patch(healer, "check_copy", lambda *_: "")


def serve_the_damage(patch: Patch) -> None:
    """What is known to be damaged is read as all else."""
    patch(Reader, "_before_damage", lambda _self, _offset, upper_bound: upper_bound)


def headers_are_not_compared(patch: Patch) -> None:
    """A batch whose checksum is right is right, wherever it lies and whatever came before it."""

    def bad_batch(_extent: Any, header: Any, batch: Any, _next_offset: int) -> str:
        return "" if crc_is_valid(batch, header) else "a bad checksum"

    patch(scrub, "bad_batch", bad_batch)


MUTANTS = {
    "repair-above-the-high-watermark": repair_above_the_high_watermark,
    "pass-a-bad-checksum": pass_a_bad_checksum,
    "swap-in-two-steps": swap_in_two_steps,
    "swap-in-what-is-not-durable": swap_in_what_is_not_durable,
    "take-any-copy": take_any_copy,
    "serve-the-damage": serve_the_damage,
}


def remote_objects_are_believed(patch: Patch) -> None:
    """The scrub of remote segments looks at nothing."""
    patch(remote_copies, "check_segment", lambda *_: [])


def what_followers_ask_is_not_noted(patch: Patch) -> None:
    """The leader does not hear that a follower asks again and again where to begin."""
    patch(TieredPartition, "has_asked_often", lambda *_: False)


def followers_begin_without_what_they_cannot_read(patch: Patch) -> None:
    """A follower does without the state beside a remote segment if that is damaged."""
    original = aux_state._state_at_end

    def state_at_end(storage: Any, segment: Any) -> Any:
        try:
            return original(storage, segment)
        except aux_state._DAMAGES:
            return AuxState(segment.end_offset + 1, [segment.epochs[-1]], format_snapshot(()))

    patch(aux_state, "_state_at_end", state_at_end)


FOLLOWERS = {
    "what-followers-ask-is-not-noted": what_followers_ask_is_not_noted,
    "followers-begin-without-what-they-cannot-read": followers_begin_without_what_they_cannot_read,
}
REMOTE = {"remote-objects-are-believed": remote_objects_are_believed}
HEADERS = {"headers-are-not-compared": headers_are_not_compared}
