"""The table of APIs against Kafka 4.4's ranges."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.schema import version_range

if TYPE_CHECKING:
    from tidelog_protocol.apis import Api

# As Kafka 4.4 lists them, the APIs that are here: key, lowest and highest version, first flexible.
KAFKA_4_4 = """
Produce 0 3 13 9
Fetch 1 4 18 12
ListOffsets 2 1 11 6
Metadata 3 0 13 9
OffsetCommit 8 2 10 8
OffsetFetch 9 1 10 6
FindCoordinator 10 0 6 3
JoinGroup 11 0 9 6
Heartbeat 12 0 4 4
LeaveGroup 13 0 5 4
SyncGroup 14 0 5 4
DescribeGroups 15 0 6 5
ListGroups 16 0 5 3
SaslHandshake 17 0 1 -
ApiVersions 18 0 5 3
CreateTopics 19 2 7 5
DeleteTopics 20 1 6 4
DeleteRecords 21 0 2 2
InitProducerId 22 0 5 2
OffsetForLeaderEpoch 23 2 4 4
AddPartitionsToTxn 24 0 5 3
AddOffsetsToTxn 25 0 4 3
EndTxn 26 0 5 3
WriteTxnMarkers 27 1 2 1
TxnOffsetCommit 28 0 5 3
DescribeAcls 29 1 3 2
CreateAcls 30 1 3 2
DeleteAcls 31 1 3 2
DescribeConfigs 32 1 4 4
AlterConfigs 33 0 2 2
AlterReplicaLogDirs 34 1 2 2
DescribeLogDirs 35 1 5 2
SaslAuthenticate 36 0 2 2
CreatePartitions 37 0 3 2
CreateDelegationToken 38 1 3 2
RenewDelegationToken 39 1 2 2
ExpireDelegationToken 40 1 2 2
DescribeDelegationToken 41 1 3 2
DeleteGroups 42 0 3 2
ElectLeaders 43 0 2 2
IncrementalAlterConfigs 44 0 1 1
AlterPartitionReassignments 45 0 1 0
ListPartitionReassignments 46 0 0 0
OffsetDelete 47 0 0 -
DescribeClientQuotas 48 0 1 1
AlterClientQuotas 49 0 1 1
DescribeUserScramCredentials 50 0 0 0
AlterUserScramCredentials 51 0 0 0
Vote 52 0 2 0
BeginQuorumEpoch 53 0 1 1
EndQuorumEpoch 54 0 1 1
DescribeQuorum 55 0 2 0
AlterPartition 56 2 3 0
UpdateFeatures 57 0 2 0
Envelope 58 0 0 0
FetchSnapshot 59 0 1 0
DescribeCluster 60 0 2 0
DescribeProducers 61 0 0 0
BrokerRegistration 62 0 4 0
BrokerHeartbeat 63 0 2 0
UnregisterBroker 64 0 0 0
DescribeTransactions 65 0 0 0
ListTransactions 66 0 2 0
AllocateProducerIds 67 0 0 0
ConsumerGroupHeartbeat 68 0 1 0
ConsumerGroupDescribe 69 0 1 0
ControllerRegistration 70 0 0 0
GetTelemetrySubscriptions 71 0 0 0
PushTelemetry 72 0 0 0
AssignReplicasToDirs 73 0 0 0
ListConfigResources 74 0 1 0
DescribeTopicPartitions 75 0 0 0
ShareGroupHeartbeat 76 1 1 0
ShareGroupDescribe 77 1 1 0
ShareFetch 78 1 2 0
ShareAcknowledge 79 1 2 0
AddRaftVoter 80 0 1 0
RemoveRaftVoter 81 0 0 0
UpdateRaftVoter 82 0 0 0
InitializeShareGroupState 83 0 0 0
ReadShareGroupState 84 0 0 0
WriteShareGroupState 85 0 1 0
DeleteShareGroupState 86 0 0 0
ReadShareGroupStateSummary 87 0 1 0
StreamsGroupHeartbeat 88 0 0 0
StreamsGroupDescribe 89 0 0 0
DescribeShareGroupOffsets 90 0 1 0
AlterShareGroupOffsets 91 0 0 0
DeleteShareGroupOffsets 92 0 0 0
""".strip().splitlines()


def test_ranges_are_kafkas() -> None:
    ours = [
        f"{api.name} {int(api.key)} {api.min_version} {api.max_version} "
        f"{'-' if api.request.FLEXIBLE is None else api.flexible_from}"
        for api in API.values()
    ]
    assert ours == KAFKA_4_4
    assert set(API) == {int(key) for key in ApiKey}


# The APIs of controllers' listeners in ApiMessageType of Kafka 4.3.1, those that are here: served
# there alone, and on the listeners of clients too.
ON_CONTROLLERS_ALONE = """
Vote BeginQuorumEpoch EndQuorumEpoch AlterPartition Envelope FetchSnapshot BrokerRegistration
BrokerHeartbeat AllocateProducerIds ControllerRegistration AssignReplicasToDirs UpdateRaftVoter
"""
ON_BOTH = """
Fetch SaslHandshake ApiVersions CreateTopics DeleteTopics DescribeAcls CreateAcls DeleteAcls
DescribeConfigs AlterConfigs SaslAuthenticate CreatePartitions ElectLeaders IncrementalAlterConfigs
AlterPartitionReassignments ListPartitionReassignments AlterClientQuotas
DescribeUserScramCredentials AlterUserScramCredentials DescribeQuorum UpdateFeatures
DescribeCluster UnregisterBroker AddRaftVoter RemoveRaftVoter CreateDelegationToken
RenewDelegationToken ExpireDelegationToken DescribeDelegationToken
"""


def test_listeners_are_kafkas() -> None:
    on_controllers = [api for api in API.values() if api.on_controllers]
    alone = [api.name for api in on_controllers if not api.on_brokers]
    assert sorted(alone) == sorted(ON_CONTROLLERS_ALONE.split())
    assert sorted(api.name for api in on_controllers if api.on_brokers) == sorted(ON_BOTH.split())
    assert all(api.on_brokers for api in API.values() if not api.on_controllers)


@pytest.mark.parametrize("api", API.values(), ids=lambda api: api.name)
def test_an_apis_tables_have_its_versions(api: Api) -> None:
    for table in (api.request, api.response):
        assert api.key == table.API_KEY
        assert version_range(table.VERSIONS) == (api.min_version, api.max_version)
        flexible = 32768 if table.FLEXIBLE is None else version_range(table.FLEXIBLE)[0]
        assert flexible == api.flexible_from
    assert api.min_version <= api.max_version
    for of in (api.request_codec, api.response_codec):
        assert of(api.max_version) is of(api.max_version)
        with pytest.raises(ProtocolError, match="has no version"):
            of(api.max_version + 1)


def test_produce_is_advertised_from_zero_and_served_from_three() -> None:
    assert API[ApiKey.PRODUCE].advertised_min_version == 0
    assert API[ApiKey.PRODUCE].min_version == 3
    others = [api for api in API.values() if api.key != ApiKey.PRODUCE]
    assert all(api.advertised_min_version == api.min_version for api in others)


def test_header_versions() -> None:
    fetch, versions, deletion = (
        API[ApiKey.FETCH],
        API[ApiKey.API_VERSIONS],
        API[ApiKey.OFFSET_DELETE],
    )
    assert [fetch.request_header_version(version) for version in (11, 12)] == [1, 2]
    assert [fetch.response_header_version(version) for version in (11, 12)] == [0, 1]
    assert [versions.request_header_version(version) for version in (2, 3, 99)] == [1, 2, 2]
    assert [versions.response_header_version(version) for version in (2, 3, 99)] == [0, 0, 0]
    assert deletion.request_header_version(0) == 1
    assert deletion.response_header_version(0) == 0


def test_importing_the_table_of_apis_imports_no_messages() -> None:
    """Start-up pays for what is used: message tables come with their first request."""
    script = (
        "import sys, tidelog_protocol.apis, tidelog_protocol.frames\n"
        "print([name for name in sys.modules if name.startswith('tidelog_protocol.messages')])\n"
        "heavy = {'asyncio', 'json', 'inspect', 'dataclasses', 'logging', 'uuid', 'ast'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
