"""The containers' health check: ask the service's own /readyz; exit 0 when it is ready, else 1 and say why not.

Nothing but a socket, because it runs every few seconds in every container.
"""

from __future__ import annotations

import os
import socket
import sys

TIMEOUT_SECONDS = 3.0


def main() -> int:
    """The exit status."""
    port = int(os.environ.get("BARNABAS_HTTP_ADDRESS", "0.0.0.0:8080").rpartition(":")[2])
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
            connection.sendall(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError as error:
        print(f"no answer at port {port}: {error}")  # noqa: T201
        return 1
    head, _, body = answer.partition(b"\r\n\r\n")
    sys.stdout.write(body.decode("utf-8", "replace"))
    status = head.split(b" ", 2)[1:2]
    return 0 if status == [b"200"] else 1


if __name__ == "__main__":
    sys.exit(main())
