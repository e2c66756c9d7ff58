"""Vectors are YAML files. libyaml reads them ten times as fast as PyYAML's own parser, and each of
the processes that share the tests reads them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(path: Path) -> Any:
    return yaml.load(path.read_text(), LOADER)
