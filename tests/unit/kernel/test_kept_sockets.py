"""Which of the inherited sockets is bound to which address."""

from __future__ import annotations

import socket

import pytest

from barnabas.kernel.kept_sockets import KEPT_SOCKETS, describe_kept, kept_socket, refuse_until_listened


def test_a_kept_socket_is_found_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as other,
    ):
        (_, port), other_port = first.getsockname(), other.getsockname()[1]
        kept = {("127.0.0.1", port): first.fileno(), ("::1", other_port): other.fileno()}
        monkeypatch.setenv(KEPT_SOCKETS, describe_kept(kept))
        for (host, number), bound in zip(kept, (first, other), strict=True):
            found = kept_socket(host, number)
            assert found is not None
            with found:
                assert found.getsockname() == bound.getsockname()
                assert found.fileno() != bound.fileno(), "to close it leaves the kept one open"
        assert kept_socket("127.0.0.1", port + 1) is None
        assert kept_socket("0.0.0.0", port) is None


def test_nothing_is_kept_for_a_process_that_nobody_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEPT_SOCKETS, raising=False)
    assert kept_socket("127.0.0.1", 9092) is None


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("has_listened", [True, False])
def test_what_refused_serves_again_however_often_it_was_told_to(times: int, has_listened: bool) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if has_listened:
            sock.listen()
        for _ in range(times):
            refuse_until_listened(sock)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(sock.getsockname())
        sock.listen()
        with socket.create_connection(sock.getsockname()) as client, sock.accept()[0] as served:
            client.sendall(b"question")
            assert served.recv(100) == b"question"
