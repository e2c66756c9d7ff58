"""kafka-python with the configuration that `client_config` has: writes a record and reads it.

Its own process: refused, it leaves sockets open. Standard input is {"state", "wishes", "topic"};
the output is the value or the error.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tidelog.control.credentials.state import SecurityState, client_config

WAIT_S = 60.0
REFUSED = ("certificate verify failed", "SaslAuthentication", "SASL")


def written(config: dict[str, Any], topic: str) -> str:
    said = io.StringIO()  # reasons are in its log alone
    logging.basicConfig(stream=said, level=logging.INFO)
    end = time.monotonic() + WAIT_S
    while True:  # refused, it tries again for all of its time
        try:
            producer = KafkaProducer(**config, bootstrap_timeout_ms=3000)
            break
        except KafkaError as error:
            text = said.getvalue()
            if any(word in text for word in REFUSED) or time.monotonic() > end:
                return f"error: {error} {text}"
    producer.send(topic, b"kafka-python").get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_S * 1000)
    )
    value: bytes = next(consumer).value
    consumer.close()
    return value.decode()


def main() -> None:
    given = json.load(sys.stdin)
    config = client_config(SecurityState(**given["state"]), "kafka-python", given["wishes"])
    print(" ".join(written(config, given["topic"]).split()))


if __name__ == "__main__":
    main()
