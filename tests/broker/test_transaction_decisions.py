"""Decisions about a transactional id, without a broker: Kafka's tables, and its very records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinators.transactions.decisions import (
    Ending,
    ProducerIdAndEpoch,
    add_partitions,
    complete_transaction,
    end_transaction,
    fence,
    init_producer_id,
    verify_partitions,
)
from tidelog.coordinators.transactions.records import decode, record, tombstone
from tidelog.coordinators.transactions.states import PREVIOUS, TransactionState
from tidelog.coordinators.transactions.transaction import (
    EPOCH_MAX,
    Transaction,
    TransactionValue,
)
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_storage.types import TopicPartition

S = TransactionState
VECTORS = Path(__file__).parent.parent / "protocol" / "vectors" / "kafka-4.3.1-records.jsonl"
PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
NEW_ID = 99


def new_id() -> int:
    return NEW_ID


def transaction(
    state: TransactionState = S.EMPTY, epoch: int = 5, **changes: object
) -> Transaction:
    held = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    value = TransactionValue(
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=1000,
        state=state,
        partitions=frozenset({PARTITION} if held else ()),
        last_update_ms=10,
        start_ms=-1 if state is S.EMPTY else 10,
        client_version=2,
    )
    return Transaction("tx", value._replace(**changes))  # type: ignore[arg-type]


def ending(
    epoch: int,
    *,
    is_commit: bool = True,
    version: int = 2,
    producer_id: int = 7,
    client: bool = True,
) -> Ending:
    return Ending(ProducerIdAndEpoch(producer_id, epoch), is_commit, client, version)


def done(one: Transaction, decision: object) -> TransactionValue:
    """What was decided is written."""
    assert isinstance(decision, TransactionValue)
    one.complete(decision)
    return decision


def test_kafkas_own_records_come_out_of_the_same_requests() -> None:
    """The log of a real coordinator: init, add, commit, init, add, abort; all bytes equal."""
    lines = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    wanted = [
        (bytes.fromhex(line["key"]), bytes.fromhex(line["value"]))
        for line in lines
        if line["topic"] == "__transaction_state"
    ]
    changes = [decode(*pair) for pair in wanted]
    values = [change.value for change in changes if change and change.value]
    assert len(values) == len(wanted) == 9
    for pair, change, value in zip(wanted, changes, values, strict=True):
        assert change is not None
        assert record(change.transactional_id, value) == pair

    times = [value.last_update_ms for value in values]
    partitions = {TopicPartition("ftxn", 0)}
    fresh = TransactionValue(1, -1, 60_000, S.EMPTY, frozenset(), times[0])
    one = Transaction("fix-ftxn", fresh)
    got = [done(one, init_producer_id(one, 60_000, None, times[0], new_id))]
    for index, is_commit in ((1, True), (5, False)):
        if index == 5:
            got.append(done(one, init_producer_id(one, 60_000, None, times[4], new_id)))
        me = ProducerIdAndEpoch(1, one.value.producer_epoch)
        got.append(done(one, add_partitions(one, me, partitions, times[index], 2)))
        asked = Ending(me, is_commit, True, 2)
        got.append(done(one, end_transaction(one, asked, times[index + 1], new_id)))
        got.append(
            done(one, complete_transaction(one, me, is_commit=is_commit, now_ms=times[index + 2]))
        )
    assert [record("fix-ftxn", value) for value in got] == wanted[:8]


# Kafka's table for ending what is not ongoing, second protocol: state -> abort as a repetition,
# abort with the present epoch, commit as a repetition and with the present epoch. "bump" goes on.
ENDINGS_V2 = {
    S.EMPTY: ("PRODUCER_FENCED", "bump", "PRODUCER_FENCED", "INVALID_TXN_STATE"),
    S.COMPLETE_ABORT: ("NONE", "bump", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
    S.COMPLETE_COMMIT: ("INVALID_TXN_STATE", "bump", "NONE", "INVALID_TXN_STATE"),
    S.PREPARE_ABORT: (
        "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED", "INVALID_TXN_STATE", "PRODUCER_FENCED",
    ),
    S.PREPARE_COMMIT: (
        "INVALID_TXN_STATE", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED",
    ),
}  # fmt: skip


@pytest.mark.parametrize("state", ENDINGS_V2)
def test_ending_what_is_not_ongoing_second_protocol(state: TransactionState) -> None:
    for (is_commit, epoch), wanted in zip(
        [(False, 4), (False, 5), (True, 4), (True, 5)], ENDINGS_V2[state], strict=True
    ):
        one = transaction(state)
        decision = end_transaction(one, ending(epoch, is_commit=is_commit), 20, new_id)
        if wanted == "bump":
            value = done(one, decision)
            assert (value.state, value.producer_epoch) == (S.PREPARE_ABORT, 6)
            assert (value.start_ms, value.last_producer_epoch) == (20, 5)
        else:
            assert decision is ErrorCode[wanted]
            assert one.pending is None


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (S.EMPTY, "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        (S.COMPLETE_ABORT, "NONE", "INVALID_TXN_STATE"),
        (S.COMPLETE_COMMIT, "INVALID_TXN_STATE", "NONE"),
        (S.PREPARE_ABORT, "CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE"),
        (S.PREPARE_COMMIT, "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"),
    ],
)
def test_ending_what_is_not_ongoing_first_protocol(
    state: TransactionState, abort: str, commit: str
) -> None:
    for is_commit, wanted in ((False, abort), (True, commit)):
        asked = ending(5, is_commit=is_commit, version=1)
        assert end_transaction(transaction(state), asked, 20, new_id) is ErrorCode[wanted]
        other = ending(4, is_commit=is_commit, version=1)
        assert end_transaction(transaction(state), other, 20, new_id) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_whole_transaction(version: int) -> None:
    one = transaction(S.EMPTY)
    me = ProducerIdAndEpoch(7, 5)
    value = done(one, add_partitions(one, me, {PARTITION}, 20, version))
    assert (value.state, value.start_ms) == (S.ONGOING, 20)
    assert add_partitions(one, me, {PARTITION}, 21, version) is ErrorCode.NONE
    value = done(one, add_partitions(one, me, {OTHER}, 22, version))
    assert (value.partitions, value.start_ms) == ({PARTITION, OTHER}, 20)
    value = done(one, end_transaction(one, ending(5, version=version), 30, new_id))
    assert (value.state, value.producer_epoch) == (S.PREPARE_COMMIT, 6 if version == 2 else 5)
    assert add_partitions(one, ProducerIdAndEpoch(7, value.producer_epoch), {PARTITION}, 31, 2) is (
        ErrorCode.CONCURRENT_TRANSACTIONS
    )
    value = done(one, complete_transaction(one, me, is_commit=True, now_ms=40))
    assert (value.state, value.partitions) == (S.COMPLETE_COMMIT, frozenset())
    assert one.is_idle_since(40)


def test_one_change_at_a_time() -> None:
    one = transaction(S.ONGOING)
    me = ProducerIdAndEpoch(7, 5)
    decision = end_transaction(one, ending(5), 20, new_id)
    assert isinstance(decision, TransactionValue)
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert end_transaction(one, ending(5), 20, new_id) is busy
    assert add_partitions(one, me, {OTHER}, 20, 2) is busy
    assert init_producer_id(one, 1000, None, 20, new_id) is busy
    assert complete_transaction(one, me, is_commit=True, now_ms=20) is busy
    assert fence(one) is None
    one.abandon()
    assert one.value.state is S.ONGOING
    done(one, end_transaction(one, ending(5), 20, new_id))


@pytest.mark.parametrize("is_commit", [False, True])
def test_the_next_transaction_may_end_before_the_markers_of_this_one(is_commit: bool) -> None:
    """A producer that dropped all it had goes on with the new epoch: it waits, unfenced."""
    one = transaction(S.ONGOING)
    value = done(one, end_transaction(one, ending(5), 20, new_id))
    completed = complete_transaction(one, ProducerIdAndEpoch(7, 5), is_commit=True, now_ms=21)
    assert (value.state, one.pending) == (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    for asked in (ending(6, is_commit=is_commit), ending(4), ending(6, producer_id=8)):
        assert end_transaction(one, asked, 22, new_id) is ErrorCode.CONCURRENT_TRANSACTIONS
    done(one, completed)
    decision = end_transaction(one, ending(6, is_commit=is_commit), 23, new_id)
    assert isinstance(decision, TransactionValue) is not is_commit
    assert one.value.state is S.COMPLETE_COMMIT


def test_strangers() -> None:
    for mine, wanted in (
        (ProducerIdAndEpoch(8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdAndEpoch(7, 4), ErrorCode.PRODUCER_FENCED),
        (ProducerIdAndEpoch(7, 6), ErrorCode.PRODUCER_FENCED),
    ):
        one = transaction(S.ONGOING)
        assert add_partitions(one, mine, {OTHER}, 20, 2) is wanted
        assert verify_partitions(one, mine, {PARTITION}) == {PARTITION: wanted}
        asked = Ending(mine, True, True, 2)
        assert end_transaction(one, asked, 20, new_id) is wanted


def test_verification_adds_nothing() -> None:
    one = transaction(S.ONGOING)
    assert verify_partitions(one, ProducerIdAndEpoch(7, 5), {PARTITION, OTHER}) == {
        PARTITION: ErrorCode.NONE,
        OTHER: ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert one.value.partitions == {PARTITION}
    ending_one = transaction(S.PREPARE_COMMIT)
    assert verify_partitions(ending_one, ProducerIdAndEpoch(7, 5), {PARTITION}) == {
        PARTITION: ErrorCode.CONCURRENT_TRANSACTIONS
    }


def test_init_bumps_the_epoch_and_knows_repetitions() -> None:
    """KIP-360: a producer that names its id and epoch goes on; who names older ones is fenced."""
    one = transaction(S.COMPLETE_COMMIT)
    value = done(one, init_producer_id(one, 2000, ProducerIdAndEpoch(7, 5), 20, new_id))
    assert (value.producer_epoch, value.last_producer_epoch, value.timeout_ms) == (6, 5, 2000)
    value = done(one, init_producer_id(one, 2000, ProducerIdAndEpoch(7, 5), 20, new_id))
    assert (value.producer_epoch, value.last_producer_epoch) == (6, 5)
    assert init_producer_id(one, 2000, ProducerIdAndEpoch(7, 4), 20, new_id) is (
        ErrorCode.PRODUCER_FENCED
    )
    assert init_producer_id(one, 2000, ProducerIdAndEpoch(8, 6), 20, new_id) is (
        ErrorCode.PRODUCER_FENCED
    )
    value = done(one, init_producer_id(one, 2000, None, 20, new_id))
    assert (value.producer_epoch, value.last_producer_epoch) == (7, -1)
    assert init_producer_id(one, 2000, ProducerIdAndEpoch(7, 6), 20, new_id) is (
        ErrorCode.PRODUCER_FENCED
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_new_producer_fences_the_old_and_aborts_what_it_left(version: int) -> None:
    one = transaction(S.ONGOING)
    fenced = init_producer_id(one, 1000, None, 20, new_id)
    assert isinstance(fenced, TransactionValue)
    assert (fenced.state, fenced.producer_epoch) == (S.PREPARE_EPOCH_FENCE, 6)
    asked = ending(6, is_commit=False, version=version, client=False)
    value = done(one, end_transaction(one, asked, 21, new_id))
    assert (value.state, value.producer_epoch) == (S.PREPARE_ABORT, 6)  # once, not twice
    done(one, complete_transaction(one, asked.producer, is_commit=False, now_ms=22))
    value = done(one, init_producer_id(one, 1000, None, 23, new_id))
    assert value.producer_epoch == 7
    assert add_partitions(one, ProducerIdAndEpoch(7, 5), {PARTITION}, 24, version) is (
        ErrorCode.PRODUCER_FENCED
    )


def test_a_fence_whose_write_failed_is_tried_again() -> None:
    """First protocol: shut out in memory at once, so the second try need not raise the epoch."""
    one = transaction(S.ONGOING)
    assert fence(one) is not None
    asked = ending(6, is_commit=False, version=1, client=False)
    assert isinstance(end_transaction(one, asked, 21, new_id), TransactionValue)
    one.abandon()
    one.has_failed_fence = True
    assert one.value.producer_epoch == 6
    again = fence(one)
    assert again is not None
    assert again.producer_epoch == 6
    done(one, end_transaction(one, asked, 21, new_id))


def test_epochs_that_run_out_rotate_the_producer_id() -> None:
    last = EPOCH_MAX - 1
    one = transaction(S.COMPLETE_COMMIT, epoch=last)
    value = done(one, init_producer_id(one, 1000, ProducerIdAndEpoch(7, last), 20, new_id))
    assert (value.producer_id, value.producer_epoch) == (NEW_ID, 0)
    assert (value.previous_producer_id, value.last_producer_epoch) == (7, last)
    # The answer was lost: the producer asks again with what it knows.
    value = done(one, init_producer_id(one, 1000, ProducerIdAndEpoch(7, last), 21, new_id))
    assert (value.producer_id, value.producer_epoch) == (NEW_ID, 0)

    ongoing = transaction(S.ONGOING, epoch=last)
    value = done(ongoing, end_transaction(ongoing, ending(last), 20, new_id))
    assert (value.producer_id, value.producer_epoch) == (7, EPOCH_MAX)
    assert value.next_producer_id == NEW_ID
    me = ProducerIdAndEpoch(7, last)
    value = done(ongoing, complete_transaction(ongoing, me, is_commit=True, now_ms=21))
    assert (value.producer_id, value.producer_epoch) == (NEW_ID, 0)
    assert end_transaction(ongoing, ending(last), 22, new_id) is ErrorCode.NONE


def test_a_time_out_at_the_last_epoch_ends_it_all_the_same() -> None:
    """KAFKA-20090: the fence uses up the epochs, so the abort brings a new producer id."""
    one = transaction(S.ONGOING, epoch=EPOCH_MAX - 1)
    fenced = fence(one)
    assert fenced is not None
    assert fenced.producer_epoch == EPOCH_MAX
    asked = ending(EPOCH_MAX, is_commit=False, client=False)
    value = done(one, end_transaction(one, asked, 20, new_id))
    assert (value.producer_epoch, value.next_producer_id) == (EPOCH_MAX, NEW_ID)
    value = done(one, complete_transaction(one, asked.producer, is_commit=False, now_ms=21))
    assert (value.producer_id, value.producer_epoch) == (NEW_ID, 0)


def test_state_names_and_the_table() -> None:
    assert [state.wire_name for state in S] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort",
        "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
    ]  # fmt: skip
    assert PREVIOUS.keys() == set(S)


def test_tombstones_and_corrupt_records() -> None:
    key, value = tombstone("tx")
    assert decode(key, value) == ("tx", None)
    assert decode(b"\0\x09any", b"") is None
    good_key, good = record("tx", transaction(S.ONGOING).value)
    for bad in (b"", b"\0", b"\0\x02" + good[2:], good[:-3], b"\0\x01"):
        with pytest.raises(ProtocolError):
            decode(good_key, bad)
    status = good.index(b"\x01\x02\x02t")  # the state byte before the topics
    with pytest.raises(ProtocolError):
        decode(good_key, good[:status] + b"\x7f" + good[status + 1 :])
    with pytest.raises(ProtocolError):
        decode(None, good)


@settings(max_examples=100)
@given(
    st.builds(
        TransactionValue,
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=st.integers(0, EPOCH_MAX),
        timeout_ms=st.integers(0, 2**31 - 1),
        state=st.sampled_from([state for state in S if state is not S.EMPTY]),
        partitions=st.frozensets(
            st.builds(TopicPartition, st.sampled_from(["a", "b-c"]), st.integers(0, 9))
        ),
        last_update_ms=st.integers(0, 2**62),
        start_ms=st.integers(-1, 2**62),
        previous_producer_id=st.integers(-1, 2**63 - 1),
        next_producer_id=st.integers(-1, 2**63 - 1),
        client_version=st.integers(0, 2),
    )
)
def test_records_come_back(value: TransactionValue) -> None:
    assert decode(*record("tx", value)) == ("tx", value)
