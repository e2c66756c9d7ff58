"""The transaction index of a segment, compared with its records by another thread."""

from __future__ import annotations

import pytest

from storage.test_index_checks import aborted, build, damages, file_of, put, reopened
from support.compaction import end_transaction
from support.logs import append
from tidelog_storage import log as log_module
from tidelog_storage import transaction_proof
from tidelog_storage.indexes import TRANSACTION_ENTRY
from tidelog_storage.transaction_proof import TransactionProof, unproven_segment


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch):
    monkeypatch.setattr(transaction_proof, "SMALL_BYTES", 0)


def prove_all(log):
    while (segment := unproven_segment(log, 0, log.log_end_offset)) is not None:
        proof = TransactionProof(log, segment)
        proof.settle(proof.run())


def test_a_damaged_index_is_built_anew_and_never_again_on_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, log = build()
    expected = aborted(log)
    path = file_of(files, ".txnindex")
    for data in damages(files.read_bytes(path), TRANSACTION_ENTRY.size):
        put(files, path, data)
        again = reopened(files, log)
        prove_all(again)
        with monkeypatch.context() as patched:
            patched.setattr(log_module, "TransactionProof", None)
            assert aborted(again) == expected


def test_what_is_aborted_while_it_runs_is_kept() -> None:
    files, log = build()
    again = reopened(files, log)
    append(again, 2, transactional=True, producer_id=2, producer_epoch=0, base_sequence=0)
    again.roll(0) if not again.segments.active.size else None
    active = again.segments.active
    proof = TransactionProof(again, active)
    found = proof.run()
    end_transaction(again, 2, commit=False)
    proof.settle(found)
    assert active.transactions_are_proven
    again.set_high_watermark(again.log_end_offset)
    entries = [entry.producer_id for entry in active.transaction_index.entries]
    assert entries[-1] == 2
    assert [entry.producer_id for entry in found] == entries[:-1]


def test_a_log_that_was_cut_meanwhile_is_left_alone() -> None:
    files, log = build()
    again = reopened(files, log)
    segment = again.segments.first
    proof = TransactionProof(again, segment)
    found = proof.run()
    again.truncate_to(segment.base_offset + 1)
    proof.settle(found)
    assert not segment.transactions_are_proven
