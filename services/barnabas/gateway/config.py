"""The gateway's settings; Kafka's names where Kafka has the setting."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.kernel.config import (
    HTTP_ADDRESS_HELP,
    LOG_FORMAT_HELP,
    LOG_LEVEL_HELP,
    MOVABLE_CLOCK_FILE_HELP,
    check_addresses_of_others,
    setting,
)


@dataclass(frozen=True)
class GatewayConfig:
    """Read once by `__main__`; see `barnabas.kernel.config` for where values come from."""

    gateway_id: str = setting("gateway-1", "Name of this gateway, unique in the cluster.")
    controllers: tuple[str, ...] = setting((), "gRPC addresses of the controllers, host:port or unix:/path.")
    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",), "Where clients connect: name://host:port, several with commas."
    )
    advertised_listeners: tuple[str, ...] = setting(
        (),
        "What clients are told instead of the address that they used: name://host:port for some listeners.",
    )
    advertise: str = setting(
        "port",
        "How clients tell nodes apart: `port` gives each node the listener's port plus its position, `one` shows "
        "one broker at one address that leads every partition.",
    )
    ports_per_listener: int = setting(
        1,
        "How many ports a listener opens at once under advertise=port; more follow as nodes join.",
        unit="ports",
    )
    own_position_only: int = setting(
        -1,
        "Under advertise=port: open only the port of the node at this position, which is in the same process; -1 for "
        "the ports of all nodes.",
    )
    broker_rack: str = setting(
        "", "The rack or zone of this gateway; nodes of the same rack are reached here."
    )
    socket_request_max_bytes: int = setting(
        104_857_600, "The largest request; a client that announces more is disconnected.", unit="bytes"
    )
    queued_max_request_bytes: int = setting(
        268_435_456,
        "Over this much in unanswered requests the gateway stops reading sockets; half of it may be answers that "
        "clients do not read, and a quarter what large requests take while they are worked on.",
        unit="bytes",
    )
    connections_max_idle_ms: int = setting(600_000, "A connection silent for this long is closed.", unit="ms")
    max_connections: int = setting(10_000, "More connections than this are closed at once.")
    max_incremental_fetch_session_cache_slots: int = setting(
        1_000, "How many fetch sessions are kept (KIP-227), of at most 250,000 partitions together."
    )
    telemetry_max_bytes: int = setting(
        1_048_576, "The most metrics that a client may push in one request, compressed.", unit="bytes"
    )
    fetch_max_bytes: int = setting(57_671_680, "The most records in one fetch response.", unit="bytes")
    fault_injection_enable: bool = setting(
        False, "Whether tests may inject faults through /faults: never for a cluster that matters."
    )
    fault_injection_file: str = setting(
        "", "A JSON list of faults that a gateway starts with; the supervisor keeps it."
    )
    http_address: str = setting("127.0.0.1:0", HTTP_ADDRESS_HELP)
    log_level: str = setting("INFO", LOG_LEVEL_HELP)
    log_format: str = setting("text", LOG_FORMAT_HELP)
    movable_clock_file: str = setting("", MOVABLE_CLOCK_FILE_HELP)

    def __post_init__(self) -> None:
        check_addresses_of_others(self)
