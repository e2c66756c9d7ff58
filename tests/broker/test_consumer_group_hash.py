"""The hash of a group's topics; expected numbers are those of the hash4j of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from support.metadata import cluster, topic
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.coordinators.groups.modern.metadata_hash import (
    group_hash,
    hash_of_topics,
    topic_hash,
)
from tidelog.coordinators.groups.modern.xxh3 import xxh3_64

TOPIC_ID = bytes.fromhex("0123456789abcdeffedcba9876543210")
PLAIN: list[list[str]] = [[]]
SORTED = [["r2", "r1"], ["r1"]]
UNEVEN = [[], ["rack-é"], ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (8, 0xDEC6A9A43575982E),
        (9, 0xCBE393399F17FFBD),
        (16, 0x7E484C18D74895D0),
        (17, 0x208BDE5EE2BED407),
        (32, 0x03DF0AC5255D1446),
        (63, 0x76D4EEC1F092847F),
        (65, 0xFAB36B851B94CE20),
        (96, 0xD245CD2541582982),
        (128, 0xF92B70EAA21A6288),
        (129, 0xF8F76713F2BB60FA),
        (192, 0x084028FA06F01D30),
        (240, 0xCCC7375172C41F03),
        (241, 0x0B3B630948CE4A00),
        (256, 0xEC85B75BAFE6CA74),
        (257, 0x12EF0FF633841459),
        (1024, 0x23BC880EBF0D29C6),
        (1025, 0xC09FDFBC398C7D82),
        (1088, 0xA16BAD67843C5A45),
        (1089, 0x822327A86AAD957C),
        (2048, 0x19F6F9C987331373),
        (2049, 0x5045460F5D85C275),
        (4000, 0x9D5E1BE70BA5D851),
    ],
)
def test_xxh3_of_each_kind_of_length(size: int, expected: int) -> None:
    assert xxh3_64(bytes((n * 31 + 7) % 256 for n in range(size))) == expected


@pytest.mark.parametrize(
    ("name", "racks", "expected"),
    [
        ("t", PLAIN, 0xFBEEB8746F136036),
        ("t", SORTED, 0x5085CDAD5AC92F0C),
        ("t", UNEVEN, 0xE71862420EE6D89A),
        ("topic-a", PLAIN, 0xD870F05AE86068A8),
        ("topic-a", SORTED, 0xA7AE578D400CB53B),
        ("größe\U0001f600", SORTED, 0x2815582A186D01B6),
        ("größe\U0001f600", UNEVEN, 0x4FB12158E3A3BD92),
    ],
)
def test_hash_of_a_topic(name: str, racks: list[list[str]], expected: int) -> None:
    assert topic_hash(TOPIC_ID, name, racks) == expected


def test_hash_of_a_group_is_of_its_topics_by_name() -> None:
    assert group_hash({}) == 0
    assert group_hash({"b": 1, "a": 2}) == group_hash({"a": 2, "b": 1})
    assert group_hash({"a": 1, "b": 2}) != group_hash({"a": 2, "b": 1})
    hashes = [group_hash({"a": n}) for n in range(50)]
    assert -(1 << 63) <= min(hashes) < 0 < max(hashes) < 1 << 63, "a signed number, as in records"


def test_topics_that_do_not_exist_do_not_count() -> None:
    image = cluster(topic("e", 2), topic("f", 1))
    assert hash_of_topics(image, ["e", "gone"]) == hash_of_topics(image, ["e"])
    assert hash_of_topics(image, ["gone"]) == 0
    assert hash_of_topics(image, ["e"]) != hash_of_topics(image, ["f"])


def test_a_rack_changes_the_hash() -> None:
    image = cluster(topic("e", 2))
    node_id = image.topics["e"].partitions[0].replicas[0]
    moved = image._replace(brokers={node_id: BrokerImage(node_id, "h", 1, rack="r")})
    assert hash_of_topics(moved, ["e"]) != hash_of_topics(image, ["e"])
