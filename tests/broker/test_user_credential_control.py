"""AlterUserScramCredentials as the controller decides it; codes and texts are those of a Kafka
4.3.1."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tidelog.cluster.controller.user_credentials import alter_user_credentials
from tidelog.cluster.metadata.image import ClusterImage
from tidelog.security.scram import SCRAM, credential
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.messages.users import AlterUserScramCredentialsRequest as Request

TWICE = "A user credential cannot be altered twice in the same request"
SALTED = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
KNOWN = credential(SCRAM["SCRAM-SHA-256"], "known", b"salt", SALTED, 4096)
IMAGE = ClusterImage(
    cluster_id="c",
    features={"metadata.version": 30},
    scram_credentials={("known", 1): KNOWN},
)


def set_(name: str, mechanism: int = 1, iterations: int = 4096) -> Any:
    return Request.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=SALTED,
    )


def without_password() -> Any:
    change = set_("a")
    change.salted_password = b""
    return change


def remove(name: str, mechanism: int = 1) -> Any:
    return Request.ScramCredentialDeletion(name=name, mechanism=mechanism)


def decided(*changes: Any, image: ClusterImage = IMAGE) -> tuple[list[Any], dict[str, Any]]:
    """Records, and code and text by user."""
    request = Request(
        deletions=[each for each in changes if not hasattr(each, "iterations")],
        upsertions=[each for each in changes if hasattr(each, "iterations")],
    )
    decision = alter_user_credentials(image, request)
    assert len({each.user for each in decision.results}) == len(decision.results)
    return list(decision.records), {
        each.user: (each.error_code, each.error_message) for each in decision.results
    }


def test_credentials_are_set_and_removed() -> None:
    records, results = decided(set_("known2"), set_("other", 2, 16384), remove("known"))
    assert set(results.values()) == {(0, None)}
    removal, first, second = records
    assert removal == tables.RemoveUserScramCredentialRecord(name="known", mechanism=1)
    assert (first.stored_key, first.server_key) == (KNOWN.stored_key, KNOWN.server_key)
    assert (second.name, second.mechanism, second.iterations) == ("other", 2, 16384)
    assert len(second.stored_key) == 64


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (set_(""), 93, "Username must not be empty"),
        (set_("a", 0), 33, "Unknown SCRAM mechanism"),
        (set_("a", 3), 33, "Unknown SCRAM mechanism"),
        (set_("a", 1, 4095), 93, "Too few iterations"),
        (set_("a", 2, 16385), 93, "Too many iterations"),
        (without_password(), -1, None),
        (remove("known", 2), 91, "Attempt to delete a user credential that does not exist"),
        (remove(""), 93, "Username must not be empty"),
    ],
)
def test_refusals_leave_the_others_alone(change: Any, code: int, text: str | None) -> None:
    records, results = decided(change, set_("fine"))
    assert results == {"fine": (0, None), change.name: (code, text)}
    assert [each.name for each in records] == ["fine"]


@pytest.mark.parametrize(
    "changes",
    [
        (set_("a", 1), set_("a", 2)),
        (set_("a"), set_("a"), set_("a")),
        (remove("known"), remove("known")),
        (remove("known"), set_("known", 2)),
    ],
)
def test_a_user_is_changed_once_in_a_request(changes: tuple[Any, ...]) -> None:
    assert decided(*changes) == ([], {changes[0].name: (92, TWICE)})


def test_an_older_metadata_version_has_no_users() -> None:
    image = IMAGE._replace(features={"metadata.version": 10})
    text = "The current metadata.version does not support SCRAM"
    assert decided(set_("a"), image=image) == ([], {"a": (35, text)})


def test_no_representation_shows_secrets() -> None:
    shown = repr(Request(upsertions=[set_("a")])) + repr(KNOWN)
    assert "salted_password=[hidden]" in shown
    assert repr(SALTED) not in shown
    assert repr(KNOWN.server_key) not in shown
    assert "iterations=4096" in shown
