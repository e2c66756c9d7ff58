"""The features of a cluster (KIP-584) and their levels.

A feature is listed once it works. The metadata log has the finalized levels: a new cluster gets the
highest ones, as `kafka-storage format` does, and UpdateFeatures changes them. One that the log does
not have is at level 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DYNAMIC_LEVEL",
    "ELIGIBLE_FEATURE",
    "GROUP_FEATURE",
    "GROUP_VERSION",
    "KAFKA_FEATURES",
    "KRAFT_FEATURE",
    "METADATA_FEATURE",
    "METADATA_VERSION",
    "SHARE_FEATURE",
    "SHARE_VERSION",
    "STREAMS_FEATURE",
    "STREAMS_VERSION",
    "TRANSACTION_FEATURE",
    "finalized_levels",
    "initial_levels",
    "registers_controllers",
    "supported_levels",
    "unsupported",
]

METADATA_FEATURE = "metadata.version"
METADATA_VERSION_MIN = 7  # 3.3-IV3, the oldest that Kafka 4 knows
METADATA_VERSION = 30  # Apache Kafka's 4.3-IV0: what our records' versions follow
SCRAM_SINCE = 11  # 3.5-IV2: SCRAM users (KIP-900)
TOKENS_SINCE = 14  # 3.6-IV2: delegation tokens (KIP-900)
CONTROLLERS_SINCE = 15  # 3.7-IV0: controllers register (KIP-919)
DIRECTORIES_SINCE = 17  # 3.7-IV2: log directories of brokers and replicas (KIP-858)
CORDONED_SINCE = 30  # level of metadata.version with cordoned log directories (KIP-1066)
TRANSACTION_FEATURE = "transaction.version"
TRANSACTION_VERSION = 2  # KIP-890
GROUP_FEATURE = "group.version"
GROUP_VERSION = 1  # KIP-848
SHARE_FEATURE = "share.version"
SHARE_VERSION = 1  # KIP-932
STREAMS_FEATURE = "streams.version"
STREAMS_VERSION = 1  # KIP-1071
KRAFT_FEATURE = "kraft.version"  # 0: the voters are those of the settings
DYNAMIC_LEVEL = 1  # of kraft.version: those of the metadata log (KIP-853)
ELIGIBLE_FEATURE = "eligible.leader.replicas.version"
ELIGIBLE_VERSION = 1  # KIP-966

# Kafka 4.3's: those that are not supported here are at level 0 and stay there.
KAFKA_FEATURES = frozenset(
    {
        METADATA_FEATURE,
        TRANSACTION_FEATURE,
        GROUP_FEATURE,
        SHARE_FEATURE,
        ELIGIBLE_FEATURE,
        KRAFT_FEATURE,
        STREAMS_FEATURE,
    }
)


def supported_levels() -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level of each feature that this broker can work with."""
    ranges = {
        METADATA_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION),
        TRANSACTION_FEATURE: (0, TRANSACTION_VERSION),
        GROUP_FEATURE: (0, GROUP_VERSION),
        SHARE_FEATURE: (0, SHARE_VERSION),
        STREAMS_FEATURE: (0, STREAMS_VERSION),
        ELIGIBLE_FEATURE: (0, ELIGIBLE_VERSION),
        KRAFT_FEATURE: (0, DYNAMIC_LEVEL),
    }
    return {name: levels for name, levels in ranges.items() if levels[1]}


def initial_levels() -> dict[str, int]:
    """Return the levels in the metadata log of a new cluster, in Kafka's order: that of
    `metadata.version` says how to read the others."""
    levels = {name: highest for name, (_, highest) in supported_levels().items()}
    del levels[KRAFT_FEATURE]
    return {METADATA_FEATURE: levels.pop(METADATA_FEATURE), **dict(sorted(levels.items()))}


def registers_controllers(features: Mapping[str, int]) -> bool:
    """Return whether controllers register in a cluster whose log has these levels."""
    return features.get(METADATA_FEATURE, 0) >= CONTROLLERS_SINCE


def has_directories(features: Mapping[str, int]) -> bool:
    """Return whether a log with these levels says which log directory a replica is in."""
    return features.get(METADATA_FEATURE, METADATA_VERSION) >= DIRECTORIES_SINCE


def unsupported(features: Mapping[str, int]) -> list[str]:
    """Return the finalized features at a level that this broker cannot work with, as text."""
    ranges = {**supported_levels(), KRAFT_FEATURE: (0, 0)}  # voters show level 1
    found = []
    for name, level in features.items():
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            found.append(f"{name} {level}")
    return found


def finalized_levels(features: Mapping[str, int]) -> dict[str, int]:
    """Return the levels that clients see, of a cluster whose log has these."""
    return {name: features[name] for name in supported_levels() if name in features}
