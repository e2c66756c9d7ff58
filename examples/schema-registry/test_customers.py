"""A broker beside a schema registry. `mock://` is one in this process; use your own URL instead."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from customers import CUSTOMER, CUSTOMER_WITH_CITY, read, write

from tidelog.testing.records import produce, read_all


@pytest.fixture
def registry(request):
    return SchemaRegistryClient.new_client({"url": f"mock://{request.node.name}"})


def test_new_readers_read_what_old_writers_wrote(tidelog_bootstrap, tidelog_topic, registry):
    place = (tidelog_bootstrap, registry, tidelog_topic)
    write(*place, CUSTOMER, {"name": "Ada"})
    write(*place, CUSTOMER_WITH_CITY, {"name": "Grace", "city": "New York"})
    assert read(*place, CUSTOMER_WITH_CITY, 2) == [
        {"name": "Ada", "city": "unknown"},
        {"name": "Grace", "city": "New York"},
    ]


def test_records_name_their_schema(tidelog_bootstrap, tidelog_topic, registry):
    """A magic byte and the schema's id precede the Avro data."""
    write(tidelog_bootstrap, registry, tidelog_topic, CUSTOMER, {"name": "Ada"})
    (record,) = read_all(tidelog_bootstrap, tidelog_topic)
    latest = registry.get_latest_version(f"{tidelog_topic}-value")
    assert record.value[:5] == b"\0" + latest.schema_id.to_bytes(4, "big")


def test_a_record_without_a_schema_is_refused(tidelog_bootstrap, tidelog_topic, registry):
    produce(tidelog_bootstrap, tidelog_topic, ["Ada"])
    with pytest.raises(Exception, match="not produced with a Confluent Schema Registry"):
        read(tidelog_bootstrap, registry, tidelog_topic, CUSTOMER, 1)
