"""The doors of Python to a running cluster have the same names and signatures."""

from __future__ import annotations

import asyncio
import inspect
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from tidelog.control import blocking, blocking_cluster_calls, cluster_calls, handles
from tidelog.control.faults import blocking as blocking_faults
from tidelog.control.faults import handles as awaited_faults
from tidelog.control.http_client import HttpControl
from tidelog.embedded.nodes import Node
from tidelog.embedded.running import RunningBroker

if TYPE_CHECKING:
    from types import ModuleType

NO_GROUPS = {"Ask", "Fault", "On"}
HANDLES = {*handles.__all__, *awaited_faults.__all__} - NO_GROUPS  # each is a property of a door
CALLS = ("ask", "reset", "state", "wait_for")
EXAMPLE = Path(__file__).parents[2] / "examples" / "typed" / "doors.py"
DOORS = (tidelog.Cluster, tidelog.RunningCluster, HttpControl)


def function_of(owner: type, name: str) -> Any:
    """The function of a method or a property."""
    member = inspect.getattr_static(owner, name)
    return member.fget if isinstance(member, property) else member


def methods_of(owner: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(value)
        for name, value in vars(owner).items()
        if inspect.isfunction(value)
    }


@pytest.mark.parametrize(
    ("awaited", "blocks"),
    [
        (handles, blocking),
        (awaited_faults, blocking_faults),
        (cluster_calls, blocking_cluster_calls),
    ],
)
def test_blocking_handles_are_the_awaited_ones(awaited: ModuleType, blocks: ModuleType) -> None:
    assert awaited.__all__ == blocks.__all__
    for name in awaited.__all__:
        theirs, ours = getattr(awaited, name), getattr(blocks, name)
        assert list(methods_of(theirs).items()) == list(methods_of(ours).items())
        for method in methods_of(ours):
            assert not inspect.iscoroutinefunction(vars(ours)[method])


def test_every_door_has_every_group_of_handles() -> None:
    assert len(HANDLES) > 5
    for handle in HANDLES:
        gives = [function_of(door, handle.lower()) for door in DOORS]
        assert {inspect.signature(each).return_annotation for each in gives} == {handle}, handle
    for call in CALLS:
        signatures = {inspect.signature(function_of(door, call)) for door in DOORS}
        assert len(signatures) == 1, call


def test_a_cluster_of_this_loop_and_one_in_its_process_have_the_same_methods() -> None:
    for name in ("bootstrap_servers", "create_topic", "delete_topic", "start_brokers"):
        awaited, blocks = (function_of(door, name) for door in DOORS[:2])
        assert inspect.signature(awaited) == inspect.signature(blocks)


def test_handles_of_brokers_have_the_same_methods() -> None:
    for name in ("bootstrap_server", "pid", "is_running", "is_frozen"):
        awaited, blocks = (function_of(each, name) for each in (Node, RunningBroker))
        assert inspect.signature(awaited) == inspect.signature(blocks)
    for name in ("start", "kill", "freeze", "thaw"):
        awaited, blocks = (function_of(each, name) for each in (Node, RunningBroker))
        assert inspect.signature(awaited) == inspect.signature(blocks)
        assert inspect.iscoroutinefunction(awaited)
        assert not inspect.iscoroutinefunction(blocks)


def test_the_typed_example_runs() -> None:
    """`make types` has mypy check it."""
    example = runpy.run_path(str(EXAMPLE))
    assert example["blocking"]() == asyncio.run(example["awaited"]()) == 0
