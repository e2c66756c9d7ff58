"""The topics of an image, as consumer groups see them."""

from __future__ import annotations

import sys

import pytest

from broker.group_broker import topic
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.coordinators.groups.modern.topics import ImageTopics

TOPICS = {"a": topic("a", b"a" * 16, 3), "ab": topic("ab", b"b" * 16, 1)}


def seen(**changed: int) -> ImageTopics:
    """The topics, some with another number of partitions."""
    more = {name: topic(name, TOPICS[name].topic_id, count) for name, count in changed.items()}
    return ImageTopics(ClusterImage(cluster_id="c", topics=TOPICS | more, offset=9))


def test_topics_are_found_by_name_and_by_pattern() -> None:
    topics = seen()
    assert topics.find("a") == (b"a" * 16, 3)
    assert topics.find("c") is None
    assert topics.matching("a.*") == {"a", "ab"}
    assert topics.matching("a") == {"a"}, "the whole name"
    assert topics.version == 9
    with pytest.raises(ValueError, match="missing"):
        topics.matching("(")


def test_a_caller_sees_what_it_may_describe() -> None:
    topics = seen()
    limited = topics.seen_by("ab".__eq__)
    assert limited.matching("a.*") == {"ab"}
    assert limited.find("a") == (b"a" * 16, 3), "by name it is refused before"
    assert topics.matching("a.*") == {"a", "ab"}, "the others see as before"
    assert topics.seen_by(None) is topics


def test_patterns_need_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidelog.config.patterns", raising=False)
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match=r"pip install 'tidelog\[re2\]'"):
        seen().matching("a")


def test_the_hash_changes_with_the_topics() -> None:
    names = ["ab", "a", "missing"]
    before = seen().hash_of(names)
    assert before == seen().hash_of(reversed(names)) != 0
    assert before != seen(a=4).hash_of(names)
    assert before != seen().hash_of(["a"])
    assert seen().hash_of(["missing"]) == 0
    assert -(1 << 63) <= before < 1 << 63
