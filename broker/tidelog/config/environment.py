"""Settings from `KAFKA_*` environment variables, named as Apache Kafka's image names them.

`KAFKA_NUM_PARTITIONS` is `num.partitions`: a dot is one underscore, an underscore two, a dash three
(Kafka's KafkaDockerWrapper). As there, variables of the JVM and its logging are left out, and
`listeners` follows `advertised.listeners` if only that is set, on all interfaces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.broker import BrokerConfig, parse_endpoints
from tidelog.config.unavailable_keys import is_unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["environment_settings"]

_PREFIX = "KAFKA_"
# Variables that set something other than a property of the broker.
_NO_SETTINGS = frozenset(
    {
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
_PREFIX_KEYS = (
    "remote.log.storage.manager.impl.prefix",
    "remote.log.metadata.manager.impl.prefix",
)


def environment_settings(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings of these variables, and the variables that name none of tidelog's.

    Kafka ignores a property that it does not know, and some variables are not the user's:
    Kubernetes sets KAFKA_PORT for a service named kafka.
    """
    settings: dict[str, str] = {}
    named = {}
    for variable in sorted(environment):
        if variable.startswith(_PREFIX) and variable not in _NO_SETTINGS:
            key = _key_of(variable)
            settings[key] = environment[variable]
            named[key] = variable
    prefixes = tuple(
        settings.get(key) or str(BrokerConfig.KEYS[key].default) for key in _PREFIX_KEYS
    )
    unknown = [key for key in settings if key not in BrokerConfig.KEYS]
    ignored = [key for key in unknown if not key.startswith(prefixes)]
    ignored += [key for key, text in settings.items() if is_unavailable(key, text)]
    for key in ignored:
        del settings[key]
    advertised = settings.get("advertised.listeners")
    if advertised and not settings.get("listeners"):
        settings["listeners"] = ",".join(
            f"{endpoint.name}://:{endpoint.port}"
            for endpoint in parse_endpoints("advertised.listeners", advertised.split(","))
        )
    return settings, [named[key] for key in ignored]


def _key_of(variable: str) -> str:
    dotted = variable.removeprefix(_PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")
