"""The specification's cluster vectors, step by step: replies and states compared.

Here a stand-in for the controller decides exactly what a vector says, and carries each fetch;
`sim/test_scenarios.py` gives the same vectors to whole brokers. All vectors, and who plays them
(cases of those there are; the rest needs the remote tier):

| Vector | Played in | Cases |
|---|---|---|
| hw-propagation, kip101-s1-lost-message, kip101-s2-divergence, unclean-election | here; sim/test_scenarios | all steps |
| diverging-epoch: fetch_divergence | test_replication_tables | 18 of 18 |
| diverging-epoch: follower_truncation | test_truncation | 6 of 6 |
| fencing: fencing, by a broker and by the controller | test_replication_tables | 16 + 6 of 22 |
| fencing: fetch_route | test_replication_tables | 11 of 16 |
| follower-start-offset | test_truncation, test_replication_tables | 3 + 2 of 23 |
| isr-membership | test_in_sync | 25 of 25 |
| list-offsets | test_replication_tables; test_api_offsets asks the same of a local log | 11 of 43 |
| leader-epoch-cache, offset-for-leader-epoch | storage/test_epochs | 37 of 37, 25 of 25 |
| config-validation | storage/test_config_rules | 29 of 29 |
| retention: local_deletable | storage/test_retention_scenario | 2 of 13 |
| golden-bytes: producer snapshots, batches | storage/test_producer_snapshot, protocol/test_records | 2 + 4 of 30 |
| golden-bytes: remote metadata | storage/test_remote_metadata_records; compat/test_remote_metadata asks Kafka | 24 of 30 |
| kip405-* | storage/test_remote_scenarios: logs, store, metadata | all steps |
| copy-eligibility | storage/test_remote_copier | 15 of 15 |
| remote-lineage | storage/test_remote_lineage | 108 of 108 |
| retention: remote_deletable | storage/test_remote_expiry | 15 of 15 |
| segment-lifecycle | storage/test_remote_metadata_cache | 38 of 38 |
| topic-deletion | storage/test_remote_metadata_cache: its events | |
| remote-outage | nowhere yet | 0 |
"""  # noqa: E501 - a table

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.replica_scenario import Scenario

VECTORS = Path(__file__).parent / "vectors"


@pytest.mark.parametrize(
    "name",
    ["hw-propagation", "kip101-s1-lost-message", "kip101-s2-divergence", "unclean-election"],
)
def test_scenario(name: str, tmp_path: Path) -> None:
    document: dict[str, Any] = yaml.safe_load((VECTORS / f"{name}.yaml").read_text())

    async def run() -> None:
        scenario = Scenario(tmp_path, document["given"])
        await scenario.settle()
        for number, step in enumerate(document["steps"], 1):
            try:
                await scenario.play(step)
            except AssertionError as error:
                error.add_note(f"step {number}: {step.get('name') or step['do']}")
                raise
        await scenario.stop(
            [n for n, node in scenario.names.items() if node not in scenario.stopped]
        )

    asyncio.run(run())
