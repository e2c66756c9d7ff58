"""Differences between tidelog and the reference that are meant, each with its reason.

`run` and `path` are shell patterns ("*" crosses dots); `only` narrows further by the two values.
The tables of `docs/limits.md` are the reader's version of this list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Allowed(NamedTuple):
    """One line of the table."""

    run: str
    path: str
    reason: str
    only: Callable[[Any, Any], bool] | None = None


def new_here(reference: Any, _tidelog: Any) -> bool:
    """Only tidelog has it."""
    return bool(reference == "<missing>")


def whole_batches_of(reference: Any, tidelog: Any) -> bool:
    """Both begin alike; tidelog's is shorter."""
    if not (reference.endswith(" bytes)") and tidelog.endswith(" bytes)")):
        return False
    sizes = [int(side.rpartition("(")[2].split()[0]) for side in (reference, tidelog)]
    return sizes[1] < sizes[0] and reference.split("...")[0] == tidelog.split("...")[0]


def one_batch_at_least(reference: Any, tidelog: Any) -> bool:
    """tidelog answers a batch, the reference none."""
    return bool(reference == "hex:" and tidelog.endswith(" bytes)"))


def refused_here(reference: Any, tidelog: Any) -> bool:
    """The reference takes it, tidelog refuses it."""
    return (reference, tidelog) == (0, 42) or (reference is None and isinstance(tidelog, str))


NEW_CONFIGS = (
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
)
CUT = "whole batches only; the reference cuts the last batch at the limit and clients drop it"
NEWER = "tidelog speaks Kafka 4.4, the reference is 4.3.1"

ALLOWED = (
    Allowed("ApiVersions-served-*", "*.ranges.18.1", NEWER),
    Allowed("ApiVersions-served-*", "*.ranges.42.1", NEWER),
    Allowed("ApiVersions-api-versions-fallback-*", "*.api_keys.0.max_version", NEWER),
    *[Allowed("*", f"*.{config}", NEWER, new_here) for config in NEW_CONFIGS],
    Allowed(
        "ListTransactions-patterns-*",
        "[[]16].*",
        "RE2 refuses nested repetitions of more than 1000, which need memory for each; RE2/J counts"
        " each alone",
    ),
    Allowed("Fetch-limits-*", "*.records", CUT, whole_batches_of),
    *[
        Allowed(
            f"Fetch-{case}-*",
            "[[]4].*.records",
            "a remote read ends where the leader epoch does that it began in: what lies behind in"
            " the same segment may be another branch's (KIP-405, scenario 3, where the reference"
            " returns it)",
            whole_batches_of,
        )
        for case in ("at-every-offset", "from-a-follower")
    ],
    Allowed(
        "Fetch-last-fetched-epochs-*",
        "[[]6].*",
        "an epoch that never was is out of range wherever the offset lies; the reference then takes"
        " the offset alone for a reason to read remotely",
    ),
    Allowed(
        "Fetch-of-lost-objects-*",
        "[[][34]].*",
        "a lost offset index is not missed where the segment itself says where its batches are",
    ),
    Allowed(
        "Fetch-remote-limits-*",
        "[[][012]].*.records",
        "a limit of no bytes: the first batch comes whole as it does from a local log (KIP-74);"
        " the reference's remote reads answer nothing, for ever",
        one_batch_at_least,
    ),
    Allowed("Fetch-remote-limits-*", "[[]9].*.records", CUT, whole_batches_of),
    Allowed("Fetch-remote-limits-*", "[[]10].*.records", CUT, whole_batches_of),
    Allowed(
        "Fetch-several-with-limits-*",
        "[[]6].*.2.records",
        "what remote partitions leave of the request's bytes goes to local ones behind them: a slow"
        " store holds up none; the reference counts what they might have taken",
        one_batch_at_least,
    ),
    Allowed(
        "DescribeConfigs-keys-of-brokers-*",
        "*.rsm.config.dir.is_sensitive",
        "where a store of our own is, is no secret",
    ),
    Allowed(
        "IncrementalAlterConfigs-*@controller",
        "*.responses.0.error_*",
        "what Kafka's brokers alone check, its controllers store: ours refuse it as the brokers do",
        refused_here,
    ),
    Allowed(
        "AlterPartitionReassignments-moves-that-wait-*",
        "[[]1[234]]*",
        "what an earlier reassignment added and the last one does not want is dropped at once; the"
        " reference keeps it among both the adding and the removing ones, and then never ends",
    ),
)
