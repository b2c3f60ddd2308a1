"""Gateways come and go; nothing depends on them but what clients are told."""

from __future__ import annotations

from barnabas.controller.core.decision import Decision
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import GatewayRecord, MetadataRecord
from barnabas.metadata.image import MetadataImage, gateway_key


def register_gateway(image: MetadataImage, gateway: GatewayRecord) -> Decision[None]:
    """A gateway came or came back. Raises KafkaError INVALID_REGISTRATION."""
    if not gateway.gateway_id:
        raise KafkaError(ErrorCode.invalid_registration, "a gateway needs an id")
    if image.gateways.get(gateway.gateway_id) == gateway:
        return Decision((), None)
    return Decision((MetadataRecord(key=gateway_key(gateway.gateway_id), gateway=gateway),), None)


def remove_gateway(image: MetadataImage, gateway_id: str) -> Decision[None]:
    """A gateway is gone."""
    if gateway_id not in image.gateways:
        return Decision((), None)
    return Decision((MetadataRecord(key=gateway_key(gateway_id)),), None)
