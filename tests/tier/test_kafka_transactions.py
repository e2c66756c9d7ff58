"""Apache Kafka's transaction suite on tiered topics, a batch per segment (kafka-tests 2.15,
TransactionsWithTieredStore): by the Java client, which speaks the protocol of KIP-890, and by
librdkafka, which speaks the one before; in each place that a tier can be in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.conftest import Client, ClientPool
from compat.line_process import WorkerError
from support.clusters import until
from support.remote_places import place_of
from tidelog.coordinators.transactions.transaction import EPOCH_MAX
from tier.conftest import properties_of
from tier.harness import READ_COMMITTED, READ_UNCOMMITTED
from tier.threaded import Threaded
from tier.transactional import SETTINGS, TIMED_OUT, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.compat

NIGHTLY = pytest.mark.nightly
PLACES = {"directory": [], "moto": [NIGHTLY], "versitygw": [NIGHTLY]}
CLIENTS = ["java", "librdkafka"]
JAVA = pytest.mark.parametrize("world", ["java"], indirect=True)  # both would do the same
FENCED = r"(?i)fenced|epoch|newer"


@pytest.fixture(
    scope="module",
    params=[  # with brokers of their own, so they may run side by side
        pytest.param(name, marks=[pytest.mark.xdist_group(f"transactions on {name}"), *marks])
        for name, marks in PLACES.items()
    ],
)
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Threaded]:
    with (
        place_of(request, tmp_path_factory.mktemp("place")) as place,
        Threaded(properties_of(place), brokers=3, settings=SETTINGS) as it,
    ):
        yield it


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPool]:
    pool = ClientPool(tmp_path_factory.mktemp("clients"))
    yield pool
    pool.end_test(failed=True)


@pytest.fixture(params=CLIENTS)
def world(request: pytest.FixtureRequest, brokers: Threaded, programs: ClientPool) -> World:
    return World(brokers, Client(request.param, programs.get(request.param), ""))


# ---- what readers see ----------------------------------------------------------------------------


def test_basic_commit_and_abort(world: World) -> None:
    first, second = world.topic(2), world.topic(3)
    world.open(world.name("id"))
    world.send(second, "2", partition=2, begin=True)
    world.send(first, "4", partition=1)
    for place in ((first, 1), (second, 2)):  # nothing is decided, so nothing is remote
        world.starts(*place, 0, 0)
    world.end(commit=False)
    for place in ((first, 1), (second, 2)):  # the record, not its marker
        world.starts(*place, 0, 1)
    ((producer_id, epoch),) = world.epochs(first, 1).items()
    world.send(first, "1", partition=1, begin=True)
    world.send(second, "3", partition=2)
    for place in ((first, 1), (second, 2)):  # the marker as well: the records have sealed its part
        world.starts(*place, 0, 2)
    world.end(commit=True)
    for place in ((first, 1), (second, 2)):
        world.starts(*place, 0, 3)
    assert world.read(first, 1, partition=1) == ["1"]
    assert world.read(second, 1, partition=2) == ["3"]
    assert world.read(first, 2, partition=1, committed=False) == ["4", "1"]
    assert world.read(second, 2, partition=2, committed=False) == ["2", "3"]
    assert world.transaction_indexes(first, 1) == {1}, "what tells that 0 is aborted is remote"
    # Each protocol was spoken: KIP-890 ends every transaction with an epoch of its own.
    assert world.epochs(first, 1) == {producer_id: epoch + 1 if world.is_v2 else epoch}
    world.close()


@JAVA
def test_read_committed_never_sees_undecided_data(world: World) -> None:
    topic = world.topic()
    world.open(world.name("id"), "one")
    world.open(world.name("id"), "two")
    visible = world.cluster.now_ms()
    written = visible + 1
    world.send(topic, "x1", producer="two", begin=True, timestamp=visible)
    world.send(topic, "a", "b", producer="one", begin=True, timestamp=written)
    world.send(topic, "x2", producer="two", timestamp=written)
    world.end("two", commit=True)
    # One record is below the last stable offset: only its segment may go.
    world.starts(topic, 0, 0, 1)
    assert world.read(topic, 4, committed=False) == ["x1", "a", "b", "x2"]
    assert world.read(topic, 1) == ["x1"]
    assert (world.latest(topic, committed=True), world.latest(topic, committed=False)) == (1, 5)
    for isolation, found in ((READ_UNCOMMITTED, 1), (READ_COMMITTED, -1)):
        asked = world.cluster.list_offsets(topic, 0, written, isolation=isolation)
        assert world.run(asked)[1] == found
    world.end("one", commit=True)
    world.starts(topic, 0, 0, 5)
    assert world.read(topic, 4) == ["x1", "a", "b", "x2"]
    world.close("one", "two")


@JAVA
def test_a_parked_fetch_carries_aborted_transactions(world: World) -> None:
    topic = world.topic()
    world.open(world.name("id"), "one")
    world.open(world.name("id"), "two")
    world.send(topic, "x1", producer="two", begin=True)
    world.send(topic, "y1", "y2", producer="one", begin=True)
    world.send(topic, "x2", producer="two")
    world.starts(topic, 0, 0, 0)
    world.end("one", commit=False)
    world.end("two", commit=True)
    world.starts(topic, 0, 0, 5)
    waits = {"fetch_min_bytes": 100_000, "fetch_max_wait_ms": 100}
    found = world.read_with_offsets(topic, 2, committed=True, **waits)
    assert found == [(0, "x1"), (3, "x2")]
    world.close("one", "two")


@JAVA
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=NIGHTLY)])
def test_copies_commit_their_offsets_with_the_groups_metadata(world: World, protocol: str) -> None:
    count, each = 160, 40
    source, to = world.topic(2), world.topic()
    world.open(world.name("id"))
    for first in range(0, count, each):
        world.send_many(source, range(first, first + each), 2, begin=True)
        world.end(commit=True)
    world.close()
    world.moved((source, 0), (source, 1))
    fields = {"topic": source, "to": to, "group": world.name("group")}
    fields |= {"transactional_id": world.name("id"), "protocol": protocol}
    for commit in (False, True) * (count // each):
        assert world.call("copy", count=each, commit=commit, **fields) == {"copied": each}
    world.decided(to)
    world.moved((to, 0))
    found = world.read(to, count)
    assert sorted(map(int, found)) == list(range(count)), "lost or doubled"


@JAVA
def test_the_metadata_of_an_offset_is_committed_with_it(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    world.open(world.name("id"))
    world.begin()
    place = {"group": group, "topic": topic, "partition": 0}
    world.call("txn_offsets", producer="one", offset=110, metadata="some metadata", **place)
    world.end(commit=True)
    seen = {"offset": -1}
    while seen["offset"] < 0:  # the markers follow the answer
        seen = world.call("committed", **place)
    assert seen == {"offset": 110, "metadata": "some metadata"}
    world.close()


@JAVA
def test_several_markers_for_one_leader(world: World) -> None:
    large, lonely = world.topic(5), world.topic(5, (0,))
    world.open(world.name("id"))
    world.send_many(large, range(200), 5, begin=True)
    world.send_many(lonely, range(200, 400), 5, begin=False)
    world.end(commit=False)
    world.send_many(large, range(400, 440), 5, begin=True)
    world.end(commit=True)
    for index in range(5):
        world.decided(large, index)
        world.decided(lonely, index)
        world.moved((large, index), (lonely, index))
        of_it = range(index, 440, 5)
        wanted = [str(value) for value in of_it if value >= 400]
        assert world.read(large, 8, partition=index) == wanted
        wanted = [str(value) for value in of_it if not 200 <= value < 400]
        assert world.read(large, 48, partition=index, committed=False) == wanted
        wanted = [str(value) for value in of_it if 200 <= value < 400]
        assert world.read(lonely, 40, partition=index, committed=False) == wanted
    world.close()


def test_an_empty_abort_after_a_commit(world: World) -> None:
    topic = world.topic()
    world.open(world.name("id"))
    world.send(topic, "4", begin=True)
    world.end(commit=True)
    world.begin()
    world.end(commit=False)
    world.send(topic, "5", begin=True)
    world.end(commit=True)
    world.moved((topic, 0))
    assert world.read(topic, 2) == ["4", "5"]
    world.close()


# ---- fencing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "by"),
    [
        (client, by)
        for by in ("send", "commit", "send offsets", "add partitions")
        for client in CLIENTS
        if client == "java" or by in ("send", "commit")
    ],
    indirect=["world"],
)
def test_an_older_producer_is_fenced(world: World, by: str) -> None:
    topic, transactional_id = world.topic(3), world.name("id")
    world.open(transactional_id, "older")
    for partition in (0, 1):
        world.send(topic, "old", producer="older", partition=partition, begin=partition == 0)
    if by == "add partitions":
        world.end("older", commit=False)
    world.open(transactional_id, "newer")  # aborts what is open
    for partition in (0, 1):
        world.send(topic, "new", producer="newer", partition=partition, begin=partition == 0)
    place = {"group": world.name("group"), "topic": topic, "partition": 0}
    tries: dict[str, Callable[[], object]] = {
        "send": lambda: world.send(topic, "late", producer="older"),
        "commit": lambda: world.end("older", commit=True),
        "send offsets": lambda: world.call("txn_offsets", producer="older", offset=1, **place),
        "add partitions": lambda: world.send(
            topic, "late", producer="older", partition=2, begin=True
        ),
    }
    with pytest.raises(WorkerError, match=FENCED):
        tries[by]()
    world.end("newer", commit=True)
    for partition in (0, 1):
        world.decided(topic, partition)
        world.moved((topic, partition))
        assert world.read(topic, 1, partition=partition) == ["new"]
    assert world.read(topic, 2, committed=False) == ["old", "new"]
    assert world.leader_log(topic, 2).log_end_offset == 0
    world.close("older", "newer")


def test_a_transaction_that_expires_fences_its_producer(world: World) -> None:
    topic, transactional_id = world.topic(), world.name("id")
    world.open(transactional_id)
    world.send(topic, "1", begin=True)
    world.expire(transactional_id)
    held = world.leader_log(topic)
    world.run(until(lambda: held.last_stable_offset == 2, "the transaction is aborted"))
    with pytest.raises(WorkerError, match=r"(?i)fenced|epoch|concurrent|timed out|txn_state"):
        world.send(topic, "2")
    world.close()
    world.open(world.name("id"))
    world.send(topic, "3", begin=True)
    world.end(commit=True)
    world.moved((topic, 0))
    assert world.read(topic, 2, committed=False) == ["1", "3"]
    assert world.read(topic, 1) == ["3"]
    world.close()


@JAVA
def test_transactions_are_initialised_once(world: World) -> None:
    world.open(world.name("id"))
    with pytest.raises(WorkerError, match=r"(?i)state"):
        world.call("txn_init", producer="one")
    world.close()


# ---- brokers that are away -----------------------------------------------------------------------


@JAVA
def test_time_outs_of_init_send_offsets_commit_and_abort(world: World) -> None:
    topic, fields = world.topic(), {"max_block_ms": 700}
    world.call("txn_open", producer="init", transactional_id=world.name("id"), init=False, **fields)
    for producer in ("offsets", "commit", "abort"):
        world.open_and_send(world.name("id"), topic, producer, **fields)
    world.kill(0, 1, 2)
    with pytest.raises(WorkerError, match=TIMED_OUT):
        world.call("txn_init", producer="init", **fields)
    place = {"group": world.name("group"), "topic": topic, "partition": 0}
    with pytest.raises(WorkerError, match=TIMED_OUT):
        world.call("txn_offsets", producer="offsets", offset=0, **place, **fields)
    for producer in ("commit", "abort"):
        with pytest.raises(WorkerError, match=TIMED_OUT):
            world.call("txn_end", producer=producer, commit=producer == "commit", **fields)
    world.close("init", "offsets", "commit", "abort")
    world.start(0, 1, 2)


def test_an_epoch_is_raised_after_a_batch_that_never_came(world: World) -> None:
    """Of a topic whose only replica is away for longer than the producer waits."""
    first, alone = world.topic(), world.topic(1, (2,))
    world.open(world.name("id"), delivery_timeout_ms=1500)
    world.commit((alone, "4"))
    ((producer_id, epoch),) = world.epochs(alone).items()
    world.begin()
    world.stop(2)
    with pytest.raises(WorkerError, match=TIMED_OUT):
        world.send(alone, "3")
    world.start(2)
    world.leader_log(alone)
    world.end(commit=False)
    world.commit((first, "4"), (alone, "1"), (alone, "3"))
    for topic in (first, alone):
        world.decided(topic)
        world.moved((topic, 0))
    assert world.read(first, 1) == ["4"]
    assert world.read(alone, 3) == ["4", "1", "3"]
    assert world.epochs(alone)[producer_id] > epoch
    world.close()


def test_a_fence_that_fails_raises_the_epoch_once(world: World) -> None:
    topic, transactional_id = world.topic(), world.name("id")
    world.open(transactional_id, "one")
    world.send(topic, "4", producer="one", begin=True)
    world.end("one", commit=True)
    world.decided(topic)
    ((producer_id, epoch),) = world.epochs(topic).items()
    world.leave_alone(2)
    fields = {"producer": "two", "transactional_id": transactional_id}
    with pytest.raises(WorkerError, match=rf"{TIMED_OUT}|coordinator not available"):
        world.call("txn_open", max_block_ms=1000, **fields)
    world.start(0, 1)
    world.open(transactional_id, "three")
    world.send(topic, "5", producer="three", begin=True)
    world.end("three", commit=True)
    world.decided(topic)
    ends = 1 if world.is_v2 else 0  # each raises it once more
    assert world.epochs(topic) == {producer_id: epoch + 1 + ends}
    world.moved((topic, 0))
    assert world.read(topic, 2) == ["4", "5"]
    world.close("one", "three")


def test_the_last_epoch_is_followed_by_a_new_producer_id(world: World) -> None:
    """KAFKA-20090: the transaction of the last epoch runs out of time."""
    topic, transactional_id = world.topic(), world.name("id")
    world.open(transactional_id, "one")
    world.send(topic, "aborted", producer="one", begin=True)
    world.end("one", commit=False)
    world.decided(topic)
    world.close("one")
    ((old_id, _),) = world.epochs(topic).items()
    transaction = world.transaction(transactional_id)
    transaction.value = transaction.value._replace(producer_epoch=EPOCH_MAX - 2)
    world.open(transactional_id, "two")
    assert transaction.value.producer_epoch == EPOCH_MAX - 1
    world.send(topic, "aborted", producer="two", begin=True)
    world.expire(transactional_id)
    world.decided(topic)
    if world.is_v2:
        world.end("two", commit=False)
        world.send(topic, "aborted", producer="two", begin=True)
    world.open(transactional_id, "three")
    world.send(topic, "committed", producer="three", begin=True)
    world.end("three", commit=True)
    world.decided(topic)
    world.moved((topic, 0))
    assert world.read(topic, 1) == ["committed"]
    assert set(world.epochs(topic)) > {old_id}, "a new producer id"
    world.close("two", "three")
