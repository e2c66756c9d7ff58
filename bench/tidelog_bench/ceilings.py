"""What the data path can cost at best, and what it may: the figures ours are put beside.

Measured with a throw-away prototype of the data path (one partition, hand-written Produce
and Fetch, no sequences, epochs, high watermark or parking), sockets included, on 2 shared cores
with Python 3.11. Sections 1 and 2 have what it reached, section 4 rule 3 the budget of a finished
broker, which is to stay within 2 times of the prototype. Middle of the range where it is one.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CEILINGS", "PROFILE_ABOVE", "Ceiling", "line"]

PROFILE_ABOVE = 2.0
"""A figure more than so many times its ceiling wants to be profiled."""


class Ceiling(NamedTuple):
    """CPU of the broker: the prototype's, and what was allowed where there is a rule."""

    unit: str
    prototype: float | None
    budget: float | None = None


CEILINGS = {
    # 5-6 us: one 100-byte record a request, 10 connections, pipelined
    "produce request": Ceiling("us", 5.5, 15.0),
    # 0.26-0.32 ms: 100 partitions of 1 KiB a request
    "produce, further partition": Ceiling("us", 2.9, 5.0),
    # 13-17 us: one batch of 16 KiB a request
    "produce, batches of 16 KiB": Ceiling("ms/MB", 0.92),
    # 0.32-0.4 ms: one batch of 1 MiB a request
    "produce, batches of 1 MiB": Ceiling("ms/MB", 0.35),
    # section 2: under 64 KiB all ways of reading tie at 15 us a request
    "fetch request": Ceiling("us", 15.0, 15.0),
    "fetch, further partition": Ceiling("us", None, 5.0),
    "fetch, answers of 64 KiB": Ceiling("ms/MB", 0.23),
    # 0.1-0.13 ms/MB: answers of 1 MiB
    "fetch, answers of 1 MiB": Ceiling("ms/MB", 0.12),
}


def line(name: str, figure: float) -> str:
    """A row of the table: ours, the prototype's and how many times that it is, the budget."""
    ceiling = CEILINGS[name]
    digits = 1 if ceiling.unit == "us" else 2
    text = f"{name:28} {figure:8.{digits}f} {ceiling.unit:5}"
    if ceiling.prototype is not None:
        times = figure / ceiling.prototype
        mark = " !" if times > PROFILE_ABOVE else "  "
        text += f"  prototype {ceiling.prototype:5.{digits}f} (x{times:.1f}{mark})"
    if ceiling.budget is not None:
        text += f"  budget {ceiling.budget:.0f}"
    return text
