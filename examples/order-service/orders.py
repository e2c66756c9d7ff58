"""What all parts of the order service know: an order, and how it is written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


class OrderRefusedError(Exception):
    """The order is not stored, or it is not known whether it is."""


@dataclass(frozen=True)
class Order:
    number: str
    customer: str
    item: str
    cents: int

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Order:
        """ValueError if it is no order."""
        try:
            return cls(**json.loads(data))
        except TypeError as error:
            raise ValueError(str(error)) from error
