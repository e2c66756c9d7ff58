"""One file per API family: request in, response out.

Clients' records:
produce.py          Produce; produce_gate.py  verifies its transaction (KIP-890)
fetch.py            Fetch; fetch_delayed.py  waits for more; fetch_remote.py  joins remote reads
share_fetch.py      ShareFetch, ShareAcknowledge
offsets.py          ListOffsets, OffsetForLeaderEpoch, DeleteRecords
offsets_remote.py   look-ups by time in the remote tier

Groups and transactions:
groups.py           FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup
consumer_groups.py  ConsumerGroupHeartbeat, which is refused (KIP-848)
streams_groups.py   StreamsGroupHeartbeat, StreamsGroupDescribe (KIP-1071)
share_groups.py     ShareGroupHeartbeat, ShareGroupDescribe (KIP-932), which are not listed yet
share_group_offsets.py  Describe-, Alter- and DeleteShareGroupOffsets, likewise
group_offsets.py    OffsetCommit, OffsetFetch, OffsetDelete
group_admin.py      DescribeGroups, ListGroups, DeleteGroups
transactions.py     InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
txn_offsets.py      TxnOffsetCommit
txn_admin.py        DescribeTransactions, ListTransactions, DescribeProducers

The cluster:
versions.py         ApiVersions; sasl.py  SaslHandshake, SaslAuthenticate outside of a login
metadata.py         Metadata, DescribeCluster, DescribeTopicPartitions
describe_controllers.py  DescribeCluster on the controllers' listeners
topics.py           CreateTopics, DeleteTopics, CreatePartitions
configs.py          DescribeConfigs, AlterConfigs, IncrementalAlterConfigs
acls.py             DescribeAcls, CreateAcls, DeleteAcls
delegation_tokens.py  Create-, Renew-, Expire- and DescribeDelegationToken
envelope.py         Envelope
client_quotas.py    DescribeClientQuotas, AlterClientQuotas
config_resources.py  ListConfigResources; user_credentials.py  DescribeUserScramCredentials
telemetry.py        GetTelemetrySubscriptions, PushTelemetry (KIP-714)
log_dirs.py         DescribeLogDirs, AlterReplicaLogDirs
elections.py        ElectLeaders, UnregisterBroker, reassignments of partitions

Between brokers:
brokers.py          requests to the active controller; envelope.py  those of clients
share_state.py      Initialize-, Read-, Write-, DeleteShareGroupState, ReadShareGroupStateSummary
decided.py          answers with the decision of the active controller, or its refusal
quorum.py           requests of the metadata quorum; describe_quorum.py  DescribeQuorum
raft_voters.py      AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853)
"""
