"""DescribeCluster (key 60): the cluster's id and brokers (KIP-700).

v1 adds the endpoint type (KIP-919), v2 shows fenced brokers to those who ask (KIP-1073). Who asks for them looks after
the cluster: where one broker stands for all nodes, they are shown all the same, each at that broker's address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from barnabas.gateway.answers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from barnabas.gateway.clients.listeners import Endpoint
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.metadata_pb2 import NodeRecord
from barnabas.metadata.image import MetadataImage

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


async def handle(request: Request) -> Answer:
    endpoint_type = request.get("endpoint_type", _BROKERS)
    if endpoint_type != _BROKERS:
        return _refused(endpoint_type)
    image = request.image
    live = request.brokers(image)
    shown = live
    is_asked_for_all = request.get("include_fenced_brokers", False)
    if is_asked_for_all:
        shown = _all_nodes(request, image)
    is_shown_by_node = is_asked_for_all or request.client.listener.port_per_node
    brokers: list[dict[str, Any]] = [
        {
            "broker_id": endpoint.node_id,
            "host": endpoint.host,
            "port": endpoint.port,
            "rack": endpoint.rack,
            "is_fenced": is_shown_by_node and image.nodes[endpoint.node_id].fenced,
        }
        for endpoint in shown.values()
    ]
    return {
        "endpoint_type": _BROKERS,
        "cluster_id": image.cluster_id,
        "controller_id": min(live, default=-1),
        "brokers": brokers,
        "cluster_authorized_operations": (
            CLUSTER_OPERATIONS if request.body.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    }


def _all_nodes(request: Request, image: MetadataImage) -> Mapping[int, Endpoint]:
    if request.client.listener.port_per_node:
        return request.brokers(_with_all_nodes(image))
    (only,) = request.brokers(image).values()
    return {
        node_id: only._replace(node_id=node_id, rack=node.rack or None)
        for node_id, node in sorted(image.nodes.items())
    }


def _with_all_nodes(image: MetadataImage) -> MetadataImage:
    """The image as it would be with no node fenced."""
    nodes = {}
    for node_id, node in image.nodes.items():
        unfenced = NodeRecord()
        unfenced.CopyFrom(node)
        unfenced.fenced = False
        nodes[node_id] = unfenced
    return replace(image, nodes=nodes)


def _refused(endpoint_type: int) -> dict[str, Any]:
    if endpoint_type == _CONTROLLERS:
        code = ErrorCode.mismatched_endpoint_type
        message = "Brokers answer here, not controllers: ask for endpoint type 1."
    else:
        code, message = ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}"
    return {"error_code": code, "error_message": message, "endpoint_type": _BROKERS, "controller_id": -1}


HANDLER = Handler(api_key=60, versions=(0, 2), handle=handle)
