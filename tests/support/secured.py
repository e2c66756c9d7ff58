"""Clusters whose nodes authenticate to each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidelog
from support.certificates import authority
from tidelog.cluster.formatting import bootstrap_checkpoint
from tidelog.security.scram import SCRAM, of_password

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.embedded.nodes import Node
    from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord

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


def credential(user: str, mechanism: int) -> UserScramCredentialRecord | None:
    """That of SCRAM_JAAS."""
    scram = {each.number: each for each in SCRAM.values()}[mechanism]
    known = of_password(scram, "bro=k,er", "inner-secret", b"salt")
    return known if user == known.name else None


class SecuredCluster(tidelog.Cluster):
    """Brokers with one protocol on all their listeners; the metadata has the user of SCRAM_JAAS."""

    def __init__(
        self,
        protocol: str,
        settings: Mapping[str, str] | None = None,
        own: Callable[[str, Mapping[str, str]], Mapping[str, str]] = lambda _node_id, _given: {},
        **options: Any,
    ) -> None:
        """`own` returns more settings of a node, with these."""
        super().__init__(settings, **{"brokers": 3, **options})
        self._protocol = protocol
        self._own = own

    async def _new_nodes(self) -> list[Node[Any]]:
        nodes = await super()._new_nodes()
        users = [one for number in (1, 2) if (one := credential("bro=k,er", number))]
        for node in nodes:
            folder = Path(node.config.metadata_directory())
            (folder / "bootstrap.checkpoint").write_bytes(bootstrap_checkpoint(0, users))
        return nodes

    def _new_node(self, properties: Mapping[str, str]) -> Node[Any]:
        protocol = self._protocol
        names = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
        given = {
            **authority().listener("broker"),
            **properties,
            "listeners": properties["listeners"].replace("PLAINTEXT://", f"{protocol}://"),
            "listener.security.protocol.map": f"{names},CONTROLLER:{protocol}",
            "security.inter.broker.protocol": protocol,
        }
        return super()._new_node({**given, **self._own(properties["node.id"], given)})
