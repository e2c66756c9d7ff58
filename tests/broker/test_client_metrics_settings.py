"""Settings of a subscription of clients' metrics; codes and texts are those of Kafka 4.3.1."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from support.altered import alter_configs
from support.metadata import cluster
from tidelog.cluster.controller.configs import Change, Resource
from tidelog.cluster.metadata.describe import describe_client_metrics
from tidelog.config.client_metrics import subscription_of
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.config_key import ConfigError

METRICS = 16
SET, DELETE, APPEND = 0, 1, 2
IMAGE = cluster()._replace(client_metrics={"s": {"metrics": "a.,b.", "interval.ms": "100"}})
INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG


def alter(name: str, *changes: tuple[str, int, str | None], replaces: bool = False) -> Any:
    """The records of a change, and its code and text."""
    resource = Resource(METRICS, name, [Change(*change) for change in changes], replaces)
    records, (result,) = alter_configs(IMAGE, None, [resource])  # type: ignore[arg-type]
    written = [(one.resource_name, one.name, one.value) for one in cast("list[Any]", records)]
    return written, result.code, result.message


def test_a_subscription_is_set_changed_and_deleted() -> None:
    assert alter("n", ("metrics", SET, "*"), ("match", SET, "client_id=a")) == (
        [("n", "metrics", "*"), ("n", "match", "client_id=a")],
        ErrorCode.NONE,
        None,
    )
    changed = alter("s", ("interval.ms", SET, "100"), ("metrics", SET, ""))
    assert changed[0] == [("s", "metrics", "")]
    keys = ("metrics", "interval.ms", "match")
    assert alter("s", *[(key, DELETE, None) for key in keys])[0] == [
        ("s", "metrics", None),
        ("s", "interval.ms", None),
    ]
    assert alter("s", ("interval.ms", SET, "200"), replaces=True)[0] == [
        ("s", "interval.ms", "200"),
        ("s", "metrics", None),
    ]


@pytest.mark.parametrize(
    ("name", "key", "value", "code", "text"),
    [
        ("", "metrics", "*", INVALID_REQUEST, "Subscription name can't be empty"),
        ("s", "no.key", "1", INVALID_REQUEST, "Unknown client metrics configuration: no.key"),
        (
            "s",
            "interval.ms",
            "99",
            INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            "s",
            "interval.ms",
            "x",
            INVALID_CONFIG,
            "Invalid value x for configuration interval.ms: Not a number of type INT",
        ),
        (
            "s",
            "metrics",
            "a,,b",
            INVALID_CONFIG,
            "Configuration 'metrics' values must not be empty.",
        ),
        *(
            ("s", "match", one, INVALID_CONFIG, f"Illegal client matching pattern: {one}")
            for one in (
                "x",
                "=",
                "client_id",
                "client_id=",
                "=a",
                "nope=a",
                "client_id=a=b",
                "client_id=(",
            )
        ),
    ],
)
def test_settings_that_are_refused(
    name: str, key: str, value: str, code: ErrorCode, text: str
) -> None:
    assert alter(name, (key, SET, value)) == ([], code, text)


def test_nothing_is_appended() -> None:
    text = "Can't APPEND to key metrics because its type is not LIST."
    assert alter("s", ("metrics", APPEND, "c.")) == ([], INVALID_CONFIG, text)


@pytest.mark.parametrize(
    ("match", "client_id", "matches"),
    [
        ("client_id=a.b", "a.b", True),
        ("client_id=a.b", "axb", True),
        ("client_id=a b", "a b", True),
        (" client_id = app-[0-9]+ ", "app-17", True),
        ("client_id=app", "app-1", False),
        ("client_id=app=", "app", True),
        ("client_id=a,client_id=b", "b", True),
        ("client_id=a,client_id=b", "a", False),
        ("client_source_port=1", "a", False),
    ],
)
def test_which_clients_match(match: str, client_id: str, matches: bool) -> None:
    assert subscription_of({"match": match}).matches({"client_id": client_id}) is matches


def test_without_google_re2_only_plain_texts_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidelog.config.patterns", raising=False)
    monkeypatch.setitem(sys.modules, "re2", None)
    assert subscription_of({"match": "client_id=app-1"}).matches({"client_id": "app-1"})
    with pytest.raises(ConfigError, match=r"tidelog\[re2\]") as caught:
        subscription_of({"match": "client_id=app-.*"})
    assert caught.value.message.startswith("Illegal client matching pattern: client_id=app-.*")


def test_a_description_has_all_settings_and_synonyms_of_those_set() -> None:
    found = [
        (one.name, one.value, one.source, one.type_code, [tuple(each) for each in one.synonyms])
        for one in describe_client_metrics(IMAGE, "s")
    ]
    assert found == [
        ("interval.ms", "100", 7, 3, [("interval.ms", "100", 7)]),
        ("match", "", 5, 7, []),
        ("metrics", "a.,b.", 7, 7, [("metrics", "a.,b.", 7)]),
    ]
    (entry,) = describe_client_metrics(IMAGE, "none", ["interval.ms", "nope"])
    assert (entry.value, entry.source) == ("300000", 5)
