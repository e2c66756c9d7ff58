"""The calls on disks and remote stores of brokers: full, failing, slow, throttled.

A disk's faults hang on the broker's `OsFileSystem`, a store's on the object of the remote store;
both are untouched until the first fault. Slow operations block the thread that makes them, as a
slow disk does: appends and reads are made on the loop, which brokers of one process share.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import REFUSED, ControlError
from tidelog.control.faults.rules import Count, Trigger, check_trigger
from tidelog.control.values import to_json
from tidelog_storage.remote.api import RetriableRemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["CALLS", "Device", "DeviceFaults", "Devices", "install"]

SECONDS_MAX = 60.0
_STORE_VERBS = {
    "copy_segment": "copies",
    "fetch_segment": "fetches",
    "fetch_index": "fetches",
    "open_segment": "fetches",
    "delete_segment": "deletions",
}
_DISK_OPERATIONS = ("all", "reads", "writes", "syncs")
_STORE_OPERATIONS = ("all", "copies", "fetches", "deletions")


@dataclass(frozen=True)
class Device:
    """A fault of a broker's disk or of its remote store.

    - `full`: the disk takes no more bytes (ENOSPC)
    - `fails`: `operations` fail, of a disk with EIO
    - `slow`: each of `operations` takes `seconds` more
    - `throttled`: the store takes `bytes_per_second` of copies

    `topic` limits it to files or segments of that topic.
    """

    broker: int
    device: Literal["disk", "store"]
    kind: Literal["full", "fails", "slow", "throttled"]
    operations: Literal["all", "reads", "writes", "syncs", "copies", "fetches", "deletions"] = "all"
    seconds: float = 0.0
    bytes_per_second: int = 0
    topic: str | None = None
    trigger: Trigger = field(default_factory=Trigger)
    hits: int = 0
    """How often it has applied since the broker started."""


@dataclass(frozen=True)
class Devices:
    """All faults of disks and stores."""

    devices: tuple[Device, ...] = ()


@dataclass(frozen=True)
class Heal:
    """What to heal; without a broker or a device, all."""

    broker: int | None = None
    device: Literal["disk", "store"] | None = None


# -- on one broker ---------------------------------------------------------------------------------


class DeviceFaults:
    """The faults of one broker's disk and store."""

    def __init__(self, control: BrokerControl) -> None:
        server = control.server
        self._node_id = server.config.node_id
        self._files: Any = server.runtime.files
        self._store: Any = None if server.tier is None else server.tier.storage
        self._disk: list[tuple[Device, Count]] = []
        self._remote: list[tuple[Device, Count]] = []

    def check(self, device: Device) -> None:
        """Refuse a fault of what this broker does not have."""
        if device.device == "store" and self._store is None:
            raise ControlError("this broker has no remote tier", field="device", status=REFUSED)
        if device.device == "disk" and not hasattr(self._files, "trouble"):
            text = "this broker's files are not the system's"
            raise ControlError(text, field="device", status=REFUSED)

    def set(self, devices: Sequence[Device]) -> None:
        """Have these faults from now on, and no others; those that stay keep their counts."""
        own = [device for device in devices if device.broker == self._node_id]
        known = dict((*self._disk, *self._remote))
        counted = [(device, known.get(device) or Count()) for device in own]
        self._disk = [each for each in counted if each[0].device == "disk"]
        self._remote = [each for each in counted if each[0].device == "store"]
        if hasattr(self._files, "trouble"):
            self._files.trouble = self._on_disk if self._disk else None
        if self._store is not None:
            self._wrap_store()

    def hits(self) -> tuple[Device, ...]:
        """Return the faults with their hits."""
        return tuple(
            replace(device, hits=count.hits) for device, count in (*self._disk, *self._remote)
        )

    def _on_disk(self, operation: str, path: str) -> None:
        """Apply the faults of the disk to an operation: reads, writes or syncs."""
        for device, count in self._disk:
            if device.topic is not None and not _is_of_topic(path, device.topic):
                continue
            operations = "writes" if device.kind == "full" else device.operations
            if operations not in ("all", operation) or not count.applies(device.trigger):
                continue
            if device.kind == "slow":
                time.sleep(device.seconds)
                continue
            number = errno.ENOSPC if device.kind == "full" else errno.EIO
            raise OSError(number, os.strerror(number), path)

    def _wrap_store(self) -> None:
        """Put the faults before the methods of the store, or take them away."""
        store = self._store
        for name, operation in _STORE_VERBS.items():
            vars(store).pop(name, None)
            if self._remote and hasattr(store, name):
                setattr(store, name, self._remote_call(getattr(store, name), operation))

    def _remote_call(self, method: Any, operation: str) -> Any:
        def call(segment: Any, *args: Any, **named: Any) -> Any:
            self._on_store(operation, segment)
            return method(segment, *args, **named)

        return call

    def _on_store(self, operation: str, segment: Any) -> None:
        """Apply the faults of the store, on the thread of the operation."""
        for device, count in list(self._remote):
            if device.topic not in (None, segment.topic):
                continue
            operations = "copies" if device.kind == "throttled" else device.operations
            if operations not in ("all", operation) or not count.applies(device.trigger):
                continue
            if device.kind == "fails":
                raise RetriableRemoteStorageError(f"{operation}: the store fails on purpose")
            seconds = device.seconds
            if device.kind == "throttled":
                seconds = min(SECONDS_MAX, segment.size / device.bytes_per_second)
            time.sleep(seconds)


