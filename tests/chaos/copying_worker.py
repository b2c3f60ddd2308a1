"""A worker of librdkafka that reads, and writes what it read with its offsets in one transaction, again and again.

    python copying_worker.py BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID

It is a process of its own, as a call of librdkafka may never return (see `chaos_copies`). It tells on stdout what it
does: "T partition" for copied, "E what" for an error that it goes on after, "F what" for one that must not be, "P" for
every turn. Some transactions are aborted because it wants to, others because something failed; what was in
them is done again from the offsets that count. It ends with its stdin.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from chaos_plan import PROTOCOLS
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

RECORDS_MAX: Final = 500
PAUSE_SECONDS: Final = 0.2
"""Before the next transaction: the workers' own work is not to hide what faults do."""
ABORTS_EVERY: Final = 8
"""Transactions, so that there is something that no reader may be given."""
CALL_SECONDS_MAX: Final = 10.0
AGAIN_SECONDS_MAX: Final = 60.0
TRANSACTION_MS_MAX: Final = 60_000

SETTINGS: Final[Mapping[str, Any]] = {
    "metadata.recovery.strategy": "none",  # where it begins anew it forgets its coordinators
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "log_level": 0,
}


def say(line: str) -> None:
    print(line, flush=True)


class Worker:
    """Owns a consumer and a producer."""

    def __init__(
        self, bootstrap: str, source: str, target: str, group: str, name: str, protocol: str
    ) -> None:
        self._source, self._target, self._name = source, target, name
        self._settings = {"bootstrap.servers": bootstrap, **SETTINGS}
        self._consumer = Consumer(
            {
                **self._settings,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 200,
                **PROTOCOLS[protocol],
            }
        )
        self._consumer.subscribe([source])
        self._producer: Producer | None = None
        self._begun = 0
        self._is_ahead = False
        """Whether it has read more than transactions have ended, and is to go back. A new producer comes first: what
        the one before has left open hides the offsets."""
        self.is_stopping = threading.Event()

    def run(self) -> None:
        while not self.is_stopping.is_set():
            say("P")
            try:
                if self._producer is None:
                    self._producer = self._start()
                if self._is_ahead:
                    self._go_back()
                    self._is_ahead = False
                self._copy_lot(self._producer)
            except KafkaException as error:
                if not self._abort(error):
                    self._producer = None
                self._is_ahead = True
        self._consumer.close()

    def _start(self) -> Producer:
        producer = Producer(
            {
                **self._settings,
                "transactional.id": self._name,
                "transaction.timeout.ms": TRANSACTION_MS_MAX,
                "message.timeout.ms": TRANSACTION_MS_MAX,
                "linger.ms": 5,
            }
        )
        _again(lambda: producer.init_transactions(CALL_SECONDS_MAX))
        return producer

    def _copy_lot(self, producer: Producer) -> None:
        records = [each for each in self._consumer.consume(RECORDS_MAX, PAUSE_SECONDS) if _is_record(each)]
        if not records:
            return
        producer.begin_transaction()
        for record in records:
            producer.produce(self._target, record.value(), partition=record.partition())
        ends = {record.partition(): record.offset() + 1 for record in records}
        offsets = [TopicPartition(self._source, partition, end) for partition, end in ends.items()]
        group = self._consumer.consumer_group_metadata()
        _again(lambda: producer.send_offsets_to_transaction(offsets, group, CALL_SECONDS_MAX))
        self._begun += 1
        if self._begun % ABORTS_EVERY == 0:
            producer.flush(CALL_SECONDS_MAX)
            _again(lambda: producer.abort_transaction(CALL_SECONDS_MAX))
            self._go_back()
            return
        _again(lambda: producer.commit_transaction(CALL_SECONDS_MAX))
        for partition in ends:
            say(f"T {partition}")

    def _abort(self, error: KafkaException) -> bool:
        """Whether the producer may go on; nobody takes its transactional id, so nothing may be fatal to it."""
        reason = error.args[0]
        say(f"{'F' if reason.fatal() else 'E'} copying: {reason.name()} {reason.str()}")
        producer = self._producer
        if producer is None or reason.fatal() or not reason.txn_requires_abort():
            return False
        try:
            _again(lambda: producer.abort_transaction(CALL_SECONDS_MAX))
        except KafkaException as second:
            reason = second.args[0]
            say(f"{'F' if reason.fatal() else 'E'} aborting: {reason.name()} {reason.str()}")
            return False
        return True

    def _go_back(self) -> None:
        """To what counts, in all that is assigned."""
        while not self.is_stopping.is_set():
            say("P")
            try:
                assigned = self._consumer.assignment()
                for each in self._consumer.committed(assigned, CALL_SECONDS_MAX) if assigned else ():
                    if each.error is not None:
                        raise KafkaException(each.error)
                    self._consumer.seek(each)
                return
            except KafkaException as error:
                say(f"E going back: {error.args[0].name()}")
                time.sleep(PAUSE_SECONDS)


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    is_wrong = error.fatal() or error.name() == "_AUTO_OFFSET_RESET"
    say(f"{'F' if is_wrong else 'E'} reading: {error.name()}")
    return False


def _again(call: Callable[[], Any]) -> None:
    """Once more while the client says that this may help."""
    until = time.monotonic() + AGAIN_SECONDS_MAX
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
            say(f"E again: {error.args[0].name()}")


def main() -> None:
    worker = Worker(*sys.argv[1:])

    def wait_for_end() -> None:
        sys.stdin.read()
        worker.is_stopping.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    worker.run()


if __name__ == "__main__":
    main()
