"""A follower whose topic leaves the remote tier (KIP-950) while it is given what was remote."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.test_aux_state import Tier, TieredLeader, follower, played, settle, view
from tidelog.replication.fetch_state import State

if TYPE_CHECKING:
    from pathlib import Path


@played
async def test_a_topic_that_leaves_the_tier_begins_where_its_leader_does(tmp_path: Path) -> None:
    """It began with offsets that were remote, and nowhere by then."""
    leader = TieredLeader(0, 5, 9)
    tier = Tier(leader)
    tier.hangs = asyncio.Event()
    async with follower(tmp_path, leader, tier=tier) as one:
        partition = one.follow(end=3)
        await settle()
        assert tier.asked
        out = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        one.path.apply(topic_configs={"a": out})
        tier.hangs.set()
        await settle()
        assert one.state() is State.DELAYED
        assert view(partition) == (0, 0, 0, 3)
        leader.log_start = 5  # it has heard of it too
        await asyncio.sleep(5)
        assert view(partition) == (5, 5, 5, 5)
