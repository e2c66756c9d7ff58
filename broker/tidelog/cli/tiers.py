"""`tidelog tiers`: show where the segments of a topic are; check the remote ones."""

# ruff: noqa: PLC0415 - what a subcommand needs is imported by it

from __future__ import annotations

import argparse
import sys
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING

from tidelog.cli import common, connection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

    from tidelog.embedded.tier_view import PartitionTiers, TierViewer
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage, TopicIdPartition

WATCH_SECONDS = 1.0
_ROWS_MAX = 20  # remote segments shown of a partition, unless --all


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    verify = bool(arguments) and arguments[0] == "verify"
    if verify:
        options = _verify_parser().parse_args(arguments[1:])
        return common.run("tiers verify", lambda: _verify(options))
    options = _parser().parse_args(arguments)
    return common.run("tiers", lambda: _show(options))


def _parser() -> argparse.ArgumentParser:
    parser = common.parser(
        "tiers",
        "Show where the segments of a topic are; `tidelog tiers verify --help` to check them.",
    )
    parser.add_argument("topic")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--all", action="store_true", help="list every remote segment")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help=f"repeat every {WATCH_SECONDS:.0f} s, until Ctrl-C",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


# ---- show ----------------------------------------------------------------------------------------


def _show(options: argparse.Namespace) -> None:
    with _viewer(options) as viewer:
        views = _print(viewer, options)
        if options.watch:
            with suppress(KeyboardInterrupt):  # Ctrl-C ends watching
                _watch(viewer, options)
        elif any(view.trouble for view in views):
            raise common.CommandError("some partitions could not be read")


def _watch(viewer: TierViewer, options: argparse.Namespace) -> None:
    """Print the tiers repeatedly, even while single brokers are away."""
    import time

    while True:
        sys.stdout.flush()
        time.sleep(options.watch)
        try:
            _print(viewer, options)
        except (common.CommandError, OSError) as error:
            print(f"(no answer: {error})")
            viewer.reconnect()


def _print(viewer: TierViewer, options: argparse.Namespace) -> list[PartitionTiers]:
    """Print the tiers now; on a terminal, replace the previous output."""
    views = _look(viewer, options.topic)
    if options.watch and sys.stdout.isatty():
        print("\x1b[2J\x1b[H", end="")
    if options.json:
        common.print_json([_as_json(view) for view in views])
    else:
        for view in views:
            _print_partition(view, every=options.all)
    return views


def _viewer(options: argparse.Namespace) -> TierViewer:
    from tidelog.embedded.tier_view import TierViewer

    return connection.connected(TierViewer, options)


def _look(viewer: TierViewer, topic: str) -> list[PartitionTiers]:
    from tidelog.embedded.cluster_settings import ClusterError

    try:
        return viewer.look(topic)
    except ClusterError as error:
        raise common.CommandError(str(error)) from None


def _print_partition(view: PartitionTiers, *, every: bool) -> None:
    copied = "-" if view.highest_copied < 0 else view.highest_copied
    epochs = " ".join(f"{epoch}@{start}" for epoch, start in view.epochs)
    print(f"{view.topic}-{view.partition}  leader {view.leader}  epochs {epochs or '-'}")
    print(
        f"  log start {view.log_start}  local log start {view.local_log_start}"
        f"  highest copied {copied}  high watermark {view.high_watermark}  log end {view.log_end}"
    )
    if view.trouble is not None:
        print(f"  ({view.trouble})")
    local = "?" if view.local_segments is None else view.local_segments
    there = [each.size for each in view.remote if each.state.name == "COPY_SEGMENT_FINISHED"]
    others = len(view.remote) - len(there)
    print(
        f"  local {local} segments, {_bytes(view.local_bytes)}"
        f"  remote {len(there)} segments, {_bytes(sum(there))}"
        + (f" ({others} more being copied or deleted)" if others else "")
    )
    shown = view.remote if every else view.remote[-_ROWS_MAX:]
    if len(shown) < len(view.remote):
        print(f"  ... {len(view.remote) - len(shown)} older segments: --all shows them")
    if shown:
        common.print_table(
            ("  offsets", "bytes", "epochs", "state", "broker", "segment id"),
            [_row(segment) for segment in shown],
        )


def _row(segment: RemoteSegment) -> tuple[object, ...]:
    from tidelog_protocol.primitives import uuid_to_str

    return (
        f"  {segment.start_offset}..{segment.end_offset}",
        segment.size,
        " ".join(f"{epoch}@{start}" for epoch, start in segment.epochs),
        segment.state.name,
        segment.broker_id,
        uuid_to_str(segment.segment_id.bytes),
    )


def _bytes(count: float) -> str:
    if count < 0:
        return "?"
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _as_json(view: PartitionTiers) -> dict[str, object]:
    from tidelog_protocol.primitives import uuid_to_str

    return {
        "topic": view.topic,
        "partition": view.partition,
        "leader": view.leader,
        "leaderEpoch": view.leader_epoch,
        "logStartOffset": view.log_start,
        "localLogStartOffset": view.local_log_start,
        "highestOffsetInRemoteStorage": view.highest_copied,
        "highWatermark": view.high_watermark,
        "logEndOffset": view.log_end,
        "leaderEpochs": dict(view.epochs),
        "localBytes": view.local_bytes,
        "localSegments": view.local_segments,
        "trouble": view.trouble,
        "remoteSegments": [
            {
                "id": uuid_to_str(segment.segment_id.bytes),
                "startOffset": segment.start_offset,
                "endOffset": segment.end_offset,
                "bytes": segment.size,
                "leaderEpochs": dict(segment.epochs),
                "state": segment.state.name,
                "brokerId": segment.broker_id,
                "maxTimestampMs": segment.max_timestamp,
                "txnIdxEmpty": segment.txn_index_empty,
            }
            for segment in view.remote
        ],
    }


