"""What holds for every test: hypothesis tries the same examples in each run, however long it takes.

A deadline would make the load of the machine a reason to fail, and so would the time that examples
take to be made.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ("support.loop_watch", "support.processes", "support.remote_places")

TESTS_OF_A_MODULE = 2  # in a sample
COLLECT_AFTER = 50_000  # new objects; after 700, a seventh of a simulated run is spent on garbage

settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("sample", settings.get_profile("same"), max_examples=10)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample",
        action="store_true",
        help="the first case of the first tests of each module, and few examples of each property",
    )


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all tests are collected: what they are made of stays
    settings.load_profile("sample" if config.getoption("--sample") else "same")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Choose the sample from what `-m` and `-k` leave, however the tests are mixed. Then put long
    tests first: at the end, one core would wait for the other."""
    # By identity: the hash of an item is that of its node id, to which xdist adds the group.
    listed = {id(item): place for place, item in enumerate(items)}
    yield
    if config.getoption("--sample"):
        chosen = {id(item) for item in sample(sorted(items, key=lambda item: listed[id(item)]))}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
        items[:] = [item for item in items if id(item) in chosen]
    items.sort(key=lambda item: "slow" not in item.keywords)


def sample(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """The first case of the first tests of each module."""
    tests: dict[str, set[str]] = {}
    for item in items:
        test, _, _ = item.nodeid.partition("[")
        seen = tests.setdefault(test.partition("::")[0], set())
        if test not in seen and len(seen) < TESTS_OF_A_MODULE:
            seen.add(test)
            yield item


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays to the end: it is not gone through again and again
    for garbage."""
    gc.enable()
    gc.set_threshold(COLLECT_AFTER)
    gc.collect()
    gc.freeze()


@pytest.fixture
def epochs_from_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first member of a KIP-848 group joins in epoch 1, to make tests easy to read; else 2."""
    monkeypatch.setattr("tidelog.coordinators.groups.modern.group.FIRST_EPOCH", 0)
