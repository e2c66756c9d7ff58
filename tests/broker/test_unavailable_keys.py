"""Settings of what tidelog does not have: Kafka's defaults, and nothing else."""

from __future__ import annotations

import pytest

from support.metadata import broker_config
from tidelog.config.broker import BrokerConfig
from tidelog.config.unavailable_keys import UnavailableKeys
from tidelog.config.vocabulary import ConfigError
from tidelog_storage.config_key import ConfigKey, collect_keys

KEYS = collect_keys(UnavailableKeys)
OTHER = {"BOOLEAN": "true", "DOUBLE": "0.1", "SHORT": "7", "INT": "7", "LONG": "7"}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_its_default_is_taken_and_another_value_refused(key: ConfigKey) -> None:
    attribute = key.name.replace(".", "_")
    assert getattr(broker_config(), attribute) == key.default
    text = key.format(key.default)
    if text is not None:
        assert getattr(broker_config(**{attribute: text}), attribute) == key.default
    with pytest.raises(ConfigError, match="only the default is accepted") as refused:
        broker_config(**{attribute: OTHER.get(key.type_name, "another.One")})
    assert refused.value.key == key.name


def test_lists_of_classes_may_be_empty() -> None:
    assert broker_config(metric_reporters="").metric_reporters == []


def test_a_secret_is_not_shown() -> None:
    secrets = [key.name.replace(".", "_") for key in KEYS.values() if key.sensitive]
    assert len(secrets) == 2
    for attribute in secrets:
        with pytest.raises(ConfigError, match="hidden") as refused:
            broker_config(**{attribute: "only-i-know"})
        assert "only-i-know" not in str(refused.value)


def test_they_are_marked_as_without_effect() -> None:
    assert all(BrokerConfig.KEYS[name].inert for name in KEYS)
