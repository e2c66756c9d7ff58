"""The names that `import tidelog` gives, and the base of its errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidelog


def test_the_public_names_are_these() -> None:
    assert sorted(tidelog.__all__) == dir(tidelog)
    assert dir(tidelog) == [
        "Cluster",
        "ClusterError",
        "ConfigError",
        "ControlError",
        "RunningCluster",
        "StartError",
        "TidelogError",
        "__version__",
        "run",
    ]
    assert all(getattr(tidelog, name) for name in tidelog.__all__)


@pytest.mark.parametrize("name", ["ClusterError", "ConfigError", "ControlError", "StartError"])
def test_one_except_catches_every_error(name: str) -> None:
    assert issubclass(getattr(tidelog, name), tidelog.TidelogError)


def test_import_loads_nothing_but_the_package() -> None:
    code = "import sys, tidelog; print([m for m in sys.modules if m.startswith('tidelog')])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "['tidelog']"