def _is_of_topic(path: str, topic: str) -> bool:
    """Return whether a path is in the folder of a topic's partition."""
    return any(folder.rpartition("-")[0] == topic for folder in path.split("/"))


def _faults_of(control: BrokerControl) -> DeviceFaults:
    if control.devices is None:
        control.devices = DeviceFaults(control)
    return control.devices


def _check_here(control: BrokerControl, args: Device) -> Nothing:
    """Refuse a fault of what this broker does not have."""
    _faults_of(control).check(args)
    return Nothing()


def _set(control: BrokerControl, args: Devices) -> Nothing:
    """Have these faults of disk and store from now on, and no others."""
    _faults_of(control).set(args.devices)
    return Nothing()


def _hits(control: BrokerControl, _: Nothing) -> Devices:
    """Return this broker's faults of disk and store, with their hits."""
    return Devices(() if control.devices is None else control.devices.hits())


# -- on the cluster --------------------------------------------------------------------------------


async def _add(control: ClusterControl, args: Device) -> Devices:
    """Let the disk or the remote store of a broker be full, fail, be slow or throttled."""
    node = control.node(args.broker)
    _check(args)
    if node.is_running and not node.is_frozen:
        await node.ask("broker.check_device", to_json(args))
    return await _change(control, (*control.devices, replace(args, hits=0)))


def _check(device: Device) -> None:
    """Refuse a fault that can never apply."""
    is_disk = device.device == "disk"
    kinds = ("full", "fails", "slow") if is_disk else ("fails", "slow", "throttled")
    if device.kind not in kinds:
        raise ControlError(f"a {device.device} can be {', '.join(kinds)}", field="kind")
    operations = _DISK_OPERATIONS if is_disk else _STORE_OPERATIONS
    if device.operations not in operations:
        raise ControlError(f"a {device.device} has {', '.join(operations)}", field="operations")
    if device.kind == "slow" and not 0 < device.seconds <= SECONDS_MAX:
        text = f"must be above 0 and at most {SECONDS_MAX:g}, not {device.seconds:g}"
        raise ControlError(text, field="seconds")
    if device.kind == "throttled" and device.bytes_per_second < 1:
        text = f"must be at least 1, not {device.bytes_per_second}"
        raise ControlError(text, field="bytes_per_second")
    check_trigger(device.trigger)


async def _list(control: ClusterControl, _: Nothing) -> Devices:
    """Return the faults of disks and stores, with their hits."""
    found = await control.ask_all("broker.device_hits", {})
    counted = {replace(each, hits=0): each for part in found.values() for each in part.devices}
    return Devices(tuple(counted.get(device, device) for device in control.devices))


async def _heal(control: ClusterControl, args: Heal) -> Devices:
    """Heal the disks and stores of a broker, or of all."""
    if args.broker is not None:
        control.node(args.broker)
    kept = tuple(
        device
        for device in control.devices
        if args.broker not in (None, device.broker) or args.device not in (None, device.device)
    )
    return await _change(control, kept)


async def _change(control: ClusterControl, devices: tuple[Device, ...]) -> Devices:
    control.devices = devices
    await control.ask_all("broker.set_devices", to_json(Devices(devices)))
    return Devices(devices)


async def install(control: ClusterControl, node: ControlledNode) -> None:
    """Set up a broker that has just started or thawed."""
    if control.devices:
        await node.ask("broker.set_devices", to_json(Devices(control.devices)))


CALLS = (
    Call("broker.check_device", "broker", Device, Nothing, _check_here),
    Call("broker.set_devices", "broker", Devices, Nothing, _set),
    Call("broker.device_hits", "broker", Nothing, Devices, _hits),
    Call("devices.add", "cluster", Device, Devices, _add),
    Call("devices.list", "cluster", Nothing, Devices, _list),
    Call("devices.heal", "cluster", Heal, Devices, _heal),
)
