"""`python -m compat.conformance.tiered`: as its parent, with two brokers and a tier, and with
Kafka's console tools; see `door.py`."""

from __future__ import annotations

import sys
from functools import partial

from compat.conformance.door import Door
from compat.conformance.tiered.doors import TieredKafkas, TieredTidelogs
from compat.conformance.tiered.runner import RECORDED, collect

DOOR = Door(
    "python -m compat.conformance.tiered",
    {"kafka": TieredKafkas, "tidelog": TieredTidelogs},
    partial(collect, with_tools=True),
    RECORDED,
)

if __name__ == "__main__":
    sys.exit(DOOR.main())
