"""Named limits of the gateway that are not settings."""

from __future__ import annotations

from typing import Final

CONNECTION_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Over this much in unanswered requests of one connection, its socket is not read."""

CONNECTION_IN_FLIGHT_REQUESTS_MAX: Final = 1_000
"""Over this many unanswered requests of one connection, its socket is not read."""

SEQUENCE_GAPS_MAX: Final = 16_384
"""Partitions of idempotent producers in which one connection may lack a refused batch. Over it the connection is
closed, as to forget a gap could lose the order: the producer sends again what is not answered."""

SEQUENCE_GAP_SECONDS: Final = 0.5
"""What an idempotent producer had under way behind a refused batch has come by then, as a rule: later its leader is
asked whether it lacks that batch, which may have been sent again on another connection."""

MID_FRAME_BYTES_FREE: Final = 64 * 1024
"""So much of a frame any connection may bring when queued.max.request.bytes is used up: small requests are never held
up by large ones that have not come whole."""

MID_FRAME_TURN_SECONDS: Final = 0.1
"""How long one connection may bring the rest of its frame then, before it is looked at whether others go first."""

MID_FRAME_TURN_BYTES_MIN: Final = 100 * 1024
"""What it has to bring in that time to keep its turn."""

MID_FRAME_SILENT_SECONDS: Final = 3.0
"""Of whom nothing came for so long, its turn included, is closed while others wait for theirs."""

MID_FRAME_BUDGETS_MAX: Final = 2
"""Who does not bring it is closed over so many times queued.max.request.bytes: many clients that stop in the middle of
a frame, each in its turn, would otherwise fill the memory in the end."""

ANSWERS_ONE_PART_IN: Final = 2
"""Answers that clients do not take may have one part in so many of queued.max.request.bytes."""

FETCH_ONE_PART_IN: Final = 4
"""A Fetch is answered with one part in so many of what is left of that at the most, beyond its first batch: where many
clients do not take their answers, those of all become smaller before anybody has to wait."""

FETCH_BYTES_MIN: Final = 64 * 1024
"""What a Fetch is answered with however little is left, if anything is."""

UNREAD_SECONDS_MAX: Final = 0.5
"""Where nothing is left and others wait, a client that has taken next to nothing of its answer for so long is closed:
those who wait are answered within ANSWER_GRACE_SECONDS."""

READ_BYTES_PER_SECOND_MIN: Final = 64 * 1024
"""What it has to take not to be."""

DECODED_ONE_PART_IN: Final = 4
"""Large requests together may take one part in so many of queued.max.request.bytes while they are worked on."""

DECODED_BYTES_FREE: Final = 64 * 1024
"""A request that takes no more is small: what it takes is not counted."""

DECODED_AT_ONCE_BYTES: Final = 1024 * 1024
"""One that takes no more is counted, and waits for nobody. Of long polls, which consumers have thousands of at a time
and which are to wait, that much is not counted either."""

DECODED_ITEM_BYTES: Final = 1024
"""What an item (a partition, a topic, a group) takes on its way through the gateway: in the request, in messages to
other services and in the answer. It was 200 to 1,400 in requests of 49,000."""

DECODED_WAITING_ITEM_BYTES: Final = 256
"""What an item takes while other services are waited for: 90 to 240 bytes, in the request and in messages."""

DECODED_TEXT_FACTOR: Final = 4
"""What a byte of text may become."""

DECODED_SECONDS_MAX: Final = 10.0
"""A large request that is not answered by then is given up where others wait for room, with its connection."""

DECODED_LONG_POLL_SECONDS_MAX: Final = 1.0
"""A large fetch that waits for records is answered with what there is by then, where others wait for room. Were it
answered at once, consumers of very many partitions would ask in a tight loop."""

FETCH_SESSION_PARTITIONS_MAX: Final = 50_000
"""Partitions of one fetch session: a request of a few bytes reads them all."""

FETCH_SESSIONS_PARTITIONS_MAX: Final = 250_000
"""Partitions of all fetch sessions together, at 350 bytes each. Over it a client gets no session, as where
max.incremental.fetch.session.cache.slots are taken, and names all its partitions in each request."""

CLOSING_SECONDS_MAX: Final = 5.0
"""How long a connection that the gateway ends may take to bring away what is written: a client that reads nothing would
otherwise keep it, and all that it holds, for ever."""

STOP_ANSWERS_SECONDS_MAX: Final = 4.0
"""How long a stopping gateway answers what is under way, and waits for its clients to read that, before it cuts them
off."""

KEPT_UNSERVED_SECONDS_MAX: Final = 1.0
"""How long who connects to a port that was kept bound waits for a gateway that knows of no storage node yet; from then
on the port refuses, and clients try another one."""

FENCED_SHOWN_SECONDS: Final = 5.0
"""How long Metadata shows a broker whose node was fenced: until clients have asked who leads now, which librdkafka does
within a second, and have left it."""

OWN_GATEWAY_MISSED_SECONDS: Final = 30.0
"""How long the gateway of a live node's own process may be away before clients are told of another gateway instead."""

