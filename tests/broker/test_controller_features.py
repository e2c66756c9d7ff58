"""UpdateFeatures: what the controller decides, beside answers of Apache Kafka 4.3.1."""

from __future__ import annotations

import asyncio

import pytest

from support.metadata import broker_config
from support.three_brokers import Three
from tidelog.cluster.controller import features
from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.controller.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    update_features,
)
from tidelog.cluster.metadata.image import BrokerImage, ClusterImage
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster_admin import UpdateFeaturesRequest
from tidelog_protocol.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    RegisterControllerRecord,
)

PREFIX = "The update failed for all features since the following feature had an error: "
CONFIG = broker_config(node_id="1", min_insync_replicas="2")
LEVELS = {"metadata.version": 30, "group.version": 1, "transaction.version": 2}
RANGES = (("metadata.version", 7, 30), ("group.version", 0, 1), ("transaction.version", 0, 2))
IMAGE = ClusterImage(
    "c", features=LEVELS, brokers={1: BrokerImage(1, "h", 1, features=RANGES)}, offset=9
)


def request(*updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=kind
            )
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )


def refusal(
    *updates: tuple[str, int, int], image: ClusterImage = IMAGE, validate_only: bool = False
) -> str:
    with pytest.raises(RefusedError) as refused:
        update_features(image, CONFIG, request(*updates, validate_only=validate_only), 2)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert refused.value.message is not None
    assert refused.value.message.startswith(PREFIX)
    return refused.value.message.removeprefix(PREFIX)


GROUP = "Invalid update version {} for feature group.version. {}"
METADATA = "Unsupported metadata.version downgrade from 30 to {}. {}"


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (
            ("nope", 0, SAFE_DOWNGRADE),
            "Invalid update version 0 for feature nope. Feature nope not found.",
        ),
        (
            ("nope", 1, UPGRADE),
            "Invalid update version 1 for feature nope. "
            "Local controller 1 does not support this feature.",
        ),
        (
            ("", 1, UPGRADE),
            "Invalid update version 1 for feature . "
            "Local controller 1 does not support this feature.",
        ),
        (
            ("group.version", 5, UPGRADE),
            GROUP.format(5, "Local controller 1 only supports versions 0-1"),
        ),
        (
            ("group.version", -1, UPGRADE),
            GROUP.format(-1, "A feature version cannot be less than 0."),
        ),
        (
            ("group.version", 0, UPGRADE),
            GROUP.format(
                0,
                "Can't downgrade the version of this feature without setting the upgrade type to "
                "either safe or unsafe downgrade.",
            ),
        ),
        (
            ("group.version", 0, 0),
            GROUP.format(0, "The controller does not support the given upgrade type."),
        ),
        (
            ("group.version", 0, 9),
            GROUP.format(0, "The controller does not support the given upgrade type."),
        ),
        (
            ("group.version", 2, SAFE_DOWNGRADE),
            GROUP.format(2, "Local controller 1 only supports versions 0-1"),
        ),
        (
            ("metadata.version", 31, UPGRADE),
            "Invalid update version 31 for feature metadata.version. "
            "Local controller 1 only supports versions 7-30",
        ),
        (
            ("metadata.version", 29, SAFE_DOWNGRADE),
            METADATA.format(
                29,
                "Refusing to perform the requested downgrade because it might delete metadata "
                "information.",
            ),
        ),
        (
            ("metadata.version", 29, UNSAFE_DOWNGRADE),
            METADATA.format(29, "Unsafe metadata downgrade is not supported in this version."),
        ),
    ],
)
def test_refusals_are_kafkas(update: tuple[str, int, int], text: str) -> None:
    assert refusal(update) == text
    assert refusal(("transaction.version", 1, SAFE_DOWNGRADE), update) == text, "all or none"
    assert refusal(update, validate_only=True) == text


def test_downgrade_to_a_newer_level_is_refused() -> None:
    image = IMAGE._replace(features={"metadata.version": 30})
    text = GROUP.format(1, "Can't downgrade to a newer version.")
    assert refusal(("group.version", 1, UNSAFE_DOWNGRADE), image=image) == text


def test_a_level_that_a_broker_does_not_support_is_refused() -> None:
    brokers = {**IMAGE.brokers, 2: BrokerImage(2, "h", 2, features=RANGES[:1])}
    text = "Broker 2 does not support this feature."
    refused = refusal(("group.version", 1, UPGRADE), image=IMAGE._replace(brokers=brokers))
    assert refused == GROUP.format(1, text)
    brokers[2] = BrokerImage(2, "h", 2, features=(("transaction.version", 1, 1),))
    refused = refusal(("transaction.version", 2, UPGRADE), image=IMAGE._replace(brokers=brokers))
    assert refused.endswith("Broker 2 only supports versions 1")


def test_a_level_that_a_controller_does_not_support_is_refused() -> None:
    ranges = [RegisterControllerRecord.ControllerFeature(name="group.version")]
    controllers = {
        number: RegisterControllerRecord(controller_id=number, features=ranges) for number in (1, 2)
    }
    image = IMAGE._replace(controllers=controllers)
    text = "Controller 2 does not support this feature."
    assert refusal(("group.version", 1, UPGRADE), image=image) == GROUP.format(1, text)


