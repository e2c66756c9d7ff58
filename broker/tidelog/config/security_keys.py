"""Settings of security: listeners' protocols, TLS, SASL and delegation tokens.

Those of TLS and SASL may be given for one listener, as `listener.name.<listener>.<key>`, and those
of SASL for one mechanism of it, as `listener.name.<listener>.<mechanism>.<key>`; `listeners.py`
finds the value that applies.
"""

from __future__ import annotations

from typing import Any

from tidelog.config.vocabulary import (
    LOW,
    PER_BROKER,
    READ_ONLY,
    BrokerKey,
    boolean,
    class_name,
    integer,
    long,
    string,
    strings,
)

__all__ = ["MECHANISMS", "PROTOCOLS", "STORE_KEYS", "SaslKeys", "TlsKeys", "TokenKeys"]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
BEARER = "OAUTHBEARER"
_BEARER = "org.apache.kafka.common.security.oauthbearer"
_VALIDATOR = "OAuthBearerValidatorCallbackHandler"
SIGNED_VALIDATORS = (f"{_BEARER}.{_VALIDATOR}", f"{_BEARER}.secured.{_VALIDATOR}")
UNSECURED_VALIDATOR = f"{_BEARER}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
VALIDATORS = (*SIGNED_VALIDATORS, UNSECURED_VALIDATOR)
"""What checks tokens of OAUTHBEARER; the second is the older name of the first."""
_LOGIN = "OAuthBearerLoginCallbackHandler"
SIGNED_LOGINS = (f"{_BEARER}.{_LOGIN}", f"{_BEARER}.secured.{_LOGIN}")
UNSECURED_LOGIN = f"{_BEARER}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
LOGINS = (*SIGNED_LOGINS, UNSECURED_LOGIN)
"""Where tokens that are shown to others come from; the second is the older name of the first."""
URLS = ("sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.token.endpoint.url")
"""Settings with a URL that the broker reads."""
STORE_KEYS = frozenset(
    {
        "ssl.key.password",
        *(f"ssl.keystore.{name}" for name in ("type", "location", "password", "key")),
        "ssl.keystore.certificate.chain",
        *(f"ssl.truststore.{name}" for name in ("type", "location", "password", "certificates")),
    }
)
"""Settings of stores: a running broker takes them for one listener (SslConfigs)."""
_STORE_TYPES = ("JKS", "PKCS12", "PEM")


def secret(documentation: str, *, mode: str = PER_BROKER, **options: Any) -> Any:
    """A secret: never shown."""
    return BrokerKey("PASSWORD", None, documentation, sensitive=True, mode=mode, **options)


class TlsKeys:
    """Listeners' protocols, certificates and keys."""

    security_inter_broker_protocol: str = string(
        "PLAINTEXT",
        "Protocol of the listener for traffic between brokers, if inter.broker.listener.name does "
        "not name it.",
        choices=PROTOCOLS,
    )
    ssl_keystore_type: str = string(
        "JKS",
        "Format of the key store: PEM, PKCS12 or JKS. As in Java, a file of the other of the last "
        "two formats is read too.",
        choices=_STORE_TYPES,
        mode=PER_BROKER,
    )
    ssl_keystore_location: str | None = string(
        None, "File with the broker's key and certificates.", mode=PER_BROKER
    )
    ssl_keystore_password: str | None = secret("Password of the key store; not for PEM.")
    ssl_key_password: str | None = secret(
        "Password of the private key; that of the key store if unset."
    )
    ssl_keystore_key: str | None = secret(
        "The broker's key itself, as PEM, in the place of a file."
    )
    ssl_keystore_certificate_chain: str | None = secret(
        "The broker's certificate and those that signed it, as PEM, in the place of a file."
    )
    ssl_truststore_type: str = string(
        "JKS",
        "Format of the trust store: PEM, PKCS12 or JKS.",
        choices=_STORE_TYPES,
        mode=PER_BROKER,
    )
    ssl_truststore_location: str | None = string(
        None, "File with the certificates that this broker trusts.", mode=PER_BROKER
    )
    ssl_truststore_password: str | None = secret("Password of the trust store; not for PEM.")
    ssl_truststore_certificates: str | None = secret(
        "Trusted certificates themselves, as PEM, in the place of a file."
    )
    ssl_client_auth: str = string(
        "none",
        "Whether clients need certificates. A listener of SASL_SSL follows it only if it is set "
        "for this listener.",
        choices=("required", "requested", "none"),
        mode=PER_BROKER,
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT",
        "Rules that make a user's name of the distinguished name of a client's certificate: "
        "RULE:pattern/replacement/[LU], ... The first that matches counts.",
        importance=LOW,
    )
    ssl_enabled_protocols: list[str] = strings(
        ("TLSv1.2", "TLSv1.3"), "Versions of TLS that are spoken.", mode=PER_BROKER
    )
    ssl_cipher_suites: list[str] = strings(
        (), "Cipher suites, by Java's names; all usual ones if empty.", mode=PER_BROKER
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "How this broker checks the names of brokers that it connects to; empty for not at all.",
        importance=LOW,
        mode=PER_BROKER,
    )
    ssl_allow_dn_changes: bool = boolean(
        False,
        "Whether a listener's new certificate may have another subject.",
        importance=LOW,
    )
    ssl_allow_san_changes: bool = boolean(
        False,
        "Whether a listener's new certificate may lack alternative names of the old one.",
        importance=LOW,
    )
    ssl_protocol: str = string(
        "TLSv1.3", "Newest version of TLS of a Java process.", mode=PER_BROKER, inert=True
    )