PORTS_APART_SECONDS: Final = 0.2
"""How long a client has to come again at another gateway before its connections to the next port are closed, too: twice
its first pause before it does (reconnect.backoff.ms: 100 ms with librdkafka)."""

PORTS_SECONDS_MAX: Final = 1.0
"""How long it may take to close all ports one after the other, however many nodes there are."""

SENDING_AWAY_SECONDS: Final = 0.3
"""How long a gateway that stops waits before it ends all connections that are left, from when it tells producers to ask
where to go: most send their next request within it, and have gone or have their answer."""

RETRY_PAUSE_SECONDS_MIN: Final = 0.08
"""After which a client may send again what was refused: retry.backoff.ms, 100 ms with most, less the fifth by which
Java's client varies it."""

TELLING_SECONDS: Final = 0.05
"""How long it goes on telling each of them once the first refusal has left: until what its client has sent already is
refused as well, and less than until it is sent again."""

GOING_SECONDS: Final = 0.03
"""How long after it has asked, and the first refusal has left, a client that goes by itself has gone. The connections
of who has not are ended then (but for librdkafka's): before what was refused is sent again."""

RECONNECT_PAUSE_SECONDS_MIN: Final = 0.04
"""After which Java's client connects again (reconnect.backoff.ms, 50 ms, less the fifth by which it varies it)."""

THROTTLE_SECONDS: Final = 0.05
"""For how long Java's client is asked to send nothing on a connection, which is to be ended meanwhile."""

SILENT_SECONDS: Final = 0.012
"""How long after the answer that asks it to has left a client's last requests have come."""

ASKING_SECONDS: Final = 0.03
"""How long after one of its connections was ended a client has asked where to go."""

TURNS_SECONDS: Final = 0.15
"""For how long connections are throttled one after the other. The client of one whose turn has not come by then is
refused instead, and has as long to go."""

QUIET_LOOK_SECONDS: Final = 0.005
"""How often a gateway that sends its clients away looks for connections that it can end."""

LEAVING_SECONDS_MAX: Final = 0.5
"""How long a gateway that stops waits until the metadata show it no more; a few hundredths of a second, as a rule."""

IDLE_CHECK_SECONDS: Final = 10.0
"""How often idle connections are looked for."""

NODE_ONE_PART_IN: Final = 4
"""One storage node may have one part in so many of queued.max.request.bytes to answer: one that is frozen, or even
three, leave the others enough."""

REFUSAL_SECONDS_MIN: Final = 0.1
"""The second Produce in a row for a partition that no leader takes is refused after this, each further one after twice
as long: a producer that does not back off would otherwise have the gateway read and refuse its records without a pause.
"""

REFUSED_PARTITIONS_MAX: Final = 1_000
"""Partitions of one connection of which it is known that they were refused; further ones are no news to its client."""

REFUSAL_SECONDS_MAX: Final = 1.0

RESEND_SECONDS_MAX: Final = 0.5
"""How long records that their leader refused are kept for who leads instead: a hand-over takes a few hundredths of a
second, and where it takes longer, the client is to know."""

RESEND_PAUSE_SECONDS: Final = 0.02
"""After which records are sent to their leader again although no newer metadata have come: it may not have heard yet
that it leads."""

MUTED_SECONDS_MAX: Final = 30.0
"""The longest that a client is muted at a time: after so long clients give a request up by themselves."""

REFUSED_BYTES_PER_SECOND: Final = 16 * 1024 * 1024
"""How fast a gateway takes records that it refuses then, from all connections: a few hundredths of its time."""

REFUSAL_PACE_SECONDS_MAX: Final = 10.0
"""The longest that the pace of all refusals delays one of them."""

ANSWER_GRACE_SECONDS: Final = 0.8
"""How long after the client's own timeout or max_wait other services may still answer: with what a deadline is noticed
late, clients have their answer within a second, whatever the services inside do."""

LATE_LEADER_SECONDS: Final = 0.5
"""How long a Fetch that has something to tell waits for what the other leaders have by then. It is paid once: a leader
that let it pass is not asked again until something comes from it."""

CALL_TIMEOUT_SECONDS: Final = 10.0
"""The longest wait for an answer from another service where the client names no timeout: less than the 30 s
after which clients give a request up by themselves."""

COORDINATOR_AWAITED_SECONDS: Final = 2.0
"""How long requests wait for a coordinator that has gone: one that is started anew is there within half a second, or on
a busy machine within two."""

COORDINATOR_KEPT_SECONDS: Final = 5.0
"""A call that broke after so long had been with a coordinator: a machine that is silent is noticed within 3 s, and one
that cannot be connected to within 2."""

COORDINATOR_OUTAGES_MAX: Final = 3
"""How often one request waits COORDINATOR_AWAITED_SECONDS: a join that coordinators keep for minutes may see each of
them restarted."""

