"""What of a Produce request its client is to bring elsewhere, at a gateway that is about to stop."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.gateway.request import Request
from barnabas.metadata.image import MetadataImage


class ProduceElsewhere:
    """One Produce request, whose client is sent away or not: some of it is refused then, or its answer throttles it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        # Not under acks=0: nobody would be told, and what is refused is lost.
        # Nor where one broker stands for all: whoever comes again comes here, or to who shares its address.
        is_told = bool(request.body.acks) and request.client.listener.port_per_node
        self.is_sent_away = is_told and request.parts.sending_away.is_telling(request.client.connection_id)
        """Whether this gateway is about to stop, and its client is to hear of it."""
        self.throttle_time_ms = 0
        """For how long the client is to send nothing more on this connection."""
        self._seen: MetadataImage | None = None
        self._here: Collection[int] = ()
        self._throttled_leader: int | None = None

    def refuses(self, image: MetadataImage, leader: int) -> bool:
        """Whether what node `leader` leads is refused here, as by `image` the client reaches it elsewhere from now on.

        It is not where the client is Java's, and is throttled by this answer, or is to be when it is this connection's
        turn: then its records are written. Either is noted, for the connection to be ended.
        """
        request = self._request
        if image is not self._seen:  # a request may be about a thousand partitions
            self._seen, self._here = image, request.brokers_here(image)
            self._throttled_leader = self._leader_of_who_is_throttled(image)
        if leader in self._here:
            return False
        client, parts = request.client, request.parts
        if leader == self._throttled_leader:
            throttle_time_ms = parts.throttling.throttle(client.connection_id, request.who, request.times)
            if throttle_time_ms is not None:
                self.throttle_time_ms = throttle_time_ms
                return False
        parts.sending_away.on_told(client.connection_id, request.who, request.times)
        return True

    def _leader_of_who_is_throttled(self, image: MetadataImage) -> int | None:
        """The node to whose partitions the client, if it is Java's, may go on writing until it is throttled.

        Not another one: refused, it goes there at once if it knows of leader epochs. None in a transaction: to find
        that the coordinator's connection has ended costs it retry.backoff.ms, and older clients may wait much longer
        than the throttle (KAFKA-17455). None where it knows no other broker that it could ask.
        """
        request = self._request
        is_for_it = request.client.software.is_java and request.body.transactional_id is None
        return request.addressed_node(image) if is_for_it and len(request.brokers(image)) > 1 else None
