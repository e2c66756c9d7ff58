"""Which quota holds for a client: Kafka's order of precedence."""

from __future__ import annotations

import pytest

from tidelog.cluster.metadata.image import quota_entity
from tidelog.quotas import limits as limits_module
from tidelog.quotas.limits import Applied, ClientLimits, Usage, applied_quota
from tidelog.quotas.windows import RateWindows

KEY = "producer_byte_rate"
ORDER: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({"user": "u", "client-id": "c"}, ("u", "c")),
    ({"user": "u", "client-id": None}, ("u", "c")),
    ({"user": "u"}, ("u", "")),
    ({"user": None, "client-id": "c"}, ("u", "c")),
    ({"user": None, "client-id": None}, ("u", "c")),
    ({"user": None}, ("u", "")),
    ({"client-id": "c"}, ("", "c")),
    ({"client-id": None}, ("", "c")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_quota_holds(first: int) -> None:
    quotas = {
        quota_entity(entity): {KEY: float(number + 1)}
        for number, (entity, _) in enumerate(ORDER)
        if number >= first
    }
    others = {quota_entity(entity): {"x": 9.0} for entity, _ in ORDER[:first]}
    assert applied_quota({**quotas, **others}, KEY, "u", "c") == Applied(
        *ORDER[first][1], first + 1.0
    )


def test_clients_without_a_quota() -> None:
    quotas = {
        quota_entity({"user": "other"}): {KEY: 1.0},
        quota_entity({"user": "u", "client-id": "other"}): {KEY: 2.0},
        quota_entity({"client-id": "other"}): {KEY: 3.0},
        quota_entity({"ip": None}): {KEY: 4.0},
    }
    assert applied_quota(quotas, KEY, "u", "c") is None
    default = {quota_entity({"client-id": None}): {KEY: 1.0}}
    assert applied_quota(default, KEY, "u", "") is None, "there is no client id"
    assert applied_quota({quota_entity({"user": None}): {KEY: 1.0}}, KEY, "u", "") == Applied(
        "u", "", 1.0
    )


def limited(**quotas: float) -> ClientLimits[Usage]:
    return ClientLimits(KEY, by_client(**quotas), lambda limit: Usage(limit, RateWindows(2, 1)))


def by_client(**quotas: float) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    return {
        quota_entity({"client-id": None if name == "default" else name}): {KEY: limit}
        for name, limit in quotas.items()
    }


def test_clients_under_a_default_are_counted_each_on_their_own() -> None:
    limits = limited(default=5.0)
    one, other = limits.usage("u", "one"), limits.usage("u", "other")
    assert one is not None
    assert one is not other
    assert one is limits.usage("u", "one")
    assert limits.usage("u", None) is None


def test_a_changed_quota_holds_at_once_and_what_was_used_stays() -> None:
    limits = limited(default=5.0)
    usage = limits.usage("u", "c")
    assert usage is not None
    usage.charge(10, 0)
    limits.change(by_client(c=2.0))
    assert limits.usage("u", "c") is usage
    assert usage.limit == 2.0
    assert usage.rate.rate(0) == 10
    limits.change(by_client(d=2.0))
    assert limits.usage("u", "c") is None


def test_users_with_one_client_id_are_counted_each_on_their_own() -> None:
    quotas = {quota_entity({"user": "a"}): {KEY: 1.0}, quota_entity({"user": None}): {KEY: 2.0}}
    limits = ClientLimits(KEY, quotas, lambda limit: Usage(limit, RateWindows(2, 1)))
    found = [limits.usage(user, "c") for user in ("a", "b", "c")]
    assert [usage and usage.limit for usage in found] == [1.0, 2.0, 2.0]
    assert found[1] is not found[2]
    assert limits.usage("b", "other") is found[1], "a user shares its quota among its clients"


def test_the_number_of_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "CLIENTS_MAX", 3)
    limits = limited(default=5.0)
    for number in range(10):
        limits.usage("u", f"c{number}")
    assert [client_id for _, client_id in limits.usages] == ["c7", "c8", "c9"]


def test_average_throttle_time() -> None:
    usage = Usage(5.0, RateWindows(2, 1))
    assert usage.throttle_time_ms == 0
    usage.note_throttle(10)
    usage.note_throttle(30)
    assert usage.throttle_time_ms == 20