class SaslKeys:
    """Authentication of clients, and of this broker to others."""

    sasl_enabled_mechanisms: list[str] = strings(
        ("GSSAPI",),
        "SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. "
        "GSSAPI, Kafka's default, is not there.",
        mode=PER_BROKER,
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "GSSAPI",
        "SASL mechanism with which this broker authenticates to other brokers, one of "
        "sasl.enabled.mechanisms.",
        mode=PER_BROKER,
    )
    sasl_mechanism_controller_protocol: str = string(
        "GSSAPI", "SASL mechanism with which this node authenticates to controllers."
    )
    sasl_jaas_config: str | None = secret(
        "Login module and options in JAAS form: users of PLAIN, rules of tokens; also username and "
        "password of this broker where it authenticates to others. "
        "Given for a mechanism of a listener, as "
        "listener.name.sasl_ssl.plain.sasl.jaas.config."
    )
    sasl_server_max_receive_size: int = integer(
        524288, "Largest frame in bytes until a client is authenticated."
    )
    connections_max_reauth_ms: int = long(
        0, "Close a connection that is used this long after its authentication; 0: never (KIP-368)."
    )
    sasl_server_callback_handler_class: str | None = class_name(
        None,
        f"What checks tokens of OAUTHBEARER, for its listener: {_BEARER}.{_VALIDATOR} checks "
        "signed ones, and needs the extra [security]. Unset: unsecured ones, which are for tests.",
    )
    sasl_login_callback_handler_class: str | None = class_name(
        None,
        "Where this broker's tokens of OAUTHBEARER come from, for the listener of others: "
        f"{_BEARER}.{_LOGIN} takes them from sasl.oauthbearer.token.endpoint.url. Unset: it makes "
        "unsecured ones, which are for tests.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = string(
        None,
        "URL of the file with the token that this broker authenticates with, read again for each "
        "connection.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        None,
        "Where the keys of signed tokens are, a JSON Web Key Set: a URL of a file, http or https.",
    )
    sasl_oauthbearer_expected_audience: list[str] = strings(
        (),
        "Audiences of which a signed token must have one; without any, it must have none.",
        importance=LOW,
    )
    sasl_oauthbearer_expected_issuer: str | None = string(
        None, "Issuer that a signed token must have.", importance=LOW
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, "Difference between the clocks of issuer and broker.", low=0, importance=LOW
    )
    sasl_oauthbearer_scope_claim_name: str = string(
        "scope", "Claim of a signed token with its scopes.", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name: str = string(
        "sub", "Claim of a signed token with the user's name.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3600000, "How often the keys of signed tokens are read again.", low=1, importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100, "Pause after the first failure to read them.", low=1, importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10000, "Longest pause after failures to read them.", low=1, importance=LOW
    )
    connection_failed_authentication_delay_ms: int = integer(
        100, "Delay of the answer to a failed authentication.", low=0, importance=LOW
    )


class TokenKeys:
    """Delegation tokens (KIP-48)."""

    delegation_token_secret_key: str | None = secret(
        "Secret that delegation tokens are made with, the same on all nodes; without it there are "
        "none.",
        mode=READ_ONLY,
    )
    delegation_token_max_lifetime_ms: int = long(
        604800000, "How long a delegation token can be renewed at most.", low=1
    )
    delegation_token_expiry_time_ms: int = long(
        86400000, "How long a delegation token is valid until it is renewed.", low=1
    )
    delegation_token_expiry_check_interval_ms: int = long(
        3600000, "How often the controller removes expired tokens.", low=1, importance=LOW
    )
