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
- `@pytest.mark.tidelog_simulation(seeds=50, brokers=3)` on an `async def` test that takes
  `tidelog_simulation`: the test runs in the simulation at each seed (`tidelog.simulation`).

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


# -- simulations -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Choose seeds and faults of the simulated tests."""
    group = parser.getgroup("tidelog")
    group.addoption(
        "--tidelog-seeds", type=int, metavar="N", help="run simulated tests at so many seeds"
    )
    group.addoption(
        "--tidelog-seed", type=int, metavar="SEED", help="run simulated tests at this seed alone"
    )
    group.addoption(
        "--tidelog-faults",
        metavar="PLACES",
        help="let only these faults of the seed strike, as a report names them: 0,3 or none",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "tidelog_simulation(seeds=50, brokers=3, faults=True, fault_s=20, settings={},"
        " timeout_s=300): run this async test in a deterministic simulation, at each seed",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a marked test in the simulation."""
    marker = pyfuncitem.get_closest_marker("tidelog_simulation")
    if marker is None:
        return None
    from tidelog.simulation import pytest_door  # noqa: PLC0415 - loaded on first use

    pytest_door.call(pyfuncitem, marker)
    return True


@pytest.fixture
def tidelog_simulation(request: pytest.FixtureRequest) -> None:
    """The `tidelog.simulation.Simulation` of the seed that runs, in tests with the marker."""
    if request.node.get_closest_marker("tidelog_simulation") is None:
        pytest.fail("mark the test with @pytest.mark.tidelog_simulation(seeds=50, brokers=3)")
