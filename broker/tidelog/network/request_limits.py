"""How many array elements and tagged fields a request may have.

Kafka only bounds them by the request's bytes, and a request of 100 MiB holds 100 million empty
keys. tidelog refuses such a request while it decodes it, before anything is built of it: the
connection is closed, as for all bytes that are no request. The limits are far above what clients
send to a broker of 10,000 partitions (`docs/limits.md`).
"""

from __future__ import annotations

from tidelog_protocol.apis import ApiKey

__all__ = ["elements_max"]

ELEMENTS_MAX = 25_000
"""Elements of all arrays of a request, with those within them, and its tagged fields: 10,000 topics
with a partition each, and some more."""

NAMES_MAX = 10_000
"""The same where a request is a list of names or filters: each costs more than to decode it."""

PROTOCOLS_MAX = 32
"""Of a JoinGroup: each of thousands of members has some, and votes for one that all have. A client
has up to four."""

_OF_NAMES = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LEAVE_GROUP,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
    }
)


def elements_max(api_key: ApiKey) -> int:
    """Return the budget of one request of this API."""
    if api_key == ApiKey.JOIN_GROUP:
        return PROTOCOLS_MAX
    return NAMES_MAX if api_key in _OF_NAMES else ELEMENTS_MAX
