"""The canary's clients of one gateway where the gateway answers what it should not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.canary.core.ledger import RecordId
from barnabas.canary.gateway_client import CLIENT_ID, GatewayClient
from barnabas.kernel.clock import SystemClock

WAIT_SECONDS = 30


class Outcomes:
    """A listener that keeps what it is told, by the record's sequence."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[str]] = {}

    def of(self, sequence: int) -> asyncio.Future[str]:
        return self._futures.setdefault(sequence, asyncio.get_running_loop().create_future())

    def on_acknowledged(self, record: RecordId, now: float) -> None:
        self.of(record.sequence).set_result("acknowledged")

    def on_failed(self, record: RecordId, reason: str) -> None:
        self.of(record.sequence).set_result(reason)

    def on_read(self, gateway: str, record: RecordId, partition: int, offset: int, now: float) -> None:
        pass


@pytest.mark.parametrize("code", ["OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_RECORD"])
async def test_it_sends_on_when_the_library_gave_its_producer_up(barnabas_cluster: Any, code: str) -> None:
    topic = barnabas_cluster.create_topic()
    outcomes = Outcomes()
    client = GatewayClient(
        barnabas_cluster.bootstrap_servers,
        run="run",
        topic=topic,
        timeout_ms=5000,
        client_settings={},
        clock=SystemClock(),
        listener=outcomes,
    )
    client.start({0: 0})
    try:
        for sequence in range(6):
            if sequence in (2, 4):
                fault = barnabas_cluster.fault("Produce", client_id=CLIENT_ID, error=code, times=1)
            client.send(RecordId("gateway", sequence), 0)
            outcome = await asyncio.wait_for(outcomes.of(sequence), WAIT_SECONDS)
            if sequence in (2, 4):
                await asyncio.to_thread(fault.wait_for_hits, 1)
                fault.remove()
            else:
                assert outcome == "acknowledged", sequence
    finally:
        await client.close()
