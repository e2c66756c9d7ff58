"""The calls on disks and remote stores of brokers: full, failing, slow, throttled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tidelog.control.calls import Call, Nothing
from tidelog.control.errors import REFUSED, ControlError
from tidelog.control.faults.device_faults import SECONDS_MAX, Device
from tidelog.control.faults.hits import wait_for_hits
from tidelog.control.faults.rules import Trigger, check_trigger
from tidelog.control.values import to_json

if TYPE_CHECKING:
    from tidelog.control.broker import BrokerControl
    from tidelog.control.cluster import ClusterControl, ControlledNode

__all__ = ["CALLS", "Devices", "Heal", "heal", "install"]

DiskOperations = Literal["all", "reads", "writes", "syncs"]
StoreOperations = Literal["all", "copies", "fetches", "deletions"]


@dataclass(frozen=True)
class FillDisk:
    """A disk to fill. As in all these faults, `topic` limits it to that topic."""

    broker: int
    topic: str | None = None
    trigger: Trigger = field(default_factory=Trigger)


@dataclass(frozen=True)
class FailDisk:
    """A disk whose operations fail."""

    broker: int
    operations: DiskOperations = "all"
    topic: str | None = None
    trigger: Trigger = field(default_factory=Trigger)


@dataclass(frozen=True)
class SlowDisk:
    """A disk whose operations take longer."""

    broker: int
    seconds: float
    operations: DiskOperations = "all"
    topic: str | None = None
    trigger: Trigger = field(default_factory=Trigger)


@dataclass(frozen=True)
class FailStore:
    """A broker whose operations on the remote store fail."""

    broker: int
    operations: StoreOperations = "all"
    topic: str | None = None
    trigger: Trigger = field(default_factory=Trigger)


@dataclass(frozen=True)
class SlowStore:
    """A broker whose operations on the remote store take longer."""

    broker: int
    seconds: float
    operations: StoreOperations = "all"
    topic: str | None = None
    trigger: Trigger = field(default_factory=Trigger)


@dataclass(frozen=True)
class ThrottleStore:
    """A broker whose copies to the remote store take so many bytes a second."""

    broker: int
    bytes_per_second: int
    topic: str | None = None
    trigger: Trigger = field(default_factory=Trigger)


@dataclass(frozen=True)
class Devices:
    """All faults of disks and stores."""

    devices: tuple[Device, ...] = ()


@dataclass(frozen=True)
class Heal:
    """What to heal; without a broker or a device, all."""

    broker: int | None = None
    device: Literal["disk", "store"] | None = None


@dataclass(frozen=True)
class DeviceWait:
    """How many hits of the faults of a broker's disk or store to wait for, and how long."""

    broker: int
    device: Literal["disk", "store"]
    hits: int = 1
    seconds: float = 10.0


# -- on one broker ---------------------------------------------------------------------------------


def _check_here(control: BrokerControl, args: Device) -> Nothing:
    """Refuse a fault of what this broker does not have."""
    from tidelog.cluster.metadata.image import (  # noqa: PLC0415 - in a broker only
        CLUSTER_METADATA_TOPIC,
    )

    control.device_faults.check(args)
    image = control.server.metadata.image
    if args.topic not in (None, CLUSTER_METADATA_TOPIC) and args.topic not in image.topics:
        text = f"there is no topic {args.topic!r}: create it first"
        raise ControlError(text, field="topic")
    return Nothing()


def _set(control: BrokerControl, args: Devices) -> Nothing:
    """Have these faults of disk and store from now on, and no others."""
    control.device_faults.set(args.devices)
    return Nothing()


def _hits(control: BrokerControl, _: Nothing) -> Devices:
    """Return this broker's faults of disk and store, with their hits."""
    return Devices(control.device_faults.hits())


# -- on the cluster --------------------------------------------------------------------------------


async def _fill_disk(control: ClusterControl, args: FillDisk) -> Devices:
    """Let the disk of a broker be full."""
    return await _add(control, Device(device="disk", kind="full", **vars(args)))


