"""pytest fixtures, available once tidelog is installed.

- `tidelog_cluster` (session): a broker in its own process, `tidelog.run(tidelog_settings)`. It
  starts when a test first uses it. Under pytest-xdist each worker has its own.
- `tidelog_settings` (session): the broker's settings, `{}`. Define a fixture of this name in your
  conftest.py to change them: `{"auto.create.topics.enable": False}`.
- `tidelog_tiered` (session): the remote tier, as the parameter `tiered` of `tidelog.run`; False:
  none. Define a fixture of this name that returns True (a temporary folder), a directory or
  "s3://bucket/prefix". Then every topic is tiered unless it is created with
  `remote.storage.enable=false`. Add settings such as
  `{"log.segment.bytes": 1048576, "log.local.retention.bytes": 1048576}`, or a test has to produce
  a gigabyte before a segment is copied.
- `tidelog_bootstrap` (session): the broker's address for clients, `host:port`.
- `tidelog_topic` (function): the name of a new topic with one partition, deleted after the test.

Test runs that use none of them pay nothing: this module imports only pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.embedded.cluster import RunningCluster, Setting
    from tidelog.embedded.tiered import Tiered

_TOPIC_CHARACTERS_MAX = 200


@pytest.fixture(scope="session")
def tidelog_settings() -> Mapping[str, Setting]:
    """Settings of the session's broker, by their Kafka names; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def tidelog_tiered() -> Tiered:
    """Place of the remote tier of the session's broker, False for none; override it to change
    that."""
    return False


@pytest.fixture(scope="session")
def tidelog_cluster(
    tidelog_settings: Mapping[str, Setting], tidelog_tiered: Tiered
) -> Iterator[RunningCluster]:
    """A running broker for all tests of the session."""
    import tidelog  # noqa: PLC0415 - loaded on first use

    topics = ("*",) if tidelog_tiered is not False else ()
    with tidelog.run(tidelog_settings, tiered=tidelog_tiered, tiered_topics=topics) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tidelog_bootstrap(tidelog_cluster: RunningCluster) -> str:
    """The broker's `host:port`, for `bootstrap_servers=` of any client."""
    return tidelog_cluster.bootstrap_servers


@pytest.fixture
def tidelog_topic(tidelog_cluster: RunningCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new topic with one partition, named after the test."""
    legal = "".join(
        character if character.isascii() and (character.isalnum() or character in "._-") else "-"
        for character in request.node.name
    )
    counter = request.session.stash.get(_counter, 0) + 1
    request.session.stash[_counter] = counter
    name = f"{legal[:_TOPIC_CHARACTERS_MAX]}-{counter}"
    tidelog_cluster.create_topic(name)
    yield name
    tidelog_cluster.delete_topic(name, missing_ok=True)  # the test may have done it


_counter = pytest.StashKey[int]()
