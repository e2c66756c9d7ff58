"""Reads a remote segment back and checks all that can be checked of it.

Against its metadata (size, offsets, largest timestamp, epochs), its batches' own checksums, and
its indexes against its records.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, TypeVar

from tidelog.doors.cluster_settings import ClusterError
from tidelog.doors.tiered import DIRECTORY_STORE, S3_STORE, tiered_settings
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import crc_is_valid, iter_batches
from tidelog_storage.remote.api import IndexKind, RemoteResourceNotFound, RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage

__all__ = ["check_segment", "open_store", "open_store_of"]

_STORE = "remote.log.storage.manager.class.name"
_PREFIX = "remote.log.storage.manager.impl.prefix"

T = TypeVar("T")

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


def open_store(place: str, settings: Mapping[str, str]) -> RemoteStorage:
    """The store of `--tiered PLACE`; ClusterError or ValueError if it can't be."""
    given = tiered_settings(place)
    return _open(given[_STORE], _without("rsm.config.", given) | dict(settings))


def open_store_of(
    broker: Mapping[str, str | None], settings: Mapping[str, str], class_name: str | None = None
) -> RemoteStorage:
    """The store that a broker describes, with `settings` over what it says (without its prefix).

    Only our own stores are opened on a broker's word; `class_name` is another one that the caller
    trusts. ClusterError or ValueError if it can't be.
    """
    told = (broker.get(_STORE) or DIRECTORY_STORE).replace(":", ".")
    if told.endswith(".LocalTieredStorage"):  # Kafka's name for it
        told = DIRECTORY_STORE
    if class_name is None and told not in (DIRECTORY_STORE, S3_STORE):
        raise ClusterError(
            f"the store is a {told}: --class loads it here, --set tells its settings"
        )
    given = _without(broker.get(_PREFIX) or "rsm.config.", broker)
    config = {key: text for key, text in given.items() if text is not None} | dict(settings)
    directory = config.get("dir", "")
    if class_name is None and told == DIRECTORY_STORE and not os.path.isdir(directory):
        raise ClusterError(f"the broker's store {directory!r} is not on this machine: use --store")
    return _open(class_name or told, config)


def _without(prefix: str, settings: Mapping[str, T]) -> dict[str, T]:
    return {
        key.removeprefix(prefix): text for key, text in settings.items() if key.startswith(prefix)
    }


def _open(class_name: str, config: Mapping[str, str]) -> RemoteStorage:
    store: Any
    if class_name == DIRECTORY_STORE:
        from tidelog_storage.remote.directory_store import (  # noqa: PLC0415 - the one that is asked for
            DirectoryStore,
        )

        store = DirectoryStore()
    elif class_name == S3_STORE:
        from tidelog_storage.remote.s3_store import S3Store  # noqa: PLC0415 - boto3 is slow to import

        store = S3Store()
    else:
        from tidelog.remote.plugins import load_class  # noqa: PLC0415 - few have their own

        store = load_class("--class", class_name, os.getcwd())()
    store.configure(config)
    found: RemoteStorage = store
    return found


def check_segment(store: RemoteStorage, segment: RemoteSegment) -> list[str]:
    """What is wrong with a finished segment, in words; nothing if all is well."""
    try:
        with store.fetch_segment(segment, 0) as stream:
            data = stream.read()
    except RemoteStorageError as error:
        return [f"can't be read: {error}"]
    faults = [] if len(data) == segment.size else [f"{len(data)} bytes, not {segment.size}"]
    batches: list[tuple[int, BatchHeader]] = []
    try:
        for position, header in iter_batches(data):
            batches.append((position, header))
            if not crc_is_valid(data, header, position):
                faults.append(f"the batch at {header.base_offset} has a bad checksum")
    except ProtocolError as error:
        return [*faults, f"no records after {len(batches)} batches: {error}"]
    if not batches:
        return [*faults, "no records"]
    return [*faults, *_check_offsets(segment, batches), *_check_indexes(store, segment, batches)]


def _check_offsets(segment: RemoteSegment, batches: list[tuple[int, BatchHeader]]) -> list[str]:
    first, last = batches[0][1], batches[-1][1]
    faults = []
    if first.base_offset < segment.start_offset or last.last_offset > segment.end_offset:
        faults.append(
            f"holds {first.base_offset}..{last.last_offset}, "
            f"not {segment.start_offset}..{segment.end_offset}"
        )
    newest = max(header.max_timestamp for _, header in batches)
    if newest > segment.max_timestamp:
        faults.append(f"has a timestamp {newest}, newer than {segment.max_timestamp}")
    starts = dict(segment.epochs)
    for _, header in batches:
        start = starts.get(header.leader_epoch)
        if start is None or header.last_offset < start:
            faults.append(
                f"the batch at {header.base_offset} is of epoch {header.leader_epoch}, "
                f"which is not in the metadata there"
            )
    return faults


def _check_indexes(
    store: RemoteStorage, segment: RemoteSegment, batches: list[tuple[int, BatchHeader]]
) -> list[str]:
    faults = []
    for kind in IndexKind:
        try:
            with store.fetch_index(segment, kind) as stream:
                content = stream.read()
        except RemoteResourceNotFound:
            if kind is not IndexKind.TRANSACTION:
                faults.append(f"the {kind.name} index is not there")
            continue
        except RemoteStorageError as error:
            faults.append(f"the {kind.name} index can't be read: {error}")
            continue
        if kind is IndexKind.OFFSET:
            faults += _check_offset_index(segment, content, batches)
        elif kind is IndexKind.TIMESTAMP and len(content) % _TIME_ENTRY.size:
            faults.append("the TIMESTAMP index has a torn entry")
        elif kind is IndexKind.LEADER_EPOCH and not content.startswith(b"0\n"):
            faults.append("the LEADER_EPOCH checkpoint is of no version that is known")
    return faults


def _check_offset_index(
    segment: RemoteSegment, content: bytes, batches: list[tuple[int, BatchHeader]]
) -> list[str]:
    """Every entry points at the batch that holds its offset."""
    if len(content) % _OFFSET_ENTRY.size:
        return ["the OFFSET index has a torn entry"]
    at = dict(batches)
    for delta, position in _OFFSET_ENTRY.iter_unpack(content):
        offset = segment.start_offset + delta
        header = at.get(position)
        if header is None or not header.base_offset <= offset <= header.last_offset:
            return [f"the OFFSET index sends {offset} to byte {position}, where it is not"]
    return []
