"""The controllers' listener: the same raw requests to a controller of either kind.

The cases are those of a single broker whose API controllers list, asked of its controller, and
those of `cases_controllers`, for APIs that controllers alone serve. What a case asks of another API
goes to the broker beside it, whose listeners are changed at the end.
`python -m compat.conformance.controllers`: as its parent.
"""

from __future__ import annotations

import fnmatch
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from compat.brokers import Tidelog
from compat.conformance import registry
from compat.conformance.cases_configs import APPEND, DELETE, SET, SUBTRACT
from compat.conformance.cases_controllers import CASES
from compat.conformance.cases_listeners import CASES as LISTENERS
from compat.conformance.door import Door
from compat.conformance.recording import FOLDER, comparable
from compat.conformance.registry import runs
from compat.conformance.runner import carried_out, served_ranges
from compat.conformance.session import ANSWER_TIMEOUT_S, Session
from compat.raw import RawConnection
from compat.reference import ApacheKafka

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from compat.conformance.registry import Run
    from compat.conformance.runner import Transcript

RECORDED = FOLDER / "controllers"
OF_THE_LOG = "Fetch"  # of controllers: their metadata log alone
SLOW_S = 3.0
AT_BROKER = "broker:"  # begins the names of connections
AT_CONTROLLER = "@controller"  # ends the keys of runs
LEFT_OUT: Mapping[str, str] = {
    "DescribeUserScramCredentials-*": "Kafka's controllers list it and never answer it",
}
"""Runs, as patterns, that no answer of a controller can be compared for, and why."""


class ControllerSession(Session):
    """Asks the controller for the API of the run, and the broker beside it for all else."""

    def __init__(self, run: Run, node: Node, nonce: str = "") -> None:
        super().__init__(run, f"{node.bootstrap},{node.controller}", nonce)
        self._node = node

    def connection(self, name: str = "main") -> RawConnection:
        """A connection by name, opened on first use."""
        if name not in self._connections:
            is_broker = name.startswith(AT_BROKER)
            address = self._node.bootstrap if is_broker else self._node.controller
            self._connections[name] = RawConnection(address, ANSWER_TIMEOUT_S)
        return self._connections[name]

    def send(
        self, api: str, version: int, *, connection: str = "main", **fields: Any
    ) -> tuple[str, int]:
        """Send what the run is about to the controller."""
        if api != self.run.case.api:
            connection = f"{AT_BROKER}{connection}"
        return super().send(api, version, connection=connection, **fields)

    def ask(self, api: str, version: int, **fields: Any) -> dict[str, Any]:
        """Send, wait, record; a request that ends a reign is passed over."""
        return {} if ends_a_reign(api, fields) else super().ask(api, version, **fields)


def ends_a_reign(api: str, fields: dict[str, Any]) -> bool:
    """Whether Kafka's controller stumbles over the request and resigns: settings of no value or
    of an unknown operation, which a broker refuses before it asks a controller."""
    if api not in ("AlterConfigs", "IncrementalAlterConfigs"):
        return False
    configs = [config for resource in fields["resources"] for config in resource["configs"]]
    return any(
        config.get("config_operation", SET) not in (SET, DELETE, APPEND, SUBTRACT)
        or (config["value"] is None and config.get("config_operation", SET) != DELETE)
        for config in configs
    )


class Node(Protocol):
    """A broker that is its own controller: the addresses of both."""

    bootstrap: str
    controller: str

    def start(self) -> None: ...
    def stop(self) -> object: ...


def collect(node: Node, *patterns: str, nonce: str = "") -> dict[str, Transcript]:
    """Transcripts by run key, of all or those whose key matches one of the patterns."""
    ranges = served_ranges(node.controller)
    of_brokers = [one for one in registry.CASES if one.api != OF_THE_LOG]
    transcripts = {}
    for run in runs(ranges, (*of_brokers, *CASES, *LISTENERS)):
        at_broker = run.case in LISTENERS
        key = run.key if at_broker else run.key + AT_CONTROLLER
        if any(fnmatch.fnmatch(run.key, pattern) for pattern in LEFT_OUT) or not any(
            fnmatch.fnmatch(key, pattern) for pattern in patterns or ("*",)
        ):
            continue
        started = time.monotonic()
        session = (
            Session(run, node.bootstrap, nonce)
            if at_broker
            else ControllerSession(run, node, nonce)
        )
        transcripts[key] = comparable(carried_out(run, session), nonce)
        if time.monotonic() - started > SLOW_S:
            print(f"  {run.key} took {time.monotonic() - started:.1f} s", flush=True)
    return transcripts


def tidelog_node(folder: Path) -> Tidelog:
    """Return a tidelog with a controller's listener."""
    return Tidelog(folder, has_controller_listener=True)


DOOR = Door(
    "python -m compat.conformance.controllers",
    {"kafka": ApacheKafka, "tidelog": tidelog_node},
    collect,
    RECORDED,
)

if __name__ == "__main__":
    sys.exit(DOOR.main())
