"""Ends that an operator gives to transactions: a marker in one partition, or an abort by the coordinator."""

from __future__ import annotations

import datetime
from typing import Any, Final

from barnabas.cli.balance.cluster_state import Place
from barnabas.cli.balance.late_transactions import Producer, judged
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX
from barnabas.cli.kafka.late_transactions import known_transactions
from barnabas.cli.kafka.partition_leaders import find_leader, read_brokers
from barnabas.cli.kafka.plain_connection import Unanswered
from barnabas.cli.kafka.requests import INIT_PRODUCER_ID, check
from barnabas.cli.kafka.transactions import (
    COORDINATOR_AGAIN,
    LEADER_AGAIN,
    Patience,
    find_coordinators,
    producers_of,
    write_abort_marker,
)
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode

_INIT_VERSION: Final = 4
"""Of InitProducerId."""
_INIT_TIMEOUT: Final = datetime.timedelta(seconds=ANSWER_SECONDS_MAX)
"""transaction.timeout.ms of the id from then on, until its producer comes back with its own."""


def find_open(administration: Administration, place: Place, start_offset: int) -> Producer:
    """The producer whose open transaction begins at this offset. Raises Refused without one."""
    leader = find_leader(administration, read_brokers(administration), place)
    for producer in producers_of(administration, leader, place):
        if producer.start_offset == start_offset:
            return producer
    raise Refused(
        f"no open transaction begins at offset {start_offset} of {place[0]}-{place[1]}; "
        f"{_shown(place, 'where those begin that are open')}"
    )


def check_hanging(administration: Administration, producer: Producer) -> None:
    """Raise Refused where a coordinator is going to end the transaction: a part of it would be aborted."""
    known = known_transactions(administration, read_brokers(administration), [producer.producer_id])
    (found,) = judged([producer], known)
    if found.awaited is None:
        return
    name, state = found.awaited.transactional_id, found.awaited.state
    to_do = (
        f"`barnabas transactions terminate {name}` aborts it in all of its partitions"
        if state == "Ongoing"
        else "it is decided, and its marker is on the way"
    )
    raise Refused(
        f"the transaction does not hang: it is that of {name} ({state}), and its coordinator ends it; {to_do}; "
        "--force aborts it in this partition alone"
    )


def abort(
    administration: Administration,
    place: Place,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Abort the transaction that a producer has open in one partition. Raises Refused where the partition does."""
    patience = Patience()
    while True:
        leader = find_leader(administration, read_brokers(administration), place)
        assert leader.address is not None
        try:
            code = write_abort_marker(
                *(administration, leader.address, place, producer_id, producer_epoch, coordinator_epoch)
            )
        except Unanswered as error:
            raise Refused(f"{error}; the marker may be written: {_shown(place, 'what is open')}") from error
        if code not in LEADER_AGAIN or not patience.is_left():
            break
    name = f"{place[0]}-{place[1]}"
    remembered = _shown(place, "what it remembers")
    if code == ErrorCode.invalid_producer_epoch:
        raise Refused(
            f"{name} knows producer {producer_id} by a newer epoch than {producer_epoch} (INVALID_PRODUCER_EPOCH); "
            f"{remembered}"
        )
    if code == ErrorCode.transaction_coordinator_fenced:
        raise Refused(
            f"{name} knows producer {producer_id} by a newer epoch of its coordinator than {coordinator_epoch} "
            f"(TRANSACTION_COORDINATOR_FENCED); {remembered}"
        )
    if code == ErrorCode.cluster_authorization_failed:
        raise Refused(
            "only who may ALTER the cluster writes markers (CLUSTER_AUTHORIZATION_FAILED): ask for an ACL, or use "
            "another user in --command-config"
        )
    check(code, f"cannot abort the transaction of producer {producer_id} in {name}")


def terminate(administration: Administration, transactional_id: str) -> None:
    """Have the coordinator abort what is open under an id; its producer may not go on.

    As a new producer of that id would, and without writing anything more.
    """

    def make(schema: Any) -> Any:
        return schema(transactional_id=transactional_id, transaction_timeout=_INIT_TIMEOUT)

    patience = Patience()
    while True:
        ((_, address, _),) = find_coordinators(administration, [transactional_id])
        code = administration.ask_broker(address, INIT_PRODUCER_ID, _INIT_VERSION, make).error_code
        is_waited_for = code == ErrorCode.concurrent_transactions or code in COORDINATOR_AGAIN
        if not is_waited_for or not patience.is_left():
            break
    if code == ErrorCode.concurrent_transactions:
        raise Refused(
            f"the transaction of {transactional_id} is being aborted, and not all of its partitions know it yet: "
            f"`barnabas transactions describe {transactional_id}` shows which it waits for"
        )
    check(code, f"cannot terminate the transaction of {transactional_id}")


def _shown(place: Place, what: str) -> str:
    return f"`barnabas transactions describe-producers {place[0]} --partition {place[1]}` shows {what}"
