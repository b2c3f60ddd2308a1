"""Writes a data directory with the code that is checked out, for later versions to be tried on.

    python tests/integration/earlier_data/write.py VERSION

leaves `VERSION-clean.tar.xz` (stopped) and `VERSION-killed.tar.xz` (every process killed at once, with records that
no checkpoint knows) beside this file. Run it before a change of anything that is kept on disk; never replace a file
that is there, since nobody can make that version's data any more.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE: Final = Path(__file__).parent
PORT: Final = 19_492
BOOTSTRAP: Final = f"127.0.0.1:{PORT}"
FOREVER: Final = {"retention.ms": "-1"}
DATA: Final = Path("/tmp/barnabas-earlier-data")


def start() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "barnabas", "up", "--nodes", "2", "--data-dir", str(DATA)]
    flags = ["--port", str(PORT), "--http-port", str(PORT + 8)]
    running = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert "is ready" in running.stdout.readline()
    return running


def fill() -> None:
    """Topics of every kind, records of every kind of producer, a group that has read some of them."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    topics = [
        NewTopic("orders", 4, 1, config=FOREVER),
        NewTopic("prices", 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic("segmented", 1, 1, config={"segment.bytes": "1048576", **FOREVER}),
        NewTopic("deleted", 1, 1),
    ]
    for future in admin.create_topics(topics).values():
        future.result()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for number in range(1000):
        producer.produce("orders", key=str(number), value=f"order {number}", partition=number % 4)
        producer.produce("prices", key=str(number % 10), value=str(number))
        if number % 50 == 0:
            producer.flush()
    for number in range(300):
        producer.produce("segmented", value=f"{number:05d}" * 2000)
        producer.flush()
    read_and_commit(600)
    for future in admin.delete_topics(["deleted"]).values():
        future.result()


def read_and_commit(count: int) -> None:
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, **settings})
    consumer.subscribe(["orders"])
    seen = 0
    while seen < count:
        message = consumer.poll(1)
        seen += message is not None and not message.error()
    committed = consumer.commit(asynchronous=False)
    assert sum(partition.offset for partition in committed if partition.offset > 0) == count
    consumer.close()


def pack(name: str) -> None:
    shutil.rmtree(DATA / "run", ignore_errors=True)
    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(DATA, ".", filter=nobody)


def nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main(version: str) -> None:
    for ending in ("killed", "clean"):
        shutil.rmtree(DATA, ignore_errors=True)
        running = start()
        fill()
        time.sleep(6)  # a checkpoint of high watermarks
        if ending == "killed":
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
            for pid in [running.pid, *map(int, children)]:
                os.kill(pid, signal.SIGKILL)
        else:
            running.send_signal(signal.SIGINT)
        running.wait()
        time.sleep(1)
        pack(f"{version}-{ending}")
    shutil.rmtree(DATA)


if __name__ == "__main__":
    main(sys.argv[1])
