"""The properties of the S3 store, and the boto3 client that they make."""

# ruff: noqa: PLC0415 - boto3 takes a third of a second to import, and is an extra

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog_storage.remote.s3_reads import SignedReads

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["S3Settings"]

_PART_BYTES_MIN = 5 << 20  # S3 takes no smaller part, but the last
_PART_BYTES = 8 << 20
_TIMEOUT_MS = 10_000
_CONNECTIONS_MAX = 32
_ATTEMPTS_MAX = 4
_BUCKET = re.compile(r"[\w.-]{1,255}|arn:\S+", re.ASCII)  # boto3 lets no other pass


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The settings under `rsm.config.`; only `bucket` is required.

    `endpoint.url`, `region`, `path.style.access` (true beside an endpoint) and `profile` select the
    place and the account; credentials come from the usual chain of the AWS tools.
    """

    bucket: str
    prefix: str = ""  # of all keys; ends with / unless it is empty
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool = False
    part_bytes: int = _PART_BYTES  # `multipart.part.bytes`; two of them are in memory at once
    connect_timeout_ms: int = _TIMEOUT_MS
    read_timeout_ms: int = _TIMEOUT_MS
    attempts_max: int = _ATTEMPTS_MAX  # `retries.max`: the first one counted in

    @classmethod
    def parse(cls, config: Mapping[str, str]) -> S3Settings:
        """ValueError names the property that is wrong."""
        bucket = config.get("bucket", "")
        if not bucket:
            raise ValueError("bucket: the S3 bucket of the remote tier is not given")
        if not _BUCKET.fullmatch(bucket):
            raise ValueError(f"bucket: {bucket!r} is not a bucket name")
        endpoint = config.get("endpoint.url") or None
        if endpoint and "@" in endpoint:
            raise ValueError(
                "endpoint.url: users and passwords are not given here, but as the AWS tools take"
                " them"
            )
        if endpoint and not _is_address(endpoint):
            raise ValueError(f"endpoint.url: {endpoint!r} is not of the form http://HOST:PORT")
        prefix = config.get("prefix", "").strip("/")
        return cls(
            bucket=bucket,
            prefix=prefix + "/" if prefix else "",
            endpoint_url=endpoint,
            region=config.get("region") or None,
            profile=config.get("profile") or None,
            path_style=_flag(config, "path.style.access", default=endpoint is not None),
            part_bytes=_number(config, "multipart.part.bytes", _PART_BYTES, _PART_BYTES_MIN),
            connect_timeout_ms=_number(config, "connect.timeout.ms", _TIMEOUT_MS, 1),
            read_timeout_ms=_number(config, "read.timeout.ms", _TIMEOUT_MS, 1),
            attempts_max=_number(config, "retries.max", _ATTEMPTS_MAX, 1),
        )

    @property
    def signs_urls(self) -> bool:
        """Whether URLs are signed in the usual way: not of access points, nor of S3 Express."""
        return not self.bucket.startswith("arn:") and not self.bucket.endswith("--x-s3")

    def connect(self) -> tuple[Any, SignedReads | None]:
        """A client that threads may share, and reads by signed URLs if the bucket allows them.
        ValueError without boto3 or for a wrong property."""
        try:
            import boto3
            import botocore.session
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ProfileNotFound
        except ImportError:
            raise ValueError("the S3 tier needs boto3: pip install 'tidelog[s3]'") from None
        _silence_libraries()
        options = Config(
            connect_timeout=self.connect_timeout_ms / 1000,
            read_timeout=self.read_timeout_ms / 1000,
            retries={"mode": "standard", "total_max_attempts": self.attempts_max},
            max_pool_connections=_CONNECTIONS_MAX,
            # Segments have sums of their own, of each batch; to indexes ours asks for theirs.
            response_checksum_validation="when_required",
            signature_version="s3v4" if self.signs_urls else None,  # of URLs too
            # Bodies have a CRC that is signed: a SHA-256 as well, as boto3 makes it where there is
            # no TLS, would cost more than all else of an upload, here and at the server.
            s3={
                "addressing_style": "path" if self.path_style else "auto",
                "payload_signing_enabled": False,
            },
        )
        try:
            core = botocore.session.get_session()
            session = boto3.session.Session(
                profile_name=self.profile, region_name=self.region, botocore_session=core
            )
            region = session.region_name or ("us-east-1" if self.endpoint_url else None)
            # boto3 looks for the certificates in this order too.
            verify = core.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
            client = session.client(
                "s3", endpoint_url=self.endpoint_url, region_name=region, config=options
            )
            signed = SignedReads(client, self.bucket, verify or True) if self.signs_urls else None
            return client, signed
        except ProfileNotFound as error:
            raise ValueError(f"profile: {error}") from error
        except (BotoCoreError, ValueError) as error:
            raise ValueError(f"the S3 tier: {error}") from error


def _silence_libraries() -> None:
    """Leave out debug lines of the libraries, which have access keys, session tokens and signed
    URLs. A level that the user has set stays."""
    for name in ("boto3", "botocore", "s3transfer", "urllib3"):
        library = logging.getLogger(name)
        if library.level == logging.NOTSET:
            library.setLevel(logging.INFO)


def _is_address(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of an address in brackets
        return False


def _flag(config: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = config.get(key, "").lower()
    if text not in ("", "true", "false"):
        raise ValueError(f"{key}: {text!r} is neither true nor false")
    return text == "true" if text else default


def _number(config: Mapping[str, str], key: str, default: int, smallest: int) -> int:
    text = config.get(key)
    try:
        value = default if text is None else int(text)
    except ValueError:
        raise ValueError(f"{key}: {text!r} is not a number") from None
    if value < smallest:
        raise ValueError(f"{key}: {value} is less than {smallest}")
    return value
