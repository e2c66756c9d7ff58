"""The configuration of each client library, in the form that it takes."""

# ruff: noqa: PLC0415 - ssl takes time to import

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.config.security_keys import SIGNED_LOGINS
from tidelog.control.credentials import tokens
from tidelog.control.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.control.credentials.wishes import Client

__all__ = ["CLIENTS", "configuration"]

_MODULE = "org.apache.kafka.common.security"


def configuration(name: str, client: Client) -> Any:
    """Return the configuration of a client library; ClusterError if it is unknown."""
    try:
        make = CLIENTS[name]
    except KeyError:
        raise ClusterError(f"client {name!r} is none of {', '.join(CLIENTS)}") from None
    return make(client)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _librdkafka(client: Client) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": client.bootstrap_servers,
        "security.protocol": client.protocol,
    }
    if client.trusted is not None:
        config["ssl.ca.location"] = client.trusted
    if client.certificate is not None:
        config["ssl.certificate.location"] = client.certificate("crt")
        config["ssl.key.location"] = client.certificate("key")
    if client.mechanism is not None:
        config["sasl.mechanism"] = client.mechanism
        if not client.has_token:
            config |= {"sasl.username": client.user, "sasl.password": client.password}
    return config


def _confluent_kafka(client: Client) -> dict[str, Any]:
    config = _librdkafka(client)
    if client.has_token:
        config["oauth_cb"] = tokens.librdkafka_callback(client.token)
    return config


def _kcat(client: Client) -> str:
    """Return a file for `kcat -F`."""
    config = _librdkafka(client)
    if client.has_token:
        if not client.is_own_token or client.is_expired:
            raise ClusterError("kcat makes its tokens itself: it has no others")
        config["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        config["sasl.oauthbearer.config"] = f"principal={client.user}"
    return "".join(f"{key}={value}\n" for key, value in config.items())


def _aiokafka(client: Client) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": client.bootstrap_servers,
        "security_protocol": client.protocol,
    }
    if client.trusted is not None:
        import ssl

        context = ssl.create_default_context(cafile=client.trusted)
        if client.certificate is not None:
            context.load_cert_chain(client.certificate("pem"))
        config["ssl_context"] = context
    return config | _sasl_of_python(client, tokens.aiokafka_provider)


def _kafka_python(client: Client) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": client.bootstrap_servers.split(","),
        "security_protocol": client.protocol,
    }
    if client.trusted is not None:
        config["ssl_cafile"] = client.trusted
    if client.certificate is not None:
        config["ssl_certfile"] = client.certificate("crt")
        config["ssl_keyfile"] = client.certificate("key")
    return config | _sasl_of_python(client, tokens.kafka_python_provider)


def _sasl_of_python(
    client: Client, provider: Callable[[Callable[[], str]], object]
) -> dict[str, Any]:
    if client.mechanism is None:
        return {}
    config: dict[str, Any] = {"sasl_mechanism": client.mechanism}
    if client.has_token:
        return config | {"sasl_oauth_token_provider": provider(client.token)}
    return config | {
        "sasl_plain_username": client.user,
        "sasl_plain_password": client.password,
    }


def _java_properties(client: Client) -> dict[str, str]:
    config = {
        "bootstrap.servers": client.bootstrap_servers,
        "security.protocol": client.protocol,
    }
    if client.trust_store is not None:
        config |= _java_store("ssl.truststore", client.trust_store, client.store_password)
    if client.certificate is not None:
        config |= _java_store("ssl.keystore", client.certificate("p12"), client.store_password) | {
            "ssl.key.password": client.store_password
        }
    if client.mechanism is not None:
        config["sasl.mechanism"] = client.mechanism
        config["sasl.jaas.config"] = _jaas(client)
        if client.has_token and not client.is_own_token:
            config["sasl.login.callback.handler.class"] = SIGNED_LOGINS[0]
            config["sasl.oauthbearer.token.endpoint.url"] = Path(client.token_file()).as_uri()
    return config


def _tidelog(client: Client) -> dict[str, str]:
    """Return properties for the helpers of `tidelog.testing`, which need no stores."""
    config = {name: text for name, text in _java_properties(client).items() if name[:4] != "ssl."}
    if client.trusted is not None:
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": client.trusted}
    if client.certificate is not None:
        own = client.certificate("pem")
        config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": own}
    return config


def _java_store(prefix: str, path: str, password: str) -> dict[str, str]:
    return {
        f"{prefix}.type": "PKCS12",
        f"{prefix}.location": path,
        f"{prefix}.password": password,
    }


def _jaas(client: Client) -> str:
    options: dict[str, str] = {}
    if client.has_token:
        if client.is_own_token:
            options["unsecuredLoginStringClaim_sub"] = client.user
        if client.is_expired:
            options["unsecuredLoginLifetimeSeconds"] = "-3600"
        module = f"{_MODULE}.oauthbearer.OAuthBearerLoginModule"
    else:
        options = {"username": client.user, "password": client.password}
        kind = "Plain" if client.mechanism == "PLAIN" else "Scram"
        module = f"{_MODULE}.{kind.lower()}.{kind}LoginModule"
    return " ".join([module, "required", *map(_option, options.items())]) + ";"


def _option(option: tuple[str, str]) -> str:
    name, value = option
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{escaped}"'


def _java(client: Client) -> str:
    """Return a file of properties, also for `--command-config`."""
    lines = (
        f"{key}={value.replace(chr(92), chr(92) * 2)}\n"
        for key, value in _java_properties(client).items()
    )
    return "".join(lines)


def _spark(client: Client) -> dict[str, str]:
    return {f"kafka.{key}": value for key, value in _java_properties(client).items()}


def _franz_go(client: Client) -> dict[str, Any]:
    config: dict[str, Any] = {"seeds": client.bootstrap_servers.split(",")}
    if client.trusted is not None:
        config["tls"] = {"ca": client.trusted}
        if client.certificate is not None:
            own = {"cert": client.certificate("crt"), "key": client.certificate("key")}
            config["tls"] |= own
    return config | _sasl_of_others(client, "user", "pass")


def _kafkajs(client: Client) -> dict[str, Any]:
    config: dict[str, Any] = {"brokers": client.bootstrap_servers.split(",")}
    if client.trusted is not None:
        config["ssl"] = {"ca": [_read(client.trusted)]}
        if client.certificate is not None:
            config["ssl"]["cert"] = _read(client.certificate("crt"))
            config["ssl"]["key"] = _read(client.certificate("key"))
    found = _sasl_of_others(client, "username", "password")
    if found:
        found["sasl"]["mechanism"] = found["sasl"]["mechanism"].lower()
    return config | found


def _sasl_of_others(client: Client, user: str, password: str) -> dict[str, Any]:
    """Return what a client in another language reads from JSON."""
    if client.mechanism is None:
        return {}
    if client.has_token:
        return {"sasl": {"mechanism": client.mechanism, "token": client.token()}}
    return {
        "sasl": {
            "mechanism": client.mechanism,
            user: client.user,
            password: client.password,
        }
    }


CLIENTS: Mapping[str, Callable[[Client], Any]] = {
    "aiokafka": _aiokafka,
    "confluent-kafka": _confluent_kafka,
    "franz-go": _franz_go,
    "java": _java,
    "kafka-python": _kafka_python,
    "kafkajs": _kafkajs,
    "kcat": _kcat,
    "spark": _spark,
    "tidelog": _tidelog,
}
"""What makes the configuration of each client library, by its name."""
