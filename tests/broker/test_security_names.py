"""Users' names of certificates; expected values are those of Kafka's SslPrincipalMapper."""

from __future__ import annotations

import pytest

from tidelog.security.names import NameRules, distinguished_name
from tidelog_storage.config_key import ConfigError

SUBJECT = (
    (("countryName", "DE"),),
    (("organizationName", "A, B"),),
    (("organizationalUnitName", "Dev"), ("userId", "7")),
    (("commonName", "Kafka1"),),
)


def test_the_name_is_of_rfc_2253() -> None:
    assert distinguished_name(SUBJECT) == r"CN=Kafka1,OU=Dev+UID=7,O=A\, B,C=DE"
    mail = ((("emailAddress", "a@b"),),)
    assert distinguished_name(mail) == "1.2.840.113549.1.9.1=#1603614062"


@pytest.mark.parametrize(("size", "length"), [(127, "7f"), (128, "8180"), (256, "820100")])
def test_long_values_have_long_lengths(size: int, length: str) -> None:
    name = distinguished_name(((("emailAddress", "a" * size),),))
    assert name == f"1.2.840.113549.1.9.1=#16{length}{'61' * size}"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", r"CN=Kafka1,OU=Dev+UID=7,O=A\, B,C=DE"),
        ("RULE:^CN=(.*?),.*$/$1/", "Kafka1"),
        ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "kafka1"),
        ("RULE:^CN=(.*?),.*$/$1@$4/U", "KAFKA1@$4"),
        ("RULE:^X=(.*)$/$1/,RULE:^CN=(.*?),OU=(.*?)\\+.*$/$1-$2/", "Kafka1-Dev"),
        ("RULE:^X=(.*)$/$1/", None),
    ],
)
def test_the_first_rule_that_matches_counts(rules: str, name: str | None) -> None:
    assert NameRules(rules).name_of(SUBJECT) == name


@pytest.mark.parametrize("rules", ["deny", "RULE:^CN=(.*/L", "RULE:(/x/", "DEFAULT/L"])
def test_invalid_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.ssl\.ssl\.principal\.mapping\.rules"):
        NameRules(rules, "listener.name.ssl.ssl.principal.mapping.rules")
