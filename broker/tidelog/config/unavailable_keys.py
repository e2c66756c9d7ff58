"""Settings of Apache Kafka for what tidelog does not have: Java classes, tokens of OAUTHBEARER that
brokers fetch over HTTP, two-phase commits.

They are described with Kafka's defaults, which Kafka's own files and tools may repeat. Another
value is refused with the reason: it would have no effect, which some users would notice late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.config import vocabulary
from tidelog.config.vocabulary import CLUSTER_WIDE, LOW, PER_BROKER, READ_ONLY, BrokerKey
from tidelog_storage.config_key import ConfigError, collect_keys, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UnavailableKeys", "is_unavailable"]

_CLASSES = "tidelog loads no Java classes"
_FETCHED = "tidelog fetches no tokens over HTTP"
_PROVIDERS = "tidelog has Python's TLS alone"


def _only(default: Any, reason: str, *, is_secret: bool = False) -> Callable[[str, Any], None]:
    """Return the check of a key that has its default here, or nothing."""

    def check(name: str, value: Any) -> None:
        if value not in (default, "", []):
            shown = "[hidden]" if is_secret else value
            raise refuse(name, shown, f"{reason}; only the default is accepted")

    return check


def _text(
    default: str | None, documentation: str, reason: str, mode: str, kind: str = "STRING"
) -> Any:
    is_secret = kind == "PASSWORD"
    check = _only(default, reason, is_secret=is_secret)
    return BrokerKey(
        kind, default, documentation, check=check, mode=mode, inert=True, sensitive=is_secret
    )


def _number(declare: Any, default: float | None, documentation: str, reason: str) -> Any:
    """A number, or true or false, of the start alone."""
    return declare(default, documentation, check=_only(default, reason), inert=True)


def _java(default: str | None, documentation: str, mode: str = READ_ONLY) -> Any:
    return _text(default, documentation, _CLASSES, mode, "CLASS")


def _classes(default: tuple[str, ...], documentation: str, mode: str = READ_ONLY) -> Any:
    check = _only(list(default), _CLASSES)
    return vocabulary.strings(
        default, documentation, check=check, mode=mode, inert=True, importance=LOW
    )


def _login(declare: Any, default: object, documentation: str) -> Any:
    check = _only(default, _FETCHED)
    return declare(default, documentation, check=check, mode=PER_BROKER, inert=True)


def _fetched(default: str | None, documentation: str, kind: str = "STRING") -> Any:
    return _text(default, documentation, _FETCHED, READ_ONLY, kind)


class UnavailableKeys:
    """See the module's docstring."""

    alter_config_policy_class_name: str | None = _java(None, "A policy of AlterConfigs.")
    client_quota_callback_class: str | None = _java(None, "What computes quotas of clients.")
    config_providers: list[str] = _classes(
        (), "What finds values of settings elsewhere.", CLUSTER_WIDE
    )
    create_topic_policy_class_name: str | None = _java(None, "A policy of CreateTopics.")
    kafka_metrics_reporters: list[str] = _classes((), "Reporters of older metrics.")
    metric_reporters: list[str] = _classes(
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Reporters of metrics; tidelog's are for Prometheus.",
        CLUSTER_WIDE,
    )
    principal_builder_class: str = _java(
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "What names the principal of a connection.",
        PER_BROKER,
    )
    sasl_client_callback_handler_class: str | None = _java(
        None, "What knows this broker's credentials."
    )
    sasl_login_class: str | None = _java(None, "What logs brokers in.")
    sasl_login_connect_timeout_ms: int | None = _number(
        vocabulary.integer, None, "Time to connect to the issuer of tokens.", _FETCHED
    )
    sasl_login_read_timeout_ms: int | None = _number(
        vocabulary.integer, None, "Time to read its answer.", _FETCHED
    )
    sasl_login_refresh_buffer_seconds: int = _login(
        vocabulary.short, 300, "Time before a token's end in which it is not renewed."
    )
    sasl_login_refresh_min_period_seconds: int = _login(
        vocabulary.short, 60, "Pause between renewals of a token."
    )
    sasl_login_refresh_window_factor: float = _login(
        vocabulary.double, 0.8, "Part of a token's time after which it is renewed."
    )
    sasl_login_refresh_window_jitter: float = _login(
        vocabulary.double, 0.05, "Chance in the time of a renewal."
    )
    sasl_login_retry_backoff_max_ms: int = _number(
        vocabulary.long, 10000, "Longest pause after a failed login.", _FETCHED
    )
    sasl_login_retry_backoff_ms: int = _number(
        vocabulary.long, 100, "First pause after a failed login.", _FETCHED
    )
    sasl_oauthbearer_assertion_algorithm: str = _fetched("RS256", "Algorithm of an assertion.")
    sasl_oauthbearer_assertion_claim_aud: str | None = _fetched(None, "Its audience.")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = _number(
        vocabulary.integer, 300, "Its time.", _FETCHED
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = _fetched(None, "Its issuer.")
    sasl_oauthbearer_assertion_claim_jti_include: bool = _number(
        vocabulary.boolean, False, "Whether it has an id.", _FETCHED
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = _number(
        vocabulary.integer, 60, "How long before now it begins.", _FETCHED
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = _fetched(None, "Its subject.")
    sasl_oauthbearer_assertion_file: str | None = _fetched(None, "A file with it.")
    sasl_oauthbearer_assertion_private_key_file: str | None = _fetched(None, "Its key.")
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = _fetched(
        None, "The password of its key.", "PASSWORD"
    )
    sasl_oauthbearer_assertion_template_file: str | None = _fetched(None, "Its other claims.")
    sasl_oauthbearer_client_credentials_client_id: str | None = _fetched(
        None, "This broker's name at the issuer of tokens."
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = _fetched(
        None, "Its secret there.", "PASSWORD"
    )
    sasl_oauthbearer_jwt_retriever_class: str = _java(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", "What fetches tokens."
    )
    sasl_oauthbearer_jwt_validator_class: str = _java(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", "What checks tokens."
    )
    sasl_oauthbearer_scope: str | None = _fetched(None, "The scope of a token.")
    security_providers: str | None = _text(None, "Providers of Java.", _CLASSES, READ_ONLY)
    ssl_engine_factory_class: str | None = _java(None, "What makes engines of TLS.", PER_BROKER)
    ssl_keymanager_algorithm: str = _text("SunX509", "Of Java's TLS.", _PROVIDERS, PER_BROKER)
    ssl_provider: str | None = _text(None, "Of Java's TLS.", _PROVIDERS, PER_BROKER)
    ssl_secure_random_implementation: str | None = _text(
        None, "Of Java's TLS.", _PROVIDERS, PER_BROKER
    )
    ssl_trustmanager_algorithm: str = _text("PKIX", "Of Java's TLS.", _PROVIDERS, PER_BROKER)
    transaction_two_phase_commit_enable: bool = _number(
        vocabulary.boolean,
        False,
        "Whether clients may prepare transactions (KIP-939).",
        "tidelog has no two-phase commit",
    )


def is_unavailable(name: str, text: str) -> bool:
    """Return whether this is a setting of what tidelog does not have, with another value."""
    key = collect_keys(UnavailableKeys).get(name)
    if key is None:
        return False
    try:
        key.parse(text)
    except ConfigError:
        return True
    return False