def test_voters_that_never_registered_may_not_support_a_level() -> None:
    listeners = "PLAINTEXT://h:1,CONTROLLER://h:2"
    config = broker_config(
        node_id="1", listeners=listeners, controller_quorum_voters="1@h:2,2@h:3,3@h:4"
    )
    image = IMAGE._replace(controllers={1: RegisterControllerRecord(controller_id=1)})
    wanted = request(("group.version", 1, UPGRADE))
    with pytest.raises(RefusedError, match="controller 2 has not registered, and may not support"):
        update_features(image, config, wanted, 2)
    old = image._replace(features={**LEVELS, "metadata.version": 14})
    assert update_features(old, config, wanted, 2)[0]


@pytest.mark.parametrize("version", [1, 2])
def test_levels_are_recorded(version: int) -> None:
    asked = request(("group.version", 0, UNSAFE_DOWNGRADE), ("transaction.version", 2, UPGRADE))
    records, response = update_features(IMAGE, CONFIG, asked, version)
    assert records == [
        FeatureLevelRecord(name="group.version", feature_level=0),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    ]
    assert (response.error_code, response.error_message) == (0, None)
    results = [(each.feature, each.error_code, each.error_message) for each in response.results]
    expected = [("group.version", 0, "NONE"), ("transaction.version", 0, "NONE")]
    assert results == (expected if version == 1 else [])


def test_nothing_is_recorded_by_validation_alone() -> None:
    asked = request(("group.version", 0, SAFE_DOWNGRADE), validate_only=True)
    records, response = update_features(IMAGE, CONFIG, asked, 2)
    assert (records, response.error_code) == ([], 0)


def test_the_last_update_of_a_feature_counts() -> None:
    asked = request(("group.version", 0, UPGRADE), ("group.version", 1, UPGRADE))
    records, _ = update_features(IMAGE, CONFIG, asked, 2)
    assert records == [FeatureLevelRecord(name="group.version", feature_level=1)]


def test_levels_of_kafka_that_stay_0_may_be_set_to_0() -> None:
    asked = request(("streams.version", 0, SAFE_DOWNGRADE), ("kraft.version", 0, SAFE_DOWNGRADE))
    records, _ = update_features(IMAGE, CONFIG, asked, 2)
    assert records == [FeatureLevelRecord(name="streams.version", feature_level=0)]


def test_metadata_version_goes_back_where_no_record_changed() -> None:
    image = IMAGE._replace(features={"metadata.version": 29})
    records, _ = update_features(
        image, CONFIG, request(("metadata.version", 23, SAFE_DOWNGRADE)), 2
    )
    assert records == [FeatureLevelRecord(name="metadata.version", feature_level=23)]
    assert "from 29 to 22" in refusal(("metadata.version", 22, SAFE_DOWNGRADE), image=image)
    assert max(features._METADATA_CHANGED) == 30


ELIGIBLE = "eligible.leader.replicas.version"


def test_eligible_replicas_need_one_minimum_of_in_sync_replicas() -> None:
    """Kafka's maybeGenerateElrSafetyRecords: the brokers' own settings go, the cluster gets one."""
    brokers = {1: BrokerImage(1, "h", 1, features=(*RANGES, (ELIGIBLE, 0, 1)))}
    image = IMAGE._replace(
        brokers=brokers,
        broker_configs={"1": {"min.insync.replicas": "3", "a": "b"}, "2": {"a": "b"}},
    )
    asked = request((ELIGIBLE, 1, UPGRADE))

    def settings(image: ClusterImage) -> list[tuple[str, str | None]]:
        records, _ = update_features(image, CONFIG, asked, 2)
        assert records[0] == FeatureLevelRecord(name=ELIGIBLE, feature_level=1)
        found = [record for record in records[1:] if isinstance(record, ConfigRecord)]
        assert len(found) == len(records) - 1
        assert {(record.resource_type, record.name) for record in found} <= {
            (4, "min.insync.replicas")
        }
        return [(record.resource_name, record.value) for record in found]

    assert settings(image) == [("1", None), ("", "2")]
    known = {"": {"min.insync.replicas": "1"}}
    assert settings(image._replace(broker_configs=known)) == []
    off = request((ELIGIBLE, 0, SAFE_DOWNGRADE))
    records, _ = update_features(image._replace(features={**LEVELS, ELIGIBLE: 1}), CONFIG, off, 2)
    assert records == [FeatureLevelRecord(name=ELIGIBLE, feature_level=0)]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_cluster_changes_its_levels(version: int) -> None:
    async def run() -> None:
        three = Three()
        for node_id in (1, 2, 3):
            await three.join(node_id)
        log = three.metadata.log
        before = dict(log.image.features)
        answer = await three.ask(request(("group.version", 0, SAFE_DOWNGRADE)), version)
        if version == 0:  # it knows upgrades alone
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert dict(log.image.features) == before
            return
        assert answer.error_code == 0
        assert dict(log.image.features) == {
            name: level for name, level in before.items() if name != "group.version"
        }
        assert (await three.ask(request(("group.version", 1, UPGRADE)), version)).error_code == 0
        assert dict(log.image.features) == before

    asyncio.run(run())
