"""Message tables, one file per family of APIs, and Kafka's own records.

    data                 Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords
    cluster              ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions
    groups               FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup
    group_offsets        OffsetCommit, OffsetFetch, OffsetDelete
    group_admin          DescribeGroups, ListGroups, DeleteGroups
    consumer_groups      ConsumerGroupHeartbeat, ConsumerGroupDescribe (KIP-848)
    share_groups         ShareGroupHeartbeat, ShareGroupDescribe (KIP-932)
    share_group_offsets  Describe-, Alter- and DeleteShareGroupOffsets
    share_consumers      ShareFetch, ShareAcknowledge (KIP-932)
    share_state          Initialize-, Read-, Write- and DeleteShareGroupState,
                         ReadShareGroupStateSummary
    streams_groups       StreamsGroupHeartbeat, StreamsGroupDescribe (KIP-1071)
    txns                 InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn,
                         WriteTxnMarkers, TxnOffsetCommit
    txn_admin            DescribeTransactions, ListTransactions, DescribeProducers
    admin                CreateTopics, DeleteTopics, CreatePartitions, DescribeLogDirs
    configs              DescribeConfigs, AlterConfigs, IncrementalAlterConfigs
    acls                 DescribeAcls, CreateAcls, DeleteAcls
    quotas               DescribeClientQuotas, AlterClientQuotas
    telemetry            GetTelemetrySubscriptions, PushTelemetry (KIP-714)
    sasl                 SaslHandshake, SaslAuthenticate
    users                Describe- and AlterUserScramCredentials
    tokens               Create-, Renew-, Expire- and DescribeDelegationToken (KIP-48)
    cluster_admin        ElectLeaders, Alter- and ListPartitionReassignments, UnregisterBroker
    controller           AlterPartition, BrokerRegistration, BrokerHeartbeat, AllocateProducerIds,
                         Envelope
    quorum               Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum, FetchSnapshot
    raft_voters          AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853)
    metadata_records     values of `__cluster_metadata`
    quorum_records       control records of `__cluster_metadata` and its snapshots
    remote_metadata      values of `__remote_log_metadata`
    coordinator_records  keys and values of `__consumer_offsets` and `__transaction_state`
    consumer_protocol    subscriptions and assignments of classic consumers
    consumer_records     keys and values of KIP-848 consumer groups in `__consumer_offsets`
    share_group_records  keys and values of share groups in `__consumer_offsets`
    share_state_records  keys and values of `__share_group_state`
    streams_group_records  keys and values of streams groups in `__consumer_offsets`

Read a request or response from its table's top: its purpose, what each version added, then one line
per field in wire order. Structures are nested where they are used and also reachable right under
their message, as Kafka's generated classes have them: `FetchResponse.PartitionData`.
"""
