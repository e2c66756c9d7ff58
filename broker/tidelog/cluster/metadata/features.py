"""The features of a cluster (KIP-584) and their levels.

A feature is listed once it works. All levels but that of `transaction.version` are in the metadata
log, as Kafka writes them when it formats a cluster; none changes later, for UpdateFeatures is not
served. `transaction.version` is of every cluster and not in its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "GROUP_FEATURE",
    "GROUP_VERSION",
    "METADATA_FEATURE",
    "METADATA_VERSION",
    "SHARE_FEATURE",
    "SHARE_VERSION",
    "client_levels",
    "finalized_levels",
    "initial_levels",
    "supported_levels",
    "unsupported",
]

METADATA_FEATURE = "metadata.version"
METADATA_VERSION_MIN = 7  # 3.3-IV3, the oldest that Kafka 4 knows
METADATA_VERSION = 30  # Apache Kafka's 4.3-IV0: what our records' versions follow
TRANSACTION_FEATURE = "transaction.version"
TRANSACTION_VERSION = 2  # KIP-890
GROUP_FEATURE = "group.version"
GROUP_VERSION = 1  # KIP-848
SHARE_FEATURE = "share.version"
SHARE_VERSION = 0  # 1 (KIP-932) once share groups are served


def initial_levels() -> dict[str, int]:
    """Return the levels in the metadata log of a new cluster."""
    levels = {
        METADATA_FEATURE: METADATA_VERSION,
        GROUP_FEATURE: GROUP_VERSION,
        SHARE_FEATURE: SHARE_VERSION,
    }
    return {name: level for name, level in levels.items() if level}


def supported_levels() -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level that a broker registers, of features in the log."""
    lowest = {METADATA_FEATURE: METADATA_VERSION_MIN}
    return {name: (lowest.get(name, 0), level) for name, level in initial_levels().items()}


def unsupported(features: Mapping[str, int]) -> list[str]:
    """Return the finalized features at a level that this broker cannot work with, as text."""
    ranges = supported_levels() | client_levels()
    found = []
    for name, level in features.items():
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            found.append(f"{name} {level}")
    return found


def client_levels() -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level that clients see: metadata.version is not theirs."""
    levels = {
        GROUP_FEATURE: GROUP_VERSION,
        SHARE_FEATURE: SHARE_VERSION,
        TRANSACTION_FEATURE: TRANSACTION_VERSION,
    }
    return {name: (0, level) for name, level in levels.items() if level}


def finalized_levels(features: Mapping[str, int]) -> dict[str, int]:
    """Return the levels that clients see, of a cluster whose log has these."""
    levels = {**features, TRANSACTION_FEATURE: TRANSACTION_VERSION}
    return {name: levels[name] for name in client_levels() if name in levels}
