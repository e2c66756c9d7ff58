"""Which subscriptions a client has, and when it may ask and push: Kafka's ClientMetricsManager."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.metrics import client_instances
from tidelog.metrics.client_instances import (
    ClientInstance,
    ClientInstances,
    PushHead,
    Wanted,
    id_text,
)
from tidelog_protocol.errors import ErrorCode

NONE, THROTTLED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
UNKNOWN_SUBSCRIPTION = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
INTERVAL_MS = 1000
JAVA = {"client_id": "app-1", "client_software_name": "apache-kafka-java"}


def push(instance: ClientInstance, **more: Any) -> PushHead:
    head = PushHead(instance.subscription_id, terminating=False, codec=4, size=10)
    return head._replace(**more)


def new_instance() -> ClientInstance:
    return ClientInstance(b"i" * 16, JAVA, Wanted(("a.",), INTERVAL_MS), 0)


class Broker(ClientInstances):
    """Instances of a broker whose subscriptions the test sets."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.settings = subscriptions
        self.warnings: list[tuple[object, ...]] = []
        self._ids = iter(range(1, 1000))
        super().__init__(
            lambda: self.settings,
            lambda: next(self._ids).to_bytes(16, "big"),
            lambda *args: self.warnings.append(args),
        )

    def ask(
        self, name: bytes = b"1", now_ms: int = 0, by: object = "c", **attributes: str
    ) -> ClientInstance:
        return self.instance(name * 16, {**JAVA, **attributes}, by, now_ms)[0]


# -- one instance ----------------------------------------------------------------------------------


def test_one_request_for_subscriptions_in_an_interval() -> None:
    instance = new_instance()
    assert [instance.check_get(now) for now in (0, 999, 1000)] == [NONE, THROTTLED, NONE]


def test_a_push_counts_as_a_request_for_subscriptions() -> None:
    instance = new_instance()
    assert instance.check_get(0) is NONE
    assert instance.check_push(push(instance), 100, 500) is NONE
    assert [instance.check_get(now) for now in (1499, 1500)] == [THROTTLED, NONE]


def test_the_first_push_may_come_early_and_the_next_waits() -> None:
    instance = new_instance()
    instance.check_get(0)
    codes = [instance.check_push(push(instance), 100, now) for now in (1, 2, 1000, 1001)]
    assert codes == [NONE, THROTTLED, THROTTLED, NONE]


