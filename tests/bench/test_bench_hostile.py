"""The question about hostile bytes, small, on a real broker; attacks are as wide as they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidelog.network.request_limits import elements_max
from tidelog_bench.bench_hostile import UNKNOWN_ID, attacks, measure
from tidelog_bench.loads.hostile import PLAIN, Names
from tidelog_bench.peers.attacked import AttackedTidelog
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.frames import decode_client_id

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_bench.loads.hostile import Attack

NAMES = Names(PLAIN, UNKNOWN_ID, "a-group")
SERVED = {ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_OFFSETS}


def attack(name: str) -> Attack:
    return next(each for each in attacks(set(SERVED), NAMES) if each.name == name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("DescribeGroups groups", ApiKey.DESCRIBE_GROUPS),
        ("ListOffsets topics.partitions", ApiKey.LIST_OFFSETS),
        ("ListOffsets topics.partitions in pairs", ApiKey.LIST_OFFSETS),
    ],
)
def test_a_request_has_just_as_many_elements_as_its_limit(name: str, key: ApiKey) -> None:
    frame = attack(name).frame()[4:]
    _, position = decode_client_id(frame, flexible=True)
    codec = API[key].request_codec(API[key].max_version)
    codec.decode(frame, position, elements_max(key))
    with pytest.raises(ProtocolError, match="more elements"):
        codec.decode(frame, position, elements_max(key) - 4)


def test_a_row_has_what_the_producer_and_the_attacker_saw(tmp_path: Path) -> None:
    peer = AttackedTidelog(tmp_path / "broker")
    try:
        peer.start()
        row = measure(peer, attack("FindCoordinator coordinator_keys"), 0.3)
    finally:
        peer.remove()
    assert row.sent > 0
    assert row.answer_ms > 0
    assert 0 < row.p99_ms <= row.longest_ms
