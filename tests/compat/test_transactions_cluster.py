"""Copies that commit records with their offsets, of nearly every client, while the broker dies that
coordinates the transactions: nothing is lost, and nothing is copied twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from compat.clients.protocol import decoded, encoded
from compat.conftest import CLIENTS, Client, of_a_cluster
from compat.eventually import eventually
from support.clusters import FAST, create_topic, leader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat.conftest import ClientPool

pytestmark = [
    pytest.mark.compat,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("clients of a cluster"),
]

SETTINGS = {
    **FAST,
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "1",
}
# kafka-python 3.0.12 forgets the request it was about to send when its coordinator refuses the
# connection (Sender, the handler of that error): the call then waits for ever, or for max_block_ms.
STEADY = [name for name in CLIENTS if name != "kafka-python"]
EACH, ALL = 20, 200
HALF_S_MAX = 120
TRIES_MAX = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[tidelog.RunningCluster]:
    with tidelog.run(SETTINGS, brokers=3, isolated=True) as running:
        yield running


@pytest.fixture(autouse=True)
def _all_brokers(cluster: tidelog.RunningCluster) -> Iterator[None]:
    """A test that fails after its kill leaves the next one all three."""
    yield
    cluster.start_brokers()


@pytest.fixture(params=of_a_cluster(*STEADY))
def client(
    request: pytest.FixtureRequest, client_pool: ClientPool, cluster: tidelog.RunningCluster
) -> Client:
    return Client(request.param, client_pool.start(request.param), cluster.bootstrap_servers)


@pytest.fixture
def onlooker(client_pool: ClientPool, cluster: tidelog.RunningCluster) -> Client:
    return Client("librdkafka", client_pool.get("librdkafka"), cluster.bootstrap_servers)


class Copier(threading.Thread):
    """Copies piece after piece, each a consumer's and a producer's whole life.

    A piece that fails is begun anew by the next producer of the same transactional id, from where
    the group's offsets are. At half it waits for `finish`: a slow machine may look only then.
    """

    def __init__(self, client: Client, onlooker: Client, fields: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.copied = 0
        self.failures: list[str] = []
        self._client, self._onlooker, self._fields = client, onlooker, fields
        self._may_finish = threading.Event()
        self.start()

    def finish(self) -> None:
        """Let it copy the second half."""
        self._may_finish.set()

    def run(self) -> None:
        for _ in range(TRIES_MAX):
            try:
                where = {name: self._fields[name] for name in ("group", "topic")}
                self.copied = max(
                    self._onlooker.call("committed", partition=0, **where)["offset"], 0
                )
                if self.copied == ALL:
                    return
                if self.copied >= ALL // 2:
                    self._may_finish.wait(HALF_S_MAX)
                count = min(EACH, ALL - self.copied)
                self._client.call("copy", count=count, commit=True, **self._fields)
            except Exception as failure:  # noqa: BLE001 - the test looks at them
                self.failures.append(f"{self.copied}: {failure!r}")


@pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.nightly)]
)
def test_copies_are_exact_while_the_coordinator_dies(
    protocol: str,
    client: Client,
    onlooker: Client,
    cluster: tidelog.RunningCluster,
    fresh: Callable[[str], str],
) -> None:
    if protocol == "consumer" and client.name not in ("java", "librdkafka"):
        pytest.skip("its driver copies by the classic protocol alone")
    topic, to, transactional_id = fresh("from"), fresh("to"), fresh("id")
    for name in (topic, to):
        create_topic(client.bootstrap, name, 1, 3, min_insync_replicas="2")
    records = [
        {"key": None, "value": encoded(b"%d" % number), "partition": 0} for number in range(ALL)
    ]
    options = {"codec": "none", "acks": "all", "idempotent": True}
    onlooker.call("produce", topic=topic, records=records, **options)
    fields: dict[str, Any] = {"topic": topic, "to": to, "group": fresh("group")}
    fields["protocol"] = protocol
    # Offsets of a transaction that nobody ended hold back who asks for the group's (KIP-447).
    fields |= {"transactional_id": transactional_id, "timeout_ms": 5000}
    copier = Copier(client, onlooker, fields)
    eventually(lambda: copier.copied, lambda copied: copied >= EACH, 60)

    victim = cluster.brokers[leader_of(onlooker.bootstrap, "__transaction_state") - 1]
    victim.kill()
    at = copier.copied
    copier.finish()
    copied, _ = eventually(
        lambda: (copier.copied, copier.failures),
        lambda seen: seen[0] >= min(at + 3 * EACH, ALL) or not copier.is_alive(),
        90,
    )
    assert copied > at, copier.failures
    victim.start()
    copier.join(90)
    assert copier.copied == ALL, copier.failures
    read = onlooker.call(
        "consume", topic=to, partition=0, count=ALL, committed=True, **{"from": "earliest"}
    )
    assert [int(decoded(each["value"]) or b"") for each in read["records"]] == list(range(ALL))