def test_a_last_push_comes_at_any_time_and_none_follows() -> None:
    instance = new_instance()
    instance.check_get(0)
    assert instance.check_push(push(instance), 100, 1) is NONE
    assert instance.check_push(push(instance, terminating=True), 100, 2) is NONE
    assert instance.check_push(push(instance), 100, 2000) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("wrong", "code", "may_ask"),
    [
        ({"subscription_id": 5}, UNKNOWN_SUBSCRIPTION, True),
        ({"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, True),
        ({"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, True),
        ({"size": 101}, ErrorCode.TELEMETRY_TOO_LARGE, False),
        ({"subscription_id": 5, "codec": 9, "size": 101}, UNKNOWN_SUBSCRIPTION, True),
        ({"codec": 0}, NONE, False),
    ],
)
def test_wrong_pushes(wrong: dict[str, int], code: ErrorCode, may_ask: bool) -> None:
    """After errors that tell the client to ask again it may do so at once."""
    instance = new_instance()
    instance.check_get(0)
    assert instance.check_push(push(instance, **wrong), 100, 1) is code
    assert instance.check_get(2) is (NONE if may_ask else THROTTLED)


def test_a_subscription_id_is_kafkas_and_of_the_client() -> None:
    """CRC-32C of "[*]300000", XORed with the hash of Kafka's Uuid."""
    assert Wanted(("*",), 300000).subscription_id(bytes(16)) == 1012207395
    assert Wanted(("*",), 300000).subscription_id(b"\x80" + bytes(15)) == -1135276253
    ids = {Wanted(names, 100).subscription_id(b"i" * 16) for names in ((), ("a",), ("a", "b"))}
    assert len(ids) == 3


# -- all of them -----------------------------------------------------------------------------------


def test_subscriptions_that_match_are_joined() -> None:
    broker = Broker(
        a={"metrics": "x.,y.", "interval.ms": "5000"},
        b={"metrics": "y.,z.", "interval.ms": "2000", "match": "client_id=app-.*"},
        other={"metrics": "q.", "interval.ms": "100", "match": "client_id=app"},
        rust={"metrics": "q.", "match": "client_id=app-1,client_software_name=rust"},
    )
    assert broker.ask().wanted == (("x.", "y.", "z."), 2000)
    assert not broker.warnings


def test_without_subscriptions_nothing_is_wanted() -> None:
    assert Broker().ask().wanted == ((), 300000)
    assert Broker(a={"metrics": "*", "interval.ms": "400000"}).ask().wanted == (("*",), 300000)


def test_a_star_stands_for_all_others() -> None:
    assert Broker(a={"metrics": "x."}, b={"metrics": "*"}).ask().wanted.metrics == ("*",)


def test_a_change_of_subscriptions_makes_a_client_ask_again() -> None:
    broker = Broker()
    first = broker.ask()
    assert first.check_get(0) is NONE
    broker.settings = dict(broker.settings)  # the same, after a change of something else
    assert broker.ask() is first
    broker.settings = {"a": {"metrics": "x."}}
    second = broker.ask()
    assert second.check_push(push(first), 100, 1) is UNKNOWN_SUBSCRIPTION
    assert second.check_get(2) is NONE
    assert second.wanted.metrics == ("x.",)


def test_a_subscription_that_cannot_be_read_has_no_effect() -> None:
    broker = Broker(a={"metrics": "x.", "match": "client_id=(?!a)"}, b={"metrics": "y."})
    assert broker.ask().wanted.metrics == ("y.",)
    ((_, name, error),) = broker.warnings
    assert (name, str(error)) == ("a", "Illegal client matching pattern: client_id=(?!a)")


def test_an_instance_ends_with_its_connection() -> None:
    broker = Broker()
    first = broker.ask(by="c")
    assert broker.ask(by="d") is first
    broker.closed("d")
    assert broker.ask(by="d") is first
    broker.closed("c")
    assert broker.ask(by="d") is not first


def test_each_connection_is_followed_once() -> None:
    broker = Broker()
    follows = [broker.instance(bytes([i]) * 16, JAVA, by, 0)[1] for i, by in enumerate("ccd")]
    assert follows == [True, False, True]


def test_a_quiet_instance_is_forgotten() -> None:
    broker = Broker(a={"metrics": "x.", "interval.ms": "100"}, b={"interval.ms": "30000"})
    first = broker.ask()
    assert broker.ask(now_ms=59_999) is first
    assert [broker.count(now) for now in (119_998, 119_999)] == [1, 0]
    assert broker.ask(now_ms=119_999) is not first
    broker.settings = {"a": {"interval.ms": "30000"}}
    broker.ask(now_ms=200_000)
    assert [broker.count(now) for now in (289_999, 290_000)] == [1, 0]


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_instances, "INSTANCES_MAX", 2)
    broker = Broker()
    first, second = broker.ask(b"1"), broker.ask(b"2")
    assert broker.ask(b"1") is first
    broker.ask(b"3")
    assert broker.count(0) == 2
    assert broker.ask(b"1") is first
    assert broker.ask(b"2") is not second


def test_new_ids_are_unused_and_look_like_no_option() -> None:
    broker = Broker()
    broker.ask(bytes(1))
    made = iter([bytes(16), bytes(15) + b"\x01", b"\xf8" + bytes(15), b"x" * 16])
    broker._new_id = lambda: next(made)
    assert id_text(b"\xf8" + bytes(15)).startswith("-")
    assert broker.unused_id() == b"x" * 16
