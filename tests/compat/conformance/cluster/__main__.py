"""`python -m compat.conformance.cluster`: as its parent, with three brokers; see `door.py`."""

from __future__ import annotations

import sys

from compat.conformance.cluster.doors import KafkaCluster, TidelogCluster
from compat.conformance.cluster.runner import RECORDED, collect
from compat.conformance.door import Door

DOOR = Door(
    "python -m compat.conformance.cluster",
    {"kafka": KafkaCluster, "tidelog": TidelogCluster},
    collect,
    RECORDED,
)

if __name__ == "__main__":
    sys.exit(DOOR.main())
