"""UnregisterBroker (key 64): a broker that has gone for good is forgotten.

v0 only. Its replicas stay in the assignments, out of sync, until they are reassigned. The answer comes when this
gateway knows the broker no longer.
"""

from __future__ import annotations

from barnabas.gateway.inside.controller_calls import call_controller, wait_for_image
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.controller_pb2 import UnregisterBrokerRequest
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    node_id: int = request.body.broker_id
    response = await call_controller(
        request.parts,
        lambda controller, seconds: controller.UnregisterBroker(
            UnregisterBrokerRequest(node_id=node_id), timeout=seconds
        ),
    )
    await wait_for_image(request, lambda image: _is_forgotten(image, node_id, response.node_epoch))
    return {"error_code": ErrorCode.none, "error_message": ""}


def _is_forgotten(image: MetadataImage, node_id: int, node_epoch: int) -> bool:
    """Whether it is, or has registered again since."""
    node = image.nodes.get(node_id)
    return node is None or node.node_epoch > node_epoch


HANDLER = Handler(api_key=64, versions=(0, 0), handle=handle)
