"""The specification's vectors: which tests play them, and that no case of a table is left out.

Vectors of kind `cluster`, step by step with the state of every broker after each:

| Vector | Played in |
|---|---|
| all | sim/test_scenarios: whole simulated brokers |
| hw-propagation, kip101-*, unclean-election | broker/test_replication_scenarios: replicas alone |
| kip101-*, kip405-*, remote-outage, topic-deletion | tier/test_scenarios: live brokers |
| kip405-* | storage/test_remote_scenarios: logs, store and metadata alone |
| topic-deletion | storage/test_remote_metadata_cache: its events alone |

Live brokers are in one process; those of the remote tier, a second time, in processes of their
own.

Tables are `PLAYED`.
"""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.vectors import load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent
PLAYED = {
    "broker/vectors/diverging-epoch": "broker/test_replication_tables broker/test_truncation",
    "broker/vectors/fencing": "broker/test_replication_tables broker/test_tiered_partitions",
    "broker/vectors/follower-start-offset": "broker/test_aux_state",
    "broker/vectors/isr-membership": "broker/test_in_sync",
    # By time across the tiers in broker/test_api_offsets_remote.
    "broker/vectors/list-offsets-both-tiers": "broker/test_replication_tables"
    " broker/test_tiered_partitions",
    "storage/vectors/config-validation": "storage/test_config_rules",
    "storage/vectors/copy-eligibility": "storage/test_remote_copier",
    "storage/vectors/golden-bytes": "storage/test_remote_metadata_records"
    " storage/test_producer_snapshot protocol/test_records",
    "storage/vectors/leader-epoch-cache": "storage/test_epochs",
    "storage/vectors/offset-for-leader-epoch": "storage/test_epochs",
    "storage/vectors/remote-lineage": "storage/test_remote_lineage",
    "storage/vectors/retention": "storage/test_retention_scenario storage/test_remote_expiry",
    "storage/vectors/segment-lifecycle": "storage/test_remote_metadata_cache",
}
CASES = {
    "diverging-epoch": 24,
    "fencing": 38,
    "follower-start-offset": 23,
    "isr-membership": 25,
    "list-offsets": 43,
    "config-validation": 29,
    "copy-eligibility": 15,
    "golden-bytes": 30,
    "leader-epoch-cache": 37,
    "offset-for-leader-epoch": 25,
    "remote-lineage": 108,
    "retention": 28,
    "segment-lifecycle": 38,
}
ELSEWHERE = (
    "printed ",  # compat/test_remote_metadata: Kafka's formatter prints our bytes so
    "offset rule: ",  # storage/test_remote_lineage, all in one: rules for its model, not a function
)


def names_in(path: Path) -> Iterator[str]:
    """The ids of all parameters of a file's tests."""
    spec = importlib.util.spec_from_file_location(f"vectors_in_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for _, test in inspect.getmembers(module, inspect.isfunction):
        for mark in getattr(test, "pytestmark", []):
            if mark.name == "parametrize":
                yield from map(str, ids_of(mark))


def ids_of(mark: Any) -> list[Any]:
    values, ids = mark.args[1], mark.kwargs.get("ids")
    if callable(ids):
        return [ids(value) for value in values]
    return ids or [getattr(value, "id", value) for value in values]


@pytest.mark.parametrize("vector", PLAYED)
def test_every_case_of_a_table_is_played(vector: str) -> None:
    document = load_yaml(TESTS / f"{vector}.yaml")
    names = [case["name"] for case in document["cases"]]
    assert len(names) == CASES[document["id"]], "as many as the specification has"
    tests = PLAYED[vector].split()
    played = {name for test in tests for name in names_in(TESTS / f"{test}.py")}
    left_out = [name for name in names if name not in played and not name.startswith(ELSEWHERE)]
    assert left_out == []


def test_all_tables_are_listed() -> None:
    listed = {f"{vector}.yaml" for vector in PLAYED}
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.glob("*/vectors/*.yaml")
        if "\nkind: table\n" in path.read_text()
    }
    assert found == listed
