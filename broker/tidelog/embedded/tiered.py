"""`tiered=...` and `--tiered`: the short forms of a remote tier, turned into Kafka's properties.

A directory, `s3://bucket/prefix`, or True for a folder beside the data. Setting
`remote.log.storage.system.enable` directly has the same defaults: the embedded directory store, a
metadata topic that fits the number of brokers, and a check of local retention every ten seconds
(Kafka's five minutes are too long for a demo).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.embedded.cluster_settings import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DIRECTORY_STORE", "S3_STORE", "Tiered", "tiered_settings", "with_tier"]

DIRECTORY_STORE = "tidelog_storage.remote.directory_store.DirectoryStore"
S3_STORE = "tidelog_storage.remote.s3_store.S3Store"

Tiered = bool | str | os.PathLike[str]
"""True: a folder beside the data; else a directory, or an address `s3://bucket/prefix`."""

_ENABLE = "remote.log.storage.system.enable"
_STORE = "remote.log.storage.manager.class.name"
_RSM = "rsm.config."
_TOPIC = "rlmm.config.remote.log.metadata.topic."
_S3 = "s3://"


def tiered_settings(tiered: Tiered, topics: Sequence[str] = ()) -> dict[str, str]:
    """Return the properties of a tier in this place, for topics whose names match a pattern.

    Without patterns, a topic joins by its own `remote.storage.enable`. ClusterError for an invalid
    address.
    """
    if tiered is False:
        if topics:
            raise ClusterError("tiered topics need a remote tier: set its place")
        return {}
    settings = {_ENABLE: "true"}
    if topics:
        settings["remote.storage.topics"] = ",".join(topics)
    if tiered is True:
        return settings
    place = os.fspath(tiered)
    if not place.startswith(_S3):
        if "://" in place or place.lower().startswith("s3:"):
            raise ClusterError(f"{place}: neither a directory nor of the form s3://bucket/prefix")
        if os.path.exists(place) and not os.path.isdir(place):
            raise ClusterError(f"{place}: not a directory")
        return settings | {_STORE: DIRECTORY_STORE, f"{_RSM}dir": os.path.abspath(place)}
    bucket, _, prefix = place.removeprefix(_S3).partition("/")
    if not bucket:
        raise ClusterError(f"{place}: not of the form s3://bucket/prefix")
    return settings | {_STORE: S3_STORE, f"{_RSM}bucket": bucket, f"{_RSM}prefix": prefix}


def with_tier(properties: Mapping[str, str], folder: str | None, brokers: int) -> dict[str, str]:
    """Return these properties over the defaults of a tier, if they enable one.

    `folder` is the default place of the tier, shared by all brokers (None: the properties must set
    it).
    """
    if properties.get(_ENABLE) != "true":
        return dict(properties)
    defaults = {
        f"{_TOPIC}replication.factor": str(min(3, brokers)),
        f"{_TOPIC}min.isr": str(max(1, min(2, brokers - 1))),
        _STORE: DIRECTORY_STORE,
        "log.retention.check.interval.ms": "10000",
        "log.initial.task.delay.ms": "10000",
    }
    if folder is not None and properties.get(_STORE, DIRECTORY_STORE) == DIRECTORY_STORE:
        defaults[f"{_RSM}dir"] = f"{os.path.abspath(folder)}/remote-tier"
    return {**defaults, **properties}
