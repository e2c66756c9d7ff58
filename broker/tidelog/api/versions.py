"""ApiVersions (18): the served APIs and their versions, and the client's software.

Behaviour
- The response lists exactly the APIs with handlers here, in order of their keys; clients do not use
  others. Produce is listed from version 0, although versions below 3 are refused, because
  librdkafka infers features from it (KAFKA-18659). Those of consumer, share and streams
  groups are listed at any level of their features, as in Kafka.
- A version above ours is answered in version 0 with UNSUPPORTED_VERSION and the entry of API 18
  alone, so that the client can ask again in a version both know (KIP-511). Dispatch passes None as
  the request.
- Features are listed once they work (`features.py`). Their epoch is the metadata offset that this
  broker has applied.

Version notes
- v1 adds the throttle time, v3 (KIP-511) the client's software, checked by a pattern, and (KIP-584)
  features; before v4 (KAFKA-17011) those that may be at level 0 are only listed as finalized; v5
  (KIP-1242) the cluster id and node id that the client expects: REBOOTSTRAP_REQUIRED if it reached
  another broker.
- Every response has header v0, whatever its body: the client does not know the broker's versions
  yet.
"""

# ruff: noqa: PLC0415 - message tables are imported at their first use

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.metadata.features import KRAFT_FEATURE, finalized_levels, supported_levels
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.cluster import ApiVersionsResponse

_ZERO_LEVELS_SINCE = 4  # version that lists features whose lowest level is 0
_SOFTWARE_BYTES_MAX = 1024  # bounds the pattern match; Kafka has no limit of its own


class VersionsApi:
    """Answers ApiVersions for one broker."""

    def __init__(
        self,
        *,
        served: Iterable[int],
        cluster_id: str,
        node_id: int,
        image: Callable[[], ClusterImage],
    ) -> None:
        """`image` returns this broker's view of the cluster."""
        self._keys = sorted({int(key) for key in served} | {int(ApiKey.API_VERSIONS)})
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._image = image

    def handlers(self) -> dict[ApiKey, Handler]:
        """The handler of API 18."""
        return {ApiKey.API_VERSIONS: self.api_versions}

    def api_versions(self, context: RequestContext, request: Any) -> ApiVersionsResponse:
        """List the APIs; `request` is None for an unknown version."""
        from tidelog_protocol.messages.cluster import ApiVersionsResponse

        if request is None:
            return ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=_entries([int(ApiKey.API_VERSIONS)]),
            )
        error = self._check(context, request)
        if error is not ErrorCode.NONE:
            return ApiVersionsResponse(error_code=error)
        if context.api_version >= 3:
            context.peer.software = (
                request.client_software_name,
                request.client_software_version,
            )
        response = ApiVersionsResponse(api_keys=_entries(self._keys))
        if context.api_version >= 3:
            _add_features(response, self._image(), context.api_version)
        return response

    def _check(self, context: RequestContext, request: Any) -> ErrorCode:
        if context.api_version >= 3 and not (
            _is_software(request.client_software_name)
            and _is_software(request.client_software_version)
        ):
            return ErrorCode.INVALID_REQUEST
        if context.api_version >= 5:
            asked_cluster, asked_node = request.cluster_id, request.node_id
            if asked_cluster is not None and asked_cluster != self._cluster_id:
                return ErrorCode.REBOOTSTRAP_REQUIRED
            if asked_node >= 0 and asked_node != self._node_id:
                return ErrorCode.REBOOTSTRAP_REQUIRED
        return ErrorCode.NONE


def _entries(keys: list[int]) -> list[ApiVersionsResponse.ApiVersion]:
    from tidelog_protocol.messages.cluster import ApiVersionsResponse

    entries = []
    for key in keys:
        api = API[key]
        entries.append(
            ApiVersionsResponse.ApiVersion(
                api_key=key,
                min_version=api.advertised_min_version,
                max_version=api.max_version,
            )
        )
    return entries


def _add_features(response: ApiVersionsResponse, image: ClusterImage, version: int) -> None:
    from tidelog_protocol.messages.cluster import ApiVersionsResponse

    response.supported_features = [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in supported_levels().items()
        if low or version >= _ZERO_LEVELS_SINCE
    ]
    response.finalized_features_epoch = image.offset
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(
            name=name, min_version_level=level, max_version_level=level
        )
        for name, level in finalized_levels(image.features).items()
    ]
    if image.voters:
        response.finalized_features.append(
            ApiVersionsResponse.FinalizedFeatureKey(
                name=KRAFT_FEATURE, min_version_level=1, max_version_level=1
            )
        )


def _is_software(text: str) -> bool:
    """Whether `[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?` matches, without importing `re`."""
    return (
        0 < len(text) <= _SOFTWARE_BYTES_MAX
        and text.isascii()
        and text[0].isalnum()
        and text[-1].isalnum()
        and text.replace("-", "").replace(".", "").isalnum()
    )
