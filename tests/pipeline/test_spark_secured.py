"""Spark's Kafka source and sink with the options that `client_config("spark")` has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import tidelog
from support.spark import MARKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*MARKS, pytest.mark.nightly]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_spark_writes_and_reads_with_sasl_ssl(mechanism: str, spark: SparkSession) -> None:
    with tidelog.run(security="sasl_ssl") as cluster:
        cluster.create_topic("orders", 2)
        options = cluster.client_config("spark", mechanism=mechanism)
        rows = spark.createDataFrame([("k", "one"), ("k", "two")], "key string, value string")
        rows.write.format("kafka").options(**options, topic="orders").save()
        read = spark.read.format("kafka").options(**options, subscribe="orders").load()
        values = [bytes(row.value) for row in read.select("value").collect()]
        assert sorted(values) == [b"one", b"two"]


def test_spark_is_refused_with_a_wrong_password(spark: SparkSession) -> None:
    with tidelog.run(security="sasl_plaintext") as cluster:
        cluster.create_topic("orders")
        options = cluster.client_config("spark", password="wrong")
        read = spark.read.format("kafka").options(**options, subscribe="orders").load()
        with pytest.raises(Exception, match="Invalid username or password"):
            read.count()