COORDINATOR_PAUSE_SECONDS_MIN: Final = 0.05
"""After which a request that waits asks it again; each further pause is twice as long."""

COORDINATOR_PAUSE_SECONDS_MAX: Final = 0.4
"""The longest such pause. To ask in vain takes 20 us: with 2,000 requests waiting that is a seventh of the time."""

LOOK_UP_CALLS_MAX: Final = 2
"""How often a leader is asked for one look-up: once more if its connection breaks."""

IMAGE_WAIT_SECONDS: Final = 5.0
"""The longest wait for a change of ours to come back in the metadata."""

AUTO_CREATED_TOPICS_MAX: Final = 1_000
"""Topics that come to be because one Metadata request names them; of the others it says "not yet", which is
LEADER_NOT_AVAILABLE, and clients ask again."""

KEYS_AT_A_TIME: Final = 100
"""Groups or transactional ids of one request that are looked up, described or deleted before others are served: it may
name 50,000."""

ROWS_AT_A_TIME: Final = 250
"""Rows of an answer that are made and encoded before others are served, at 10 to 20 us each."""

LARGE_ANSWERS_BYTES: Final = 16 * 1024 * 1024
"""What may be made of several large answers at a time; over it the one that began first goes on alone."""

DESCRIBED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest answer of descriptions: the settings of 15,000 topics with all that is known of each setting."""

GATHERED_BYTES_FREE: Final = 1024 * 1024
"""What any request may gather from other services at a time with others; beyond it, one at a time goes on. And what an
answer may tell twice."""

GATHERED_BYTES_MAX: Final = 16 * 1024 * 1024
"""A request that has gathered so much asks for nothing more. What it has not asked for is answered with the code after
which clients ask again. The answer may be four times as large: numbers take less room between services."""

GATHERED_AT_A_TIME_BYTES: Final = 1024 * 1024
"""A coordinator's descriptions of groups end with the one with which they come to so much."""

PRODUCERS_AT_A_TIME: Final = 10
"""Partitions whose producers are asked for at a time: each may have a hundred thousand."""

CREATED_SETTINGS_BYTES_MAX: Final = 16 * 1024 * 1024
"""So much of the settings of new topics is in one answer of CreateTopics, those of some 18,000 topics; of the others it
says that they are left out."""

TELEMETRY_INSTANCES_MAX: Final = 16_384
"""Client instances that one gateway remembers, as many as a Kafka broker; the longest silent are forgotten."""

TELEMETRY_INSTANCE_EXPIRY_MS: Final = 60_000
"""A client instance that is silent for this long, or for three of its intervals, is forgotten."""

TELEMETRY_UNFOLDED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes that the metrics of one push may unfold to: no more than a collector takes in one message by default."""

TELEMETRY_RESOURCES_MAX: Final = 10_000
"""Resources in one push: each is marked with where it came from, so many empty ones would grow out of bounds."""

TELEMETRY_INLINE_BYTES_MAX: Final = 16 * 1024
"""A larger push is decompressed and read in a thread, so that it holds up nobody else."""

TELEMETRY_QUEUED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Pushed metrics that may wait for the collector; over it, further ones are dropped."""

TELEMETRY_ATTEMPTS_MAX: Final = 4
"""How often metrics are sent to a collector that does not take them, before they are dropped."""

TELEMETRY_RETRY_SECONDS_MIN: Final = 0.5
"""The first pause between attempts; each further one is twice as long."""

JOIN_GRACE_SECONDS: Final = 15.0
"""Added to a member's rebalance timeout before a JoinGroup or SyncGroup call is given up."""

AFTER_JUMP_SECONDS: Final = 5.0
"""How long, after a test moved the clock, a silent connection still has to be used, if it had so much left."""

FAULT_DELAY_SECONDS_MAX: Final = 3600.0
"""The longest that an injected fault may hold a request up."""

CONTROLLER_RETRY_SECONDS: Final = 0.1
"""Pause before a request that the controller did not take is tried again."""

assert RESEND_SECONDS_MAX <= SEQUENCE_GAP_SECONDS, (
    "what is to be sent on is held back by a gap until it is given up"
)
assert TELLING_SECONDS <= SENDING_AWAY_SECONDS
assert max(TELLING_SECONDS, GOING_SECONDS + QUIET_LOOK_SECONDS) < RETRY_PAUSE_SECONDS_MIN, (
    "what was refused is sent again while it is still refused, or before its connection has ended"
)
assert SILENT_SECONDS + QUIET_LOOK_SECONDS < THROTTLE_SECONDS, (
    "who is throttled sends again before it is ended"
)
assert THROTTLE_SECONDS < SILENT_SECONDS + RECONNECT_PAUSE_SECONDS_MIN, (
    "the throttle goes on at the broker's next port: Java's client keeps it while the host is the same"
)
assert TURNS_SECONDS + GOING_SECONDS < SENDING_AWAY_SECONDS
assert 4 * GATHERED_BYTES_MAX <= DESCRIBED_BYTES_MAX
