"""All doors to a running cluster have the same names: Python's two and HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import runpy
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

import tidelog
from tidelog.control import blocking, blocking_cluster_calls, cluster_calls, handles
from tidelog.control.faults import blocking as blocking_faults
from tidelog.control.faults import handles as awaited_faults
from tidelog.control.faults import rules
from tidelog.control.http_client import HttpControl
from tidelog.control.running_broker import RunningBrokers
from tidelog.control.table import CALLS as TABLE
from tidelog.control.values import from_json
from tidelog.embedded.nodes import Node
from tidelog.embedded.running import RunningBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

NO_GROUPS = {"Ask", "Fault", "On"}
HANDLES = {*handles.__all__, *awaited_faults.__all__} - NO_GROUPS  # each is a property of a door
CALLS = ("ask", "reset", "state", "wait_for")
PAGE = Path(handles.__file__).parent / "page"
EXAMPLE = Path(__file__).parents[2] / "examples" / "typed" / "doors.py"
# What only Python has, by the call that does it over HTTP.
ONLY_PYTHON = {
    "cluster.ask": None,  # any call, by its name
    "cluster.client_config": None,  # by cluster.security and the folder that it names
    "cluster.change_brokers": None,  # `ask` for handles of brokers
    "cluster.create_topic": "topics.create",
    "cluster.delete_topic": "topics.delete",
    "cluster.wait_for": "cluster.state",
    "faults.hits": "faults.list",
    "faults.on": "faults.add",
}
# What only HTTP has: `cluster.brokers` and the properties of its handles are this in Python.
ONLY_HTTP = {"brokers.describe", "cluster.security"}
TRIGGERS = {"once", "times", "on_call", "every", "every_time", "with_probability"}
SAMPLES: dict[str, Any] = {
    "config": {"retention.ms": 1},
    "effect": rules.Effect("swallow_answer"),
    "holds": "sent",
    "keys": ["k"],
    "level": "debug",
    "match": rules.Match(),
    "operations": "all",
    "device": "disk",
    "replicas": [1],
    "topics": ["t"],
    "trigger": rules.Trigger(),
    "values": ["v"],
}
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


class Recorder(RunningBrokers):
    """A cluster that keeps the calls it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def ask(self, call: str, args: Mapping[str, Any]) -> Any:
        self.asked.append((call, args))
        return MagicMock(id=1)


def methods(owner: object) -> dict[str, Callable[..., Any]]:
    return {
        name: getattr(owner, name)
        for name in dir(type(owner))
        if not name.startswith("_") and inspect.isfunction(getattr(type(owner), name))
    }


def of_python(cluster: Recorder) -> dict[str, tuple[Callable[..., Any], set[str]]]:
    """Each method of the blocking door by the name that its call must have, and the arguments that
    its handle gives."""
    found = {}
    groups: list[tuple[str, object, set[str]]] = [
        ("cluster", cluster, set()),
        ("brokers", RunningBroker(cluster, 1), {"broker"}),
        ("faults", blocking_faults.Fault(cluster.ask, MagicMock(id=1)), {"id"}),
        *((name.lower(), getattr(cluster, name.lower()), set()) for name in HANDLES),
    ]
    for group, owner, given in groups:
        for name, method in methods(owner).items():
            assert f"{group}.{name}" not in found
            found[f"{group}.{name}"] = (method, given)
    return found


def sample(name: str, parameter: inspect.Parameter) -> Any:
    """A value for a parameter."""
    if name in SAMPLES:
        return SAMPLES[name]
    text = str(parameter.annotation).partition(" |")[0]
    return {"str": "s", "int": 1, "float": 1.0, "bool": True}[text]


def test_python_and_http_have_the_same_names() -> None:
    python = of_python(Recorder()).keys()
    http = {name for name, call in TABLE.items() if call.scope == "cluster"}
    assert python - ONLY_PYTHON.keys() == http - ONLY_HTTP
    assert ONLY_PYTHON.keys() <= python
    assert http >= ONLY_HTTP
    assert {name for name in ONLY_PYTHON.values() if name} <= http


def test_each_method_makes_the_call_of_its_name() -> None:
    cluster = Recorder()
    for name, (method, _) in of_python(cluster).items():
        call = ONLY_PYTHON.get(name, name)
        if call is not None and name not in ("cluster.wait_for", "faults.on"):
            parameters = inspect.signature(method).parameters
            method(**{key: sample(key, each) for key, each in parameters.items()})
            ((asked, args),) = cluster.asked
            assert asked == call
            from_json(TABLE[call].arguments, dict(args))
            cluster.asked.clear()


def test_arguments_have_the_same_names_and_defaults_in_python_and_over_http() -> None:
    for name, (method, given) in of_python(Recorder()).items():
        if name not in ONLY_PYTHON:
            parameters = inspect.signature(method).parameters
            fields = {one.name: one for one in dataclasses.fields(TABLE[name].arguments)}
            assert parameters.keys() == fields.keys() - given, name
            for key, parameter in parameters.items():
                field = fields[key]
                if field.default_factory is dataclasses.MISSING:
                    wanted = field.default
                    is_needed = wanted is dataclasses.MISSING
                    assert parameter.default == (parameter.empty if is_needed else wanted), name
    matches = inspect.signature(Recorder().faults.on).parameters
    assert list(matches) == [one.name for one in dataclasses.fields(rules.Match)]


def test_a_string_is_no_list_of_its_letters() -> None:
    """Type checkers let it pass: it is a sequence of strings."""
    cluster = Recorder()
    cluster.topics.make_tombstones("t", "k1")
    cluster.topics.make_aborted("t", values="v1")
    cluster.state(topics="t1")
    for call, args in cluster.asked:
        with pytest.raises(tidelog.ControlError, match=r"must be a list, not '[kvt]1'") as raised:
            from_json(TABLE[call].arguments, dict(args))
        assert raised.value.field in ("keys", "values", "topics")


def test_effects_and_triggers_have_the_same_names_in_python_and_as_values() -> None:
    cluster = Recorder()
    words = cluster.faults.on("Fetch")
    kinds = set(typing.get_args(rules.Kind))
    assert methods(words).keys() == kinds | TRIGGERS
    for kind in kinds:
        method = methods(words)[kind]
        parameters = inspect.signature(method).parameters
        values = {key: True if key == "after_work" else 7 for key in parameters}
        method(**values)
        effect = cluster.asked.pop()[1]["effect"]
        assert {key: value for key, value in effect.items() if value not in (None, False)} == {
            "kind": kind,
            **values,
        }


def test_the_page_makes_calls_that_exist() -> None:
    scripts = "".join(path.read_text() for path in PAGE.glob("*.js"))
    asked = set(re.findall(r"\"([a-z]+\.[a-z_]+)\"", scripts))
    assert {"faults.add", "network.heal", "clock.advance"} <= asked <= TABLE.keys()
    effects = (PAGE / "index.html").read_text().partition('id="fault-kind"')[2]
    values = re.findall(r'<option value="(\w+)"', effects.partition("</select>")[0])
    assert {*values} - {"drop_after_work"} == {*typing.get_args(rules.Kind)}


def test_the_typed_example_runs() -> None:
    """`make types` has mypy check it."""
    example = runpy.run_path(str(EXAMPLE))
    assert example["blocking"]() == asyncio.run(example["awaited"]()) == 0
