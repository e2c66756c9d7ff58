"""CRC-32C: the right polynomial, over any buffer, without the package's slow import."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

from tidelog_protocol import checksum
from tidelog_protocol.checksum import crc32c


def test_check_value_of_the_polynomial() -> None:
    assert crc32c(b"123456789", 0) == 0xE3069283


def test_reads_any_contiguous_buffer() -> None:
    data = bytearray(b"xx123456789xx")
    assert crc32c(memoryview(data)[2:11], 0) == 0xE3069283
    assert crc32c(memoryview(data)[6:11], crc32c(memoryview(data)[2:6], 0)) == 0xE3069283


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_package_and_its_metadata_are_not_imported() -> None:
    code = (
        "import sys, tidelog_protocol.checksum\n"
        "print([m for m in ('crc32c', 'email', 'importlib.metadata') if m in sys.modules])"
    )
    assert run(code) == "[]"


def test_the_package_still_imports_beside_it() -> None:
    code = (
        "from tidelog_protocol.checksum import crc32c as ours\n"
        "import crc32c\n"
        "print(ours(b'abc', 0) == crc32c.crc32c(b'abc'))"
    )
    assert run(code) == "True"


@pytest.mark.parametrize("missing", ["crc32c", "crc32c._crc32c"])
def test_falls_back_to_the_package(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None) -> object:
            return None if name == missing else PathFinder.find_spec(name, path)  # type: ignore[arg-type]

    monkeypatch.setattr(checksum, "PathFinder", Finder)
    monkeypatch.delitem(sys.modules, "crc32c", raising=False)
    assert checksum._load_extension_alone() is None
    assert checksum._load()(b"123456789", 0) == 0xE3069283