async def _fail_disk(control: ClusterControl, args: FailDisk) -> Devices:
    """Let operations of a broker's disk fail with EIO."""
    return await _add(control, Device(device="disk", kind="fails", **vars(args)))


async def _slow_disk(control: ClusterControl, args: SlowDisk) -> Devices:
    """Let each operation of a broker's disk take longer."""
    return await _add(control, Device(device="disk", kind="slow", **vars(args)))


async def _fail_store(control: ClusterControl, args: FailStore) -> Devices:
    """Let operations of a broker on the remote store fail."""
    return await _add(control, Device(device="store", kind="fails", **vars(args)))


async def _slow_store(control: ClusterControl, args: SlowStore) -> Devices:
    """Let each operation of a broker on the remote store take longer."""
    return await _add(control, Device(device="store", kind="slow", **vars(args)))


async def _throttle_store(control: ClusterControl, args: ThrottleStore) -> Devices:
    """Let a broker's copies to the remote store take so many bytes a second."""
    return await _add(control, Device(device="store", kind="throttled", **vars(args)))


async def _add(control: ClusterControl, device: Device) -> Devices:
    node = control.node(device.broker)
    _check(device)
    if node.is_running and not node.is_frozen:
        await node.ask("broker.check_device", to_json(device))
    control.devices_added += 1
    device = replace(device, id=control.devices_added)
    return await _change(control, (*control.devices, device))


def _check(device: Device) -> None:
    """Refuse a fault that can never apply."""
    if device.kind == "slow" and not 0 < device.seconds <= SECONDS_MAX:
        text = f"must be above 0 and at most {SECONDS_MAX:g}, not {device.seconds:g}"
        raise ControlError(text, field="seconds")
    if device.kind == "throttled" and device.bytes_per_second < 1:
        text = f"must be at least 1, not {device.bytes_per_second}"
        raise ControlError(text, field="bytes_per_second")
    check_trigger(device.trigger)


async def _list(control: ClusterControl, _: Nothing) -> Devices:
    """Return the faults of disks and stores, with their hits."""
    if not control.devices:
        return Devices()
    found = await control.ask_all("broker.device_hits", {})
    counted = {replace(each, hits=0): each for part in found.values() for each in part.devices}
    return Devices(tuple(counted.get(device, device) for device in control.devices))


async def _wait(control: ClusterControl, args: DeviceWait) -> Devices:
    """Wait until the faults of a broker's disk or store have that many hits together."""
    control.node(args.broker)

    async def look() -> tuple[Devices, int, str]:
        every = (await _list(control, Nothing())).devices
        own = tuple(
            each for each in every if (each.broker, each.device) == (args.broker, args.device)
        )
        if not own:
            text = f"the {args.device} of broker {args.broker} has no fault: add one first"
            raise ControlError(text, field="device", status=REFUSED)
        return Devices(own), sum(each.hits for each in own), "its faults together"

    what = f"the {args.device} of broker {args.broker}"
    return await wait_for_hits(what, look, args.hits, args.seconds)


async def heal(control: ClusterControl, args: Heal) -> Devices:
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
    Call("devices.fill_disk", "cluster", FillDisk, Devices, _fill_disk),
    Call("devices.fail_disk", "cluster", FailDisk, Devices, _fail_disk),
    Call("devices.slow_disk", "cluster", SlowDisk, Devices, _slow_disk),
    Call("devices.fail_store", "cluster", FailStore, Devices, _fail_store),
    Call("devices.slow_store", "cluster", SlowStore, Devices, _slow_store),
    Call("devices.throttle_store", "cluster", ThrottleStore, Devices, _throttle_store),
    Call("devices.list", "cluster", Nothing, Devices, _list),
    Call("devices.wait", "cluster", DeviceWait, Devices, _wait),
    Call("devices.heal", "cluster", Heal, Devices, heal),
)
