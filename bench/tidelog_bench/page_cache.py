"""Memory that is ready for what a measurement writes, and what it was like before.

A virtual machine gives free memory back to its host (free page reporting, ballooning), and the
first write to a page that comes back costs a fault of the host, which the guest sees as system time
of the writing process: 2.3 ms/MB where a write to memory at hand takes 0.17. That is more than all
the rest of a broker's work, falls on whichever peer comes when memory runs short, and is neither's.
So each measurement that fills files begins by filling and removing one as large: the pages that it
leaves are the next to be used.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["warm_up_page_cache"]

_CHUNK = os.urandom(1 << 20)
_SPARE = 1.5  # brokers write more than records, and in other pieces


def warm_up_page_cache(folder: Path, megabytes: float) -> float:
    """Fill and remove a file for a measurement that writes so much; CPU ms/MB that it took."""
    path = folder / "warm-up"
    chunks = max(1, int(_SPARE * megabytes * 1e6 / len(_CHUNK)))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        began = time.process_time()
        for _ in range(chunks):
            os.write(descriptor, _CHUNK)
        return 1e3 * (time.process_time() - began) / (chunks * len(_CHUNK) / 1e6)
    finally:
        os.close(descriptor)
        os.unlink(path)
