"""The specification's cluster vectors on whole brokers: replies and states of every step."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sim.loop import simulate
from sim.old_followers import followers
from sim.vector_player import VectorPlayer

VECTORS = Path(__file__).parent.parent / "broker" / "vectors"


def play(name, by_decree=()):
    document = yaml.safe_load((VECTORS / f"{name}.yaml").read_text())
    simulate(name, lambda loop: VectorPlayer.play(loop, document, by_decree))


@pytest.mark.parametrize(
    ("name", "by_decree"),
    [
        ("hw-propagation", ()),
        # A broker that restarts leaves the ISR in a cluster of today, and is elected no more.
        ("kip101-s1-lost-message", ("A is elected",)),
        ("kip101-s2-divergence", ()),
        ("unclean-election", ()),
    ],
)
def test_cluster_vector(name, by_decree):
    play(name, by_decree)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("kip101-s1-lost-message", "A is back; it must not cut to its HW"),
        ("kip101-s2-divergence", "A's first fetch says the same"),
        ("unclean-election", "a consumer that had read offset 4"),
    ],
)
def test_followers_of_earlier_days_fail(name, step):
    with followers("high-watermark"), pytest.raises(AssertionError) as failure:
        play(name)
    assert step in failure.value.__notes__[0]
