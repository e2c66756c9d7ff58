"""pytest fixtures, available once tidelog is installed.

- `tidelog_cluster` (session): a broker in its own process, `tidelog.run(tidelog_settings)`. It
  starts when a test first uses it. Under pytest-xdist each worker has its own; with
  `--tidelog-shared` tests that use only its address, topics and ids share one.
- `@pytest.mark.tidelog(brokers=3, settings={...}, tiered=True, security="sasl_ssl",
  profile="kafka")`: the test gets a cluster like this, which all tests with the same options share.
  `--tidelog-brokers N` and `--tidelog-profile fast|kafka` are for tests that do not say. `fast`
  has short sessions and cleaner intervals, `kafka` Kafka's.
- `tidelog_settings` (session): the broker's settings, `{}`. Define a fixture of this name in your
  conftest.py to change them: `{"auto.create.topics.enable": False}`.
- `tidelog_tiered` (session): the remote tier, as the parameter `tiered` of `tidelog.run`; False:
  none. Define a fixture of this name that returns True (a temporary folder), a directory or
  "s3://bucket/prefix". Then every topic is tiered unless it is created with
  `remote.storage.enable=false`. Add settings such as
  `{"log.segment.bytes": 1048576, "log.local.retention.bytes": 1048576}`, or a test has to produce
  a gigabyte before a segment is copied.
- `tidelog_bootstrap` (session): the broker's address for clients, `host:port`. With
  `--tidelog-bootstrap HOST:PORT` it is that of another Kafka, which has its own settings; a test
  that uses `tidelog_cluster` is skipped then.
- `tidelog_topic` (function): the name of a new topic with one partition, deleted after the test.
- `tidelog_topic_factory` (function): creates topics for one test and returns their names:
  `tidelog_topic_factory(partitions=3, config={"cleanup.policy": "compact"})`.
- `tidelog_group_id`, `tidelog_transactional_id` (function): ids that no other test has.
- `tidelog_faults`, `tidelog_network`, `tidelog_devices`, `tidelog_clock` (function): what
  `tidelog.run()` has under these names; undone after the test.
- `tidelog_cluster_factory` (function): starts clusters for one test alone, with the marker's
  options.
- `@pytest.mark.tidelog_simulation(seeds=50, brokers=3)` on an `async def` test that takes
  `tidelog_simulation`: the test runs in the simulation at each seed (`tidelog.simulation`).

A broker that does not run is started again before the next test. The report of a test that failed
has the brokers' log and the state of its topics.

Test runs that use none of them pay nothing: this module imports only pytest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from tidelog.control.blocking import Clock
    from tidelog.control.faults.blocking import Devices, Faults, Network
    from tidelog.embedded.cluster_settings import Setting
    from tidelog.embedded.running import RunningCluster
    from tidelog.embedded.tiered import Tiered
    from tidelog.testing.kit import Clusters

_TOPIC_CHARACTERS_MAX = 200
_OPTIONS = ("brokers", "settings", "tiered", "security", "profile")
_PROFILES = ("fast", "kafka")
_SHARED = "shared"

_counter = pytest.StashKey[int]()
_clusters = pytest.StashKey["Clusters"]()
_topics = pytest.StashKey[list[str]]()
_ids = pytest.StashKey[list[str]]()


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
def _tidelog_clusters(request: pytest.FixtureRequest) -> Iterator[Clusters]:
    """The clusters of the session."""
    from tidelog.testing.kit import Clusters  # noqa: PLC0415 - loaded on first use

    clusters = request.session.stash[_clusters] = Clusters()
    yield clusters
    del request.session.stash[_clusters]
    clusters.stop()


@pytest.fixture(scope="session")
def _tidelog_options(
    request: pytest.FixtureRequest, tidelog_settings: Mapping[str, Setting], tidelog_tiered: Tiered
) -> dict[str, Any]:
    """All options of a cluster: the marker's, over the fixtures' and the command line's."""
    return _whole(request.config, tidelog_settings, tidelog_tiered, getattr(request, "param", {}))


def _whole(
    config: pytest.Config,
    settings: Mapping[str, Setting],
    tiered: Tiered,
    marked: Mapping[str, Any],
) -> dict[str, Any]:
    options = {
        "brokers": config.getoption("tidelog_brokers"),
        "profile": config.getoption("tidelog_profile"),
        "tiered": tiered,
        **marked,
    }
    return {**options, "settings": {**settings, **marked.get("settings", {})}}


@pytest.fixture(scope="session")
def tidelog_cluster(
    request: pytest.FixtureRequest, _tidelog_options: dict[str, Any]
) -> RunningCluster:
    """A running cluster for all tests of the session that ask for the same options."""
    other = request.config.getoption("tidelog_bootstrap")
    if other is not None:
        pytest.skip(f"the test controls its brokers, which --tidelog-bootstrap {other} does not")
    if _SHARED in _tidelog_options:
        pytest.fail("with --tidelog-shared, name tidelog_cluster in the test's arguments")
    clusters: Clusters = request.getfixturevalue("_tidelog_clusters")
    return clusters.get(_tidelog_options)


