"""What of a Produce request its client is to bring elsewhere, at a gateway that is about to stop."""

from __future__ import annotations

from barnabas.gateway.request import Request
from barnabas.metadata.image import MetadataImage


class ProduceElsewhere:
    """One Produce request: what of it is refused, for its client to ask where to go, or if that is throttled."""

    def __init__(self, request: Request) -> None:
        self._request = request
        # Not under acks=0: nobody would be told, and what is refused is lost.
        # Nor where one broker stands for all: whoever comes again comes here, or to who shares its address.
        is_told = bool(request.body.acks) and request.client.listener.port_per_node
        self.is_told = is_told and request.parts.sending_away.is_telling(request.client.connection_id)
        """Whether there is anything to look for."""
        self.throttle_time_ms = 0
        """For how long the client is to send nothing more on this connection."""

    def refuses(self, image: MetadataImage, leader: int) -> bool:
        """Whether what node `leader` leads is refused here, as the client reaches it elsewhere from now on.

        Java's client, where it is only this gateway that goes: its records are written, and it is throttled when it is
        its turn. Where another node leads by now, it does not wait either after it was refused (KIP-951).
        """
        request = self._request
        client, parts = request.client, request.parts
        if leader in request.brokers_here(image):
            return False
        if (
            client.software.is_java
            and leader in image.nodes
            and image.nodes[leader].position == client.position
        ):
            self.throttle_time_ms = parts.throttling.throttle_time_ms(
                client.connection_id, request.who, request.times
            )
            return False
        parts.sending_away.on_told(client.connection_id, request.who, request.times)
        return True