# ---- verify --------------------------------------------------------------------------------------


def _verify_parser() -> argparse.ArgumentParser:
    parser = common.parser(
        "tiers verify",
        "Read remote segments back and check them against their metadata and checksums.",
    )
    parser.add_argument("topic", nargs="+")
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--store",
        metavar="DIR | s3://BUCKET/PREFIX",
        help="location of the remote tier; by default the broker's",
    )
    place.add_argument(
        "--class",
        dest="class_name",
        metavar="MODULE.CLASS",
        help="class of a store of your own; --set passes its settings",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the store, without rsm.config.: endpoint.url=http://...",
    )
    return parser


def _store(
    viewer: TierViewer, options: argparse.Namespace, *, is_needed: bool
) -> AbstractContextManager[RemoteStorage | None]:
    """Open the given store, or that of the brokers; None if no store is needed."""
    from tidelog.embedded.cluster_settings import ClusterError
    from tidelog.embedded.tier_check import open_store, open_store_of
    from tidelog.start_error import StartError

    settings = common.key_values(options.set, "--set")
    try:
        if options.store is not None:
            return closing(open_store(options.store, settings))
        broker = viewer.broker_settings()
        if broker.get("remote.log.storage.system.enable") != "true":
            raise ClusterError("the broker has no remote tier")
        if not is_needed:
            return nullcontext()
        return closing(open_store_of(broker, settings, options.class_name))
    except (ClusterError, StartError, ValueError) as error:
        raise common.CommandError(str(error)) from None


def _whole(views: list[PartitionTiers]) -> list[PartitionTiers]:
    """Return the views; CommandError if the remote part of one is not fully known."""
    for view in views:
        if not view.knows_remote:
            raise common.CommandError(f"{view.topic}-{view.partition}: {view.trouble}")
    return views


def _verify(options: argparse.Namespace) -> None:
    from tidelog_storage.remote.api import SegmentState

    with _viewer(options) as viewer:
        segments = [
            segment
            for topic in options.topic
            for view in _whole(_look(viewer, topic))
            for segment in view.remote
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        ]
        with _store(viewer, options, is_needed=bool(segments)) as store:
            checked, size, broken = _check_all(viewer, store, segments)
    if broken:
        are = "does not match its" if broken == 1 else "do not match their"
        raise common.CommandError(
            f"{broken} of {checked} remote segments {are} metadata or checksums"
        )
    text = "all match their metadata and checksums" if checked else "nothing to check"
    more = f" ({len(segments) - checked} deleted meanwhile)" if checked < len(segments) else ""
    print(f"{checked} remote segments, {_bytes(size)}: {text}{more}")


def _check_all(
    viewer: TierViewer, store: RemoteStorage | None, segments: list[RemoteSegment]
) -> tuple[int, int, int]:
    """Check all segments and print their faults; return the number checked, their bytes, and the
    number with faults.

    CommandError if the store can't be read.
    """
    from tidelog_storage.remote.checks import UnreadableStoreError, check_segment

    checked = broken = size = 0
    gone: set[UUID] = set()
    is_readable = False  # as far as the previous segment shows
    for segment in segments:
        if segment.segment_id in gone:
            continue
        assert store is not None
        unreadable: UnreadableStoreError | None = None
        try:
            faults = check_segment(store, segment)
        except UnreadableStoreError as error:
            faults, unreadable = [f"can't be read: {error}"], error
        if faults:
            gone |= _gone(viewer, segments, segment.topic_id_partition)
            if segment.segment_id in gone:
                continue
        if unreadable is not None and not is_readable:
            text = f"the remote tier can't be read: {unreadable}"
            raise common.CommandError(f"after {checked} segments, {text}" if checked else text)
        is_readable = unreadable is None
        checked += 1
        size += segment.size
        broken += bool(faults)
        for fault in faults:
            name = f"{segment.topic}-{segment.partition}"
            print(f"{name} {segment.start_offset}..{segment.end_offset}: {fault}")
    return checked, size, broken


def _gone(
    viewer: TierViewer, segments: list[RemoteSegment], partition: TopicIdPartition
) -> set[UUID]:
    """Return the ids of the segments of a partition that were deleted since they were listed,
    because reading all takes a while. Empty if no broker answers."""
    from tidelog.embedded.cluster_settings import ClusterError
    from tidelog_storage.remote.api import SegmentState

    try:
        try:
            known = viewer.remote_segments(partition)
        except (ClusterError, OSError):  # brokers close idle connections
            viewer.reconnect()
            known = viewer.remote_segments(partition)
    except (ClusterError, OSError):
        return set()
    finished = SegmentState.COPY_SEGMENT_FINISHED
    live = {each.segment_id for each in known if each.state is finished}
    return {each.segment_id for each in segments if each.topic_id_partition == partition} - live