@pytest.fixture(scope="session")
def tidelog_bootstrap(request: pytest.FixtureRequest, _tidelog_options: dict[str, Any]) -> str:
    """The brokers' `host:port`, for `bootstrap_servers=` of any client."""
    other: str | None = request.config.getoption("tidelog_bootstrap")
    if other is not None:
        return other
    if _SHARED in _tidelog_options:
        clusters: Clusters = request.getfixturevalue("_tidelog_clusters")
        folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        own = {key: value for key, value in _tidelog_options.items() if key != _SHARED}
        return clusters.shared(own, folders.getbasetemp().parent / "tidelog-shared")
    servers: str = request.getfixturevalue("tidelog_cluster").bootstrap_servers
    return servers


@pytest.fixture
def tidelog_cluster_factory(
    request: pytest.FixtureRequest, tidelog_settings: Mapping[str, Setting], tidelog_tiered: Tiered
) -> Iterator[Callable[..., RunningCluster]]:
    """Starts a cluster for this test: `tidelog_cluster_factory(brokers=3)`."""
    other = request.config.getoption("tidelog_bootstrap")
    if other is not None:
        pytest.skip(f"the test starts brokers, and --tidelog-bootstrap {other} is to be used")
    clusters: Clusters = request.getfixturevalue("_tidelog_clusters")

    def make(**marked: Any) -> RunningCluster:
        _check_options(marked, "tidelog_cluster_factory")
        return clusters.make(_whole(request.config, tidelog_settings, tidelog_tiered, marked))

    yield make
    clusters.stop_made()


# -- names and ids ---------------------------------------------------------------------------------


def _unique(request: pytest.FixtureRequest) -> str:
    """Return a name after the test. Beside others on one Kafka it is unique by chance."""
    legal = "".join(
        character if character.isascii() and (character.isalnum() or character in "._-") else "-"
        for character in request.node.name
    )
    counter = request.session.stash.get(_counter, 0) + 1
    request.session.stash[_counter] = counter
    name = f"{legal[:_TOPIC_CHARACTERS_MAX]}-{counter}"
    if request.config.getoption("tidelog_bootstrap") is None and not _is_shared(request.config):
        return name
    clusters: Clusters = request.getfixturevalue("_tidelog_clusters")
    return f"{name}-{clusters.token}"


def _is_shared(config: pytest.Config) -> bool:
    """Whether this is a worker of pytest-xdist that shares a cluster with the others."""
    return config.getoption("tidelog_shared") and hasattr(config, "workerinput")


@pytest.fixture
def tidelog_topic_factory(
    tidelog_bootstrap: str, _tidelog_options: dict[str, Any], request: pytest.FixtureRequest
) -> Iterator[Callable[..., str]]:
    """Creates topics for this test: `tidelog_topic_factory(partitions=3)` returns a name."""
    is_other = request.config.getoption("tidelog_bootstrap") is not None
    names: list[str] = request.node.stash.setdefault(_topics, [])
    create: Callable[..., None]
    delete: Callable[..., None]
    if is_other or _SHARED in _tidelog_options:
        from tidelog.testing import topics  # noqa: PLC0415 - loaded on first use

        create, delete = (
            partial(topics.create, tidelog_bootstrap),
            partial(topics.delete, tidelog_bootstrap),
        )
    else:
        cluster: RunningCluster = request.getfixturevalue("tidelog_cluster")
        clusters: Clusters = request.getfixturevalue("_tidelog_clusters")
        create, delete = cluster.create_topic, partial(clusters.delete_topic, cluster)

    def make(
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        config: Mapping[str, Setting] | None = None,
    ) -> str:
        name = _unique(request)
        create(name, partitions, replication_factor, config)
        names.append(name)
        return name

    yield make
    for name in names:
        delete(name, missing_ok=True)  # the test may have done it


@pytest.fixture
def tidelog_topic(tidelog_topic_factory: Callable[..., str]) -> str:
    """A new topic with one partition, named after the test."""
    return tidelog_topic_factory()


@pytest.fixture
def tidelog_group_id(request: pytest.FixtureRequest) -> str:
    """Id of a consumer group that no other test has."""
    return _id(request, "group")


@pytest.fixture
def tidelog_transactional_id(request: pytest.FixtureRequest) -> str:
    """A transactional id that no other test has."""
    return _id(request, "transaction")


def _id(request: pytest.FixtureRequest, kind: str) -> str:
    name = f"{kind}-{_unique(request)}"
    request.node.stash.setdefault(_ids, []).append(name)
    return name


# -- faults and time -------------------------------------------------------------------------------


@pytest.fixture
def tidelog_faults(
    tidelog_cluster: RunningCluster, _tidelog_clusters: Clusters
) -> Iterator[Faults]:
    """The faults of requests; cleared after the test."""
    yield tidelog_cluster.faults
    _tidelog_clusters.undo(tidelog_cluster, tidelog_cluster.faults.clear)


