"""Registrations of controllers (KIP-919): decided, kept in the image and snapshots, and made."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.metadata import broker_config
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.registrations import register_controller
from tidelog.cluster.controller_registration import ControllerRegistration
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.cluster.metadata.features import supported_levels
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.cluster.metadata.replay import replay
from tidelog.cluster.metadata.snapshots import decode_snapshot, encode_snapshot
from tidelog.network.peers import PeerError
from tidelog.simulation.loop import simulate
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.controller import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from tidelog_protocol.messages.metadata_records import (
    FeatureLevelRecord,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog_protocol.schema import Message

LIFE, OTHER_LIFE = b"l" * 16, b"o" * 16
OLD_LEVEL, LEVEL = 14, 15


def image_at(level: int, *records: Message) -> ClusterImage:
    made: list[Message] = [FeatureLevelRecord(name="metadata.version", feature_level=level)]
    return replay(ClusterImage("c"), [*made, *records], offset=9, leader_epoch=1, controller_id=1)


def request(incarnation_id: bytes = LIFE) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=1,
        incarnation_id=incarnation_id,
        listeners=[ControllerRegistrationRequest.Listener(name="C", host="h", port=9)],
        features=[
            ControllerRegistrationRequest.Feature(
                name="f", min_supported_version=1, max_supported_version=2
            )
        ],
    )


def record(incarnation_id: bytes = LIFE) -> RegisterControllerRecord:
    return register_controller(image_at(LEVEL), request(incarnation_id))


def test_the_record_has_what_the_controller_says() -> None:
    assert record() == RegisterControllerRecord(
        controller_id=1,
        incarnation_id=LIFE,
        end_points=[RegisterControllerRecord.ControllerEndpoint(name="C", host="h", port=9)],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name="f", min_supported_version=1, max_supported_version=2
            )
        ],
    )


def test_an_old_metadata_version_has_no_registrations() -> None:
    with pytest.raises(RefusedError) as refused:
        register_controller(image_at(OLD_LEVEL), request())
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "The current MetadataVersion is too old to support controller registrations.",
    )


def test_the_image_has_the_last_registration_of_each() -> None:
    image = image_at(LEVEL, record(), record(OTHER_LIFE))
    assert image.controllers == {1: record(OTHER_LIFE)}
    assert image_at(LEVEL, record(), UnregisterControllerRecord(controller_id=1)).controllers == {}


@pytest.mark.parametrize(("level", "kept"), [(LEVEL, {1: record()}), (OLD_LEVEL, {})])
def test_a_snapshot_has_registrations_that_its_level_knows(
    level: int, kept: dict[int, RegisterControllerRecord]
) -> None:
    snapshot, data = encode_snapshot(image_at(level, record()), 0)
    assert decode_snapshot(snapshot, data, "c").controllers == kept


class Cluster:
    """The image of a controller, and an active controller with a script."""

    def __init__(self, *script: object, image: ClusterImage) -> None:
        self.image = image
        self.script = list(script)
        self.asked: list[float] = []
        config = broker_config(
            node_id="1",
            listeners="PLAINTEXT://:1,CONTROLLER://:2,SECURE://s:3",
            controller_listener_names="CONTROLLER,SECURE",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SSL",
        )
        self.registration = ControllerRegistration(
            config,
            self,  # type: ignore[arg-type]
            ask=self.ask,
            endpoints=[("CONTROLLER", "h", 2), ("SECURE", "s", 3)],
            incarnation_id=LIFE,
        )

    async def ask(self, asked: Any) -> Any:
        self.asked.append(asyncio.get_running_loop().time())
        said = self.script.pop(0) if self.script else ControllerRegistrationResponse()
        if isinstance(said, Exception):
            raise said
        if not said.error_code:
            self.show(register_controller(self.image, asked))
        return said

    def show(self, *records: Message) -> None:
        old, self.image = (
            self.image,
            replay(self.image, records, offset=10, leader_epoch=1, controller_id=1),
        )
        self.registration.on_image(MetadataDelta(old, self.image), self.image)


def run(
    *script: object, image: ClusterImage, then: Callable[[Cluster], Coroutine[Any, Any, None]]
) -> None:
    """In virtual time, while the registration is kept."""

    async def test() -> None:
        cluster = Cluster(*script, image=image)
        kept = asyncio.get_running_loop().create_task(cluster.registration.run())
        await then(cluster)
        kept.cancel()

    simulate("registration", lambda _loop: test())


def test_a_controller_registers_its_listeners_and_features() -> None:
    async def then(cluster: Cluster) -> None:
        await cluster.registration.wait(60)
        (made,) = cluster.image.controllers.values()
        assert [(e.name, e.host, e.port, e.security_protocol) for e in made.end_points] == [
            ("CONTROLLER", "h", 2, 0),
            ("SECURE", "s", 3, 1),
        ]
        ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in made.features}
        assert (ranges, made.incarnation_id) == (supported_levels(), LIFE)

    run(image=image_at(LEVEL), then=then)


def test_failures_are_repeated_less_and_less_often() -> None:
    failures = [
        PeerError("gone"),
        ControllerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER),
        ControllerRegistrationResponse(error_code=999, error_message="new"),
    ]

    async def then(cluster: Cluster) -> None:
        await cluster.registration.wait(60)
        assert cluster.asked == pytest.approx([0, 0.1, 0.3, 0.7])

    run(*failures, image=image_at(LEVEL), then=then)


def test_it_waits_for_the_metadata_version() -> None:
    async def then(cluster: Cluster) -> None:
        await cluster.registration.wait(60)
        await asyncio.sleep(1)
        assert cluster.asked == []
        cluster.show(FeatureLevelRecord(name="metadata.version", feature_level=LEVEL))
        await cluster.registration.wait(60)
        assert cluster.image.controllers[1].incarnation_id == LIFE

    run(image=image_at(OLD_LEVEL), then=then)


def test_a_replaced_registration_is_made_again() -> None:
    async def then(cluster: Cluster) -> None:
        await cluster.registration.wait(60)
        cluster.show(FeatureLevelRecord(name="group.version", feature_level=1))
        await asyncio.sleep(1)
        assert len(cluster.asked) == 1, "nothing has changed"
        for change in (record(OTHER_LIFE), UnregisterControllerRecord(controller_id=1)):
            cluster.show(change)
            await asyncio.sleep(1)
            assert cluster.image.controllers[1].incarnation_id == LIFE

    run(image=image_at(LEVEL, record(OTHER_LIFE)), then=then)


def test_nobody_waits_for_ever() -> None:
    async def then(cluster: Cluster) -> None:
        await cluster.registration.wait(5)
        assert cluster.registration.is_due()

    run(*[PeerError("gone")] * 99, image=image_at(LEVEL), then=then)
