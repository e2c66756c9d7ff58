"""The specification's cluster vectors on whole simulated brokers: replies and states of every step,
those of the remote tier included."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sim.old_followers import followers
from sim.vector_player import play

TESTS = Path(__file__).parent.parent
VECTORS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted(TESTS.glob("*/vectors/*.yaml"))
    if "\nkind: cluster\n" in path.read_text()
}


def test_all_are_there():
    assert list(VECTORS) == [
        "hw-propagation",
        "kip101-s1-lost-message",
        "kip101-s2-divergence",
        "unclean-election",
        "kip405-follower-to-leader",
        "kip405-s1-new-follower",
        "kip405-s2-out-of-sync",
        "kip405-s3-multiple-hard-failures",
        "kip405-s4-unclean-truncation",
        "kip405-s5-remote-divergence",
        "remote-outage",
        "topic-deletion",
    ]


@pytest.mark.parametrize("name", VECTORS)
def test_cluster_vector(name):
    assert play(VECTORS[name]) == ""


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("kip101-s1-lost-message", "A is back; it must not cut to its HW"),
        ("kip101-s2-divergence", "A's first fetch says the same"),
        ("unclean-election", "a consumer that had read offset 4"),
    ],
)
def test_followers_of_earlier_days_fail(name, step):
    with followers("high-watermark"):
        assert step in play(VECTORS[name])