@pytest.fixture
def tidelog_network(
    tidelog_cluster: RunningCluster, _tidelog_clusters: Clusters
) -> Iterator[Network]:
    """The links of the brokers; healed after the test."""
    yield tidelog_cluster.network
    _tidelog_clusters.undo(tidelog_cluster, tidelog_cluster.network.heal)


@pytest.fixture
def tidelog_devices(
    tidelog_cluster: RunningCluster, _tidelog_clusters: Clusters
) -> Iterator[Devices]:
    """The brokers' disks and remote stores; healed after the test."""
    yield tidelog_cluster.devices
    _tidelog_clusters.undo(tidelog_cluster, tidelog_cluster.devices.heal)


@pytest.fixture
def tidelog_clock(tidelog_cluster: RunningCluster, _tidelog_clusters: Clusters) -> Iterator[Clock]:
    """The time of the brokers; that of the machine after the test."""
    yield tidelog_cluster.clock
    _tidelog_clusters.undo(tidelog_cluster, tidelog_cluster.clock.reset)


# -- the marker, and what surrounds a test ---------------------------------------------------------


def _check_options(options: Mapping[str, Any], where: str) -> None:
    """Fail for options that no cluster has."""
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        text = f"{where}: {unknown[0]} is none of {', '.join(_OPTIONS)}"
        pytest.fail(f"tidelog: {text}", pytrace=False)
    if options.get("profile", "fast") not in _PROFILES:
        text = f"{where}: profile {options['profile']!r} is none of {', '.join(_PROFILES)}"
        pytest.fail(f"tidelog: {text}", pytrace=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give marked tests a cluster with the marker's options; the closest marker wins."""
    if "_tidelog_options" not in metafunc.fixturenames:
        return
    options: dict[str, Any] = {}
    if _is_shared(metafunc.config) and "tidelog_cluster" not in metafunc.fixturenames:
        options[_SHARED] = True
    where = f"marker of {metafunc.definition.nodeid}"
    for marker in reversed(list(metafunc.definition.iter_markers("tidelog"))):
        if marker.args:
            text = f"tidelog: {where}: options have names: brokers=3"
            pytest.fail(text, pytrace=False)
        _check_options(marker.kwargs, where)
        options |= marker.kwargs
    if options.get("security"):
        options.pop(_SHARED, None)  # only the process that has started it knows its users
    if options:
        hidden: Any = getattr(pytest, "HIDDEN_PARAM", "tidelog")  # pytest 8.4
        metafunc.parametrize("_tidelog_options", [options], indirect=True, ids=[hidden])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start brokers that do not run; refuse a marker that pytest cannot apply."""
    names = getattr(item, "fixturenames", ())
    if "_tidelog_options" not in names:
        return
    from unittest import TestCase  # noqa: PLC0415 - for this test

    is_unittest = issubclass(getattr(item, "cls", None) or object, TestCase)
    if is_unittest and item.get_closest_marker("tidelog"):
        text = "pytest applies no options to a unittest.TestCase: use tidelog_cluster_factory"
        pytest.fail(f"{item.name}: @pytest.mark.tidelog: {text}", pytrace=False)
    clusters = item.session.stash.get(_clusters, None)
    if clusters is None:
        return
    from tidelog_storage.base_error import TidelogError  # noqa: PLC0415 - loaded by then

    try:
        for wrong in clusters.mend():
            item.add_report_section("setup", "tidelog", wrong)
    except TidelogError as error:
        pytest.exit(f"tidelog: a broker ended and does not start again: {error}", returncode=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the brokers' log and the state of the topics of a test that failed."""
    report = yield
    clusters = item.session.stash.get(_clusters, None)
    if clusters is not None and report.failed and report.when != "teardown":
        shared = "_tidelog_options" in getattr(item, "fixturenames", ())
        topics: list[str] = item.stash.get(_topics, [])
        ids: list[str] = item.stash.get(_ids, [])
        report.sections += clusters.report(topics, ids, shared=shared)
    return report


# -- simulations -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Choose the brokers, and seeds and faults of the simulated tests."""
    group = parser.getgroup("tidelog")
    group.addoption(
        "--tidelog-brokers", type=int, default=1, metavar="N", help="brokers of a cluster (1)"
    )
    group.addoption(
        "--tidelog-profile",
        choices=_PROFILES,
        default="fast",
        help="fast: short sessions and cleaner intervals (default); kafka: Kafka's",
    )
    group.addoption(
        "--tidelog-shared",
        action="store_true",
        help="one cluster for all pytest-xdist workers, for the tests that do not control it",
    )
    group.addoption(
        "--tidelog-bootstrap",
        metavar="HOST:PORT",
        help="run the tests against this Kafka; those that control their brokers are skipped",
    )
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
    """Declare the markers."""
    config.addinivalue_line(
        "markers",
        "tidelog(brokers=1, settings={}, tiered=False, security=None, profile='fast'): run this"
        " test on a cluster with these options",
    )
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
