"""Open the remote store to check: the one that the user names, or that of the brokers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from tidelog.embedded.cluster_settings import ClusterError
from tidelog.embedded.tiered import DIRECTORY_STORE, S3_STORE, tiered_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tidelog_storage.remote.api import RemoteStorage

__all__ = ["open_store", "open_store_of"]

_STORE = "remote.log.storage.manager.class.name"
_PREFIX = "remote.log.storage.manager.impl.prefix"

T = TypeVar("T")


def open_store(place: str, settings: Mapping[str, str]) -> RemoteStorage:
    """Open the store of `--tiered PLACE`; ClusterError or ValueError if that fails."""
    given = tiered_settings(place)
    directory = settings.get("dir", given.get("rsm.config.dir"))
    if given[_STORE] == DIRECTORY_STORE and not os.path.isdir(directory or ""):
        raise ClusterError(f"{directory}: there is no such directory")
    return _open(given[_STORE], _without("rsm.config.", given) | dict(settings))


def open_store_of(
    broker: Mapping[str, str | None], settings: Mapping[str, str], class_name: str | None = None
) -> RemoteStorage:
    """Open the store that a broker describes, with `settings` (without prefix) over the broker's.

    Only tidelog's own stores are opened because a broker names them; `class_name` is another one
    that the caller trusts. ClusterError or ValueError if that fails.
    """
    named = (broker.get(_STORE) or DIRECTORY_STORE).replace(":", ".")
    if named.endswith(".LocalTieredStorage"):  # Kafka's name for it
        named = DIRECTORY_STORE
    if class_name is None and named not in (DIRECTORY_STORE, S3_STORE):
        raise ClusterError(
            f"the store is a {named}: load it with --class, and pass its settings with --set"
        )
    given = _without(broker.get(_PREFIX) or "rsm.config.", broker)
    config = {key: text for key, text in given.items() if text is not None} | dict(settings)
    directory = config.get("dir", "")
    if class_name is None and named == DIRECTORY_STORE and not os.path.isdir(directory):
        raise ClusterError(f"the broker's store {directory!r} is not on this machine: use --store")
    return _open(class_name or named, config)


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
        from tidelog.tiered.plugins import load_class  # noqa: PLC0415 - few have their own

        store = load_class("--class", class_name, os.getcwd())()
    store.configure(config)
    found: RemoteStorage = store
    return found
