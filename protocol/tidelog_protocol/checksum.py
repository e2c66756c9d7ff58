"""CRC-32C from the `crc32c` wheel, without the price of importing its package.

The package's `__init__` reads its own distribution metadata, which pulls in `email` and costs 40
ms: a third of the start-up budget. Only the extension module is needed, so it is loaded on its own.
If that fails (a later release may have another layout), the package is imported.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    Crc32c = Callable[[bytes | bytearray | memoryview, int], int]


def _load() -> Crc32c:
    """The C function, from the bare extension module, else from the package."""
    if "crc32c" not in sys.modules:
        function = _load_extension_alone()
        if function is not None:
            return function
    import crc32c as package  # noqa: PLC0415 - slow, see above

    return cast("Crc32c", package.crc32c)


def _load_extension_alone() -> Crc32c | None:
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    try:
        module = spec.loader.create_module(spec)
        if module is None:
            return None
        spec.loader.exec_module(module)
    except ImportError:
        return None
    return cast("Crc32c | None", getattr(module, "crc32c", None))


crc32c = _load()
"""`crc32c(buffer, value=0)`: CRC-32C of any contiguous buffer, without copying it."""

__all__ = ["crc32c"]
