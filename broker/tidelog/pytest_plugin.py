"""pytest fixtures, there as soon as tidelog is installed.

- `tidelog_cluster` (session): a broker in a process of its own, started when a test first asks for
  it; under pytest-xdist each worker has one. It is `tidelog.run(tidelog_settings)`, with a remote
  tier if `tidelog_tiered` wants one.
- `tidelog_settings` (session): the broker's settings, `{}`; define a fixture of this name in your
  conftest.py to change them: `{"auto.create.topics.enable": False}`.
- `tidelog_tiered` (session): where old segments go, as `tiered` of `tidelog.run`: False, nowhere.
  Let a fixture of this name return True (a folder that goes at the end), a directory or
  "s3://bucket/prefix", and every topic is tiered that is not created with
  `remote.storage.enable=false`. So that a test need not produce a gigabyte, settings such as
  `{"log.segment.bytes": 1048576, "log.local.retention.bytes": 1048576}` belong to it.
- `tidelog_bootstrap` (session): its address for clients, `host:port`.
- `tidelog_topic`: the name of a topic of one partition, fresh for each test and deleted after it.

Test runs that use none of them pay nothing: this module imports pytest alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.doors.cluster import RunningCluster, Setting
    from tidelog.doors.tiered import Tiered

_TOPIC_CHARACTERS_MAX = 200


@pytest.fixture(scope="session")
def tidelog_settings() -> Mapping[str, Setting]:
    """Settings of the session's broker, by their Kafka names; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def tidelog_tiered() -> Tiered:
    """Where the session's broker has its remote tier, if at all; override it to change that."""
    return False


@pytest.fixture(scope="session")
def tidelog_cluster(
    tidelog_settings: Mapping[str, Setting], tidelog_tiered: Tiered
) -> Iterator[RunningCluster]:
    """A running broker for all tests of the session."""
    import tidelog  # noqa: PLC0415 - only who uses it pays

    topics = ("*",) if tidelog_tiered is not False else ()
    with tidelog.run(tidelog_settings, tiered=tidelog_tiered, tiered_topics=topics) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tidelog_bootstrap(tidelog_cluster: RunningCluster) -> str:
    """The broker's `host:port`, for `bootstrap_servers=` of any client."""
    return tidelog_cluster.bootstrap_servers


@pytest.fixture
def tidelog_topic(tidelog_cluster: RunningCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of one partition that no other test has seen; named after the test."""
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
