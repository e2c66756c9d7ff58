"""kcat, the client for the command line that Linux distributions have."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import tidelog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compat.brokers import Broker

pytestmark = [pytest.mark.compat, pytest.mark.timeout(200)]


@pytest.fixture
def kcat(broker: Broker) -> Callable[..., str]:
    return kcat_with("-b", broker.bootstrap)


def kcat_with(*options: str) -> Callable[..., str]:
    """Run kcat with these options, and those of each call; returns its output."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("kcat is not installed: apt-get install kcat")

    def run(*args: str, stdin: str = "") -> str:
        command = [program, *options, *args]
        ended = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended
        return ended.stdout

    return run


def test_kcat_writes_lists_queries_and_reads(
    kcat: Callable[..., str], fresh: Callable[[str], str]
) -> None:
    topic, group = fresh("kcat"), fresh("kcat-readers")
    kcat("-P", "-t", topic, "-K:", "-z", "lz4", "-X", "enable.idempotence=true", stdin="a:1\nb:2\n")
    kcat("-P", "-t", topic, "-H", "colour=red", stdin="3\n")
    (listed,) = json.loads(kcat("-L", "-J", "-t", topic))["topics"]
    assert listed["topic"] == topic
    assert [each["partition"] for each in listed["partitions"]] == [0]
    assert kcat("-Q", "-t", f"{topic}:0:0").split()[-1] == "0"
    assert kcat("-Q", "-t", f"{topic}:0:-1").split()[-1] == "3"
    read = ["-e", "-q", "-f", r"%o %k %s %h\n"]
    expected = ["0 a 1", "1 b 2", "2  3 colour=red"]
    taken = kcat("-C", "-t", topic, *read).splitlines()
    assert [line.rstrip() for line in taken] == expected
    taken = kcat("-G", group, "-X", "auto.offset.reset=earliest", *read, topic).splitlines()
    assert [line.rstrip() for line in taken] == expected
    kcat("-P", "-t", topic, stdin="4\n")
    assert kcat("-G", group, *read, topic).split() == ["3", "4"], "from where the group was"


@pytest.mark.nightly  # two clusters
@pytest.mark.parametrize(
    ("kind", "mechanisms"), [("mtls", [None]), ("sasl_ssl", ["PLAIN", "OAUTHBEARER"])]
)
def test_kcat_takes_the_configuration_of_a_secured_cluster(
    kind: str, mechanisms: list[str | None], tmp_path: Path
) -> None:
    """Without SCRAM: that of Debian's librdkafka 2.0 is refused by Apache Kafka 4.3 as well."""
    file = tmp_path / "kcat.conf"
    kcat = kcat_with("-F", str(file))
    with tidelog.run(security=kind) as cluster:
        for mechanism in mechanisms:
            topic = f"t-{mechanism}"
            cluster.create_topic(topic)
            wishes = {} if mechanism is None else {"mechanism": mechanism}
            file.write_text(cluster.client_config("kcat", **wishes))
            kcat("-P", "-t", topic, stdin="one\n")
            assert kcat("-C", "-t", topic, "-e", "-q") == "one\n"
