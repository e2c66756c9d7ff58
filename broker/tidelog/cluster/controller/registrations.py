"""Pure decisions about the registrations of controllers (KIP-919).

A controller registers once it runs. The registration tells its addresses and the features that it
supports; it stays when the controller goes, until the next one replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.metadata.features import registers_controllers
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.metadata_records import RegisterControllerRecord

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog_protocol.messages.controller import ControllerRegistrationRequest

__all__ = ["register_controller"]


def register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> RegisterControllerRecord:
    """Decide a ControllerRegistration. Raises RefusedError."""
    if not registers_controllers(image.features):
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    return RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
