"""What all handlers share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.gateway.answers.large_answers import LargeAnswers
from barnabas.gateway.clients.budget import ByteBudget, RefusalPace
from barnabas.gateway.clients.fetch_sessions import FetchSessions
from barnabas.gateway.clients.lately_fenced import LatelyFenced
from barnabas.gateway.clients.own_gateways import OwnGateways
from barnabas.gateway.clients.sending_away import SendingAway
from barnabas.gateway.clients.throttling import Throttling
from barnabas.gateway.clients.unread_answers import UnreadAnswers
from barnabas.gateway.config import GatewayConfig
from barnabas.gateway.inside.links import Links
from barnabas.gateway.inside.patience import Patience
from barnabas.gateway.request import Handler
from barnabas.gateway.telemetry.client_telemetry import ClientTelemetry
from barnabas.kernel.clock import Clock
from barnabas.kernel.rare_lines import RareLines
from barnabas.metadata.producer_ids import ProducerIds
from barnabas.metadata.subscription import MetadataSubscription


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """The parts of the gateway, for handlers. Each part owns its own state; this only names them."""

    config: GatewayConfig
    handlers: Mapping[int, Handler]
    """All that is served, by API key: what ApiVersions shows."""
    clock: Clock
    metadata: MetadataSubscription
    links: Links
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    telemetry: ClientTelemetry
    lines: RareLines
    """For what requests find failing."""
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(0))
    refusal_pace: RefusalPace = field(default_factory=RefusalPace)
    unread_answers: UnreadAnswers = field(default_factory=UnreadAnswers)
    lately_fenced: LatelyFenced = field(default_factory=LatelyFenced)
    own_gateways: OwnGateways = field(default_factory=OwnGateways)
    large_answers: LargeAnswers = field(default_factory=LargeAnswers)
    gathering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one request that gathers much from other services."""
    sending_away: SendingAway = field(default_factory=SendingAway)
    throttling: Throttling = field(default_factory=Throttling)
    patience: Patience = field(default_factory=Patience)

    @property
    def gateway_id(self) -> str:
        return self.config.gateway_id
