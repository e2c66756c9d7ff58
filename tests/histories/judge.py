"""All checks of one history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from histories.epochs import check_epochs
from histories.members import check_members
from histories.queues import check_queues
from histories.real_time import check_real_time
from histories.stamps import check_stamps
from histories.transactions import check_transactions

if TYPE_CHECKING:
    from histories.calls import Anomaly, ClientHistory


def anomalies(history: ClientHistory) -> list[Anomaly]:
    """Everything that is wrong with a history; empty if Kafka's promises held."""
    return [
        *check_queues(history),
        *check_transactions(history),
        *check_real_time(history),
        *check_stamps(history),
        *check_members(history),
        *check_epochs(history),
    ]
