"""Spark's Kafka source and sink with the options that `client_config("spark")` has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

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


def test_spark_logs_in_with_a_delegation_token_of_its_provider(spark: SparkSession) -> None:
    """The provider is called as Spark's scheduler calls it, which does so with Kerberos alone."""
    keys = {"delegation.token.secret.key": "a secret of all brokers"}
    with tidelog.run(keys, security="sasl_ssl") as cluster:
        cluster.create_topic("orders")
        options = cluster.client_config("spark")
        login = {name: text for name, text in options.items() if ".ssl." not in name}
        store = {name: text for name, text in options.items() if ".ssl." in name}
        prefix = "spark.kafka.clusters.tidelog"
        servers, protocol = "kafka.bootstrap.servers", "kafka.security.protocol"
        settings = {
            f"{prefix}.auth.bootstrap.servers": login.pop(servers),
            f"{prefix}.security.protocol": login.pop(protocol),
            f"{prefix}.target.bootstrap.servers.regex": re.escape(options[servers]),
            f"{prefix}.sasl.token.mechanism": "SCRAM-SHA-256",
            **{f"{prefix}.{name}": text for name, text in login.items()},
            **{f"{prefix}.{name.removeprefix('kafka.')}": text for name, text in store.items()},
        }
        context, jvm = cast("Any", spark.sparkContext)._jsc.sc(), cast("Any", spark)._jvm
        for name, text in settings.items():
            context.conf().set(name, text)
        try:
            tokens = jvm.org.apache.hadoop.security.Credentials()
            provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
            provider.obtainDelegationTokens(context.hadoopConfiguration(), context.conf(), tokens)
            assert tokens.numberOfTokens() == 1
            user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
            user.addCredentials(tokens)
            given = {servers: options[servers], **store}
            rows = spark.createDataFrame([("k", "one")], "key string, value string")
            rows.write.format("kafka").options(**given, topic="orders").save()
            read = spark.read.format("kafka").options(**given, subscribe="orders").load()
            assert [bytes(row.value) for row in read.select("value").collect()] == [b"one"]
        finally:
            # The user keeps the token, and later clients look at where it is for.
            context.conf().set(f"{prefix}.target.bootstrap.servers.regex", "nowhere")
