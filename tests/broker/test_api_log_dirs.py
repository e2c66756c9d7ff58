"""DescribeLogDirs."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath, batch
from tidelog.api.log_dirs import LogDirsApi
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo", 2)
    path.create("bar", 1)
    yield path
    path.logs.abandon()


def describe(
    path: DataPath, topics: dict[str, list[int]] | None, version: int = 4
) -> DescribeLogDirsResponse:
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    asked = None if topics is None else [topic(topic=n, partitions=p) for n, p in topics.items()]
    response = path.call(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=asked))
    codec = API[ApiKey.DESCRIBE_LOG_DIRS].response_codec(version)
    decoded: DescribeLogDirsResponse = codec.decode(codec.encode(response))
    return decoded


def test_a_failed_directory_is_an_error(path: DataPath, tmp_path: Path) -> None:
    path.logs.fail(str(tmp_path), OSError(errno.EIO, "disk"))
    (result,) = describe(path, None).results
    assert (result.error_code, result.log_dir) == (ErrorCode.KAFKA_STORAGE_ERROR, str(tmp_path))
    assert result.topics == []


def sizes(response: DescribeLogDirsResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    }


def test_everything(path: DataPath, tmp_path: Path) -> None:
    sent = batch(3)
    path.produce("foo", 1, sent)
    response = describe(path, None)
    (result,) = response.results
    assert (response.error_code, result.error_code, result.log_dir) == (0, 0, str(tmp_path))
    assert sizes(response) == {("foo", 0): 0, ("foo", 1): len(sent), ("bar", 0): 0}
    assert all(
        p.offset_lag == 0 and not p.is_future_key for t in result.topics for p in t.partitions
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, []),
        ({"foo": [1, 9], "nope": [0]}, [("foo", 1)]),
        ({"bar": []}, []),
    ],
)
def test_some(path: DataPath, asked: dict[str, list[int]], found: list[Any]) -> None:
    assert list(sizes(describe(path, asked))) == found


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_every_version(path: DataPath, version: int) -> None:
    response = describe(path, None, version)
    assert len(sizes(response)) == 3


def test_volume_sizes_are_returned_if_known(path: DataPath) -> None:
    (result,) = describe(path, {}).results
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    api = LogDirsApi(path.logs, lambda directory: (1000, len(directory)))
    path.handlers.update(api.handlers())
    (result,) = describe(path, {}).results
    assert (result.total_bytes, result.usable_bytes) == (1000, len(result.log_dir))


def test_no_directory_is_cordoned_before_metadata_version_4_3(path: DataPath) -> None:
    path.logs.cordoned = frozenset(path.logs.log_dirs)
    levels = [False, True]
    api = LogDirsApi(path.logs, may_cordon=lambda: levels.pop())
    path.handlers.update(api.handlers())
    assert describe(path, {}, version=5).results[0].is_cordoned
    assert not describe(path, {}, version=5).results[0].is_cordoned
