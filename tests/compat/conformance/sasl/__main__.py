"""`python -m compat.conformance.sasl`: as its parent, with listeners of SASL; see `door.py`."""

from __future__ import annotations

import sys

from compat.conformance.door import Door
from compat.conformance.sasl.doors import KafkaSasl, TidelogSasl
from compat.conformance.sasl.runner import RECORDED, collect

DOOR = Door(
    "python -m compat.conformance.sasl",
    {"kafka": KafkaSasl, "tidelog": TidelogSasl},
    collect,
    RECORDED,
)

if __name__ == "__main__":
    sys.exit(DOOR.main())
