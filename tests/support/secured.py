"""Clusters whose nodes authenticate to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tidelog
from support.certificates import authority

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.embedded.nodes import Node

MODULES = "org.apache.kafka.common.security"
SCRAM_JAAS = (
    f'{MODULES}.scram.ScramLoginModule required username="bro=k,er" password="inner-secret";'
)
BEARER_JAAS = (
    f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
    ' unsecuredLoginStringClaim_sub="broker" unsecuredLoginListClaim_scope=",a,b";'
)


def plain_jaas(user: str = "broker", password: str = "inner-secret", **users: str) -> str:
    """The login module of a listener: whom it knows, and as what this node comes to others."""
    known = " ".join(f'user_{name}="{text}"' for name, text in users.items())
    return (
        f"{MODULES}.plain.PlainLoginModule required"
        f' username="{user}" password="{password}" {known};'
    )


class SecuredCluster(tidelog.Cluster):
    """Brokers with one protocol on all their listeners."""

    def __init__(
        self,
        protocol: str,
        settings: Mapping[str, str] | None = None,
        own: Callable[[str], Mapping[str, str]] = lambda _node_id: {},
        **options: Any,
    ) -> None:
        """`own` returns more settings of a node."""
        super().__init__(settings, **{"brokers": 3, **options})
        self._protocol = protocol
        self._own = own

    def _new_node(self, properties: Mapping[str, str]) -> Node[Any]:
        protocol = self._protocol
        names = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
        return super()._new_node(
            {
                **authority().listener("broker"),
                **properties,
                "listeners": properties["listeners"].replace("PLAINTEXT://", f"{protocol}://"),
                "listener.security.protocol.map": f"{names},CONTROLLER:{protocol}",
                "security.inter.broker.protocol": protocol,
                **self._own(properties["node.id"]),
            }
        )
