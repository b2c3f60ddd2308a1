"""UnregisterBroker: what the controller decides, and when the client hears of it."""

from __future__ import annotations

import asyncio

from gateway_harness import Gateway

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import Refusal, Refused
from barnabas.messages.controller_pb2 import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.metadata.image import node_key

UNREGISTER_BROKER = 64


async def test_it_is_answered_once_the_broker_is_not_known_any_more() -> None:
    gateway = Gateway()
    asked: list[int] = []

    def forget(request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        asked.append(request.node_id)
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, gateway.metadata.apply, MetadataRecord(key=node_key(1)))
        return UnregisterBrokerResponse(node_epoch=gateway.metadata.image.nodes[1].node_epoch)

    gateway.controller.answers["UnregisterBroker"] = forget
    answer = await gateway.ask(UNREGISTER_BROKER, 0, {"broker_id": 1})
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, "")
    assert asked == [1]
    assert 1 not in gateway.metadata.image.nodes


async def test_a_broker_that_is_not_known() -> None:
    gateway = Gateway()

    def refuse(_: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        error = KafkaError(ErrorCode.broker_id_not_registered, "Broker ID 9 is not currently registered")
        raise Refused(Refusal.NEVER_ACCEPTED, error.message, error.code)

    gateway.controller.answers["UnregisterBroker"] = refuse
    answer = await gateway.ask(UNREGISTER_BROKER, 0, {"broker_id": 9})
    assert answer.error_code == ErrorCode.broker_id_not_registered
    assert "Broker ID 9 is not currently registered" in (answer.error_message or "")
