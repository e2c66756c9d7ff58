"""tidelog answers as Apache Kafka does: against the recording, and the recording against Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.brokers import Tidelog
from compat.conformance import recording
from compat.conformance.compare import differences
from compat.conformance.runner import all_runs, transcript
from compat.jvm import require_jars
from compat.reference import ApacheKafka

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from compat.brokers import Broker
    from compat.conformance.registry import Run
    from compat.conformance.runner import Transcript

APIS = sorted(file.stem for file in recording.FOLDER.glob("*.json"))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Transcript]:
    return recording.load()


@pytest.fixture(scope="module")
def tidelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Tidelog(tmp_path_factory.mktemp("conformance"), has_controller_listener=True)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    require_jars()
    broker = ApacheKafka(tmp_path_factory.mktemp("reference"))
    broker.start()
    yield broker
    broker.stop()


def unlike(
    api: str,
    broker: Broker,
    recorded: dict[str, Transcript],
    keys: Collection[str],
    *,
    twice: bool = False,
) -> list[str]:
    """Differences of the chosen runs of this API, as text.

    With `twice`, a run that differs is run once more with names of its own.
    """
    wanted = [run for run in all_runs(broker.bootstrap) if run.case.api == api]
    kept = [run for run in wanted if run.key in keys]
    assert {run.key for run in kept} == {key for key in keys if key.startswith(f"{api}-")}

    def compared(run: Run, nonce: str = "") -> list[str]:
        heard = recording.comparable(transcript(run, broker.bootstrap, nonce), nonce)
        return [str(one) for one in differences(run.key, recorded[run.key], heard)]

    found: list[str] = []
    for run in kept:
        unlike_at_first = compared(run)
        if unlike_at_first and twice:
            print(*unlike_at_first, "once more:", sep="\n")
            unlike_at_first = compared(run, ".again")
        found += unlike_at_first
    return found


def test_no_case_failed_when_it_was_recorded(recorded: dict[str, Transcript]) -> None:
    broken = [
        key for key, lines in recorded.items() for line in lines if "failed" in line["answer"]
    ]
    assert broken == []


def test_the_oldest_and_the_newest_version_are_chosen() -> None:
    keys = ["Fetch-a-v2-x-v9", "Fetch-a-v2-x-v10", "Fetch-a-v2-x-v11", "Fetch-b-v4"]
    chosen = recording.oldest_and_newest(keys)
    assert chosen == {"Fetch-a-v2-x-v9", "Fetch-a-v2-x-v11", "Fetch-b-v4"}


@pytest.mark.compat
@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", APIS)
def test_answers_as_kafka_did(api: str, tidelog: Broker, recorded: dict[str, Transcript]) -> None:
    chosen = recording.oldest_and_newest(recorded)
    assert unlike(api, tidelog, recorded, chosen) == []


@pytest.mark.compat
@pytest.mark.nightly  # many requests; what breaks one version mostly breaks the newest
@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", APIS)
def test_versions_between_answer_as_kafka_did(
    api: str, tidelog: Broker, recorded: dict[str, Transcript]
) -> None:
    between = recorded.keys() - recording.oldest_and_newest(recorded)
    assert unlike(api, tidelog, recorded, between) == []


@pytest.mark.reference
@pytest.mark.nightly  # the recording changes with its cases alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("api", APIS)
def test_the_recording_is_what_kafka_answers(
    api: str, reference: Broker, recorded: dict[str, Transcript]
) -> None:
    # A JVM that a busy machine holds up for seconds throws members out: a reference that differs
    # must do so twice. Our own broker gets no second chance.
    assert unlike(api, reference, recorded, recorded, twice=True) == []
