"""From the flags of `barnabas up` to the processes of a cluster, each with its config file.

Services meet on unix sockets in one private folder, so a cluster takes no port but those that clients use, and one
for HTTP.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from barnabas.cli.child import PACKAGES, ServiceSpec
from barnabas.cli.data_directory import DataDirectory
from barnabas.cli.options import Advertise, UpOptions, bracketed
from barnabas.kernel.config import ConfigT, to_properties, with_settings

if TYPE_CHECKING:
    from barnabas.controller.config import ControllerConfig
    from barnabas.coordinator.config import CoordinatorConfig
    from barnabas.gateway.config import GatewayConfig
    from barnabas.storage.config import StorageConfig

SETTINGS_OF_UP: Final[Mapping[str, str]] = MappingProxyType({"group.initial.rebalance.delay.ms": "0"})
"""What `up` sets otherwise than a service has it that is started by itself: on one machine consumers are started by
hand, and a lone one is not to wait three seconds for others. docs/configuration.md shows it."""

SETTINGS_OF_THREE_NODES: Final[Mapping[str, str]] = MappingProxyType(
    {"default.replication.factor": "3", "min.insync.replicas": "2"}
)
"""What `up` sets beside these where there are three nodes or more: what is acknowledged (acks=all) of a topic that was
created without a number survives the loss of any node, and is taken while any is away. Two nodes cannot give both."""

NODES_TO_REPLICATE_ON: Final = 3


def settings_of_up(nodes: int) -> dict[str, str]:
    """What `up --nodes` sets by itself."""
    return {**SETTINGS_OF_UP, **(SETTINGS_OF_THREE_NODES if nodes >= NODES_TO_REPLICATE_ON else {})}


def faults_file(sockets: Path) -> Path:
    """Where the supervisor keeps the injected faults for gateways that start."""
    return sockets / "faults.json"


def clock_file(directory: DataDirectory) -> Path:
    """Where the supervisor keeps how far the cluster's clock is ahead, for services that start."""
    return directory.run / "clock.json"


def plan_cluster(options: UpOptions, directory: DataDirectory) -> list[list[ServiceSpec]]:
    """Write every service's config file; returns the services in the stages in which they stop."""
    planner = _Planner(options, directory)
    gateways = range(1, options.gateways + 1)
    nodes = range(1, options.nodes + 1)
    coordinators = range(1, options.coordinators + 1)
    if options.separate:
        return [
            [planner.gateway(number) for number in gateways],
            [planner.coordinator(number) for number in coordinators],
            [planner.storage(number) for number in nodes],
            [planner.controller()],
        ]
    # Every broker is a gateway and a coordinator too: only what is asked for beyond one is a process of its own.
    return [
        [planner.gateway(options.nodes + number) for number in gateways[:-1]],
        [planner.coordinator(options.nodes + number) for number in coordinators[:-1]],
        [planner.broker(number) for number in nodes],
        [planner.controller()],
    ]


class _Planner:
    def __init__(self, options: UpOptions, directory: DataDirectory) -> None:
        self._options = options
        self._directory = directory
        self._data = directory.path.absolute()
        self._controllers = (self._grpc("controller"),)

    def controller(self) -> ServiceSpec:
        return self._service("controller", "controller", self._controller_config())

    def broker(self, number: int) -> ServiceSpec:
        from barnabas.host.config import BrokerConfig

        name = f"broker-{number}"
        # As those of separate processes are called, so that each takes the place of one of an earlier start.
        gateway = self._gateway_config(name, number, f"gateway-{number}")
        if self._options.advertise is Advertise.port:
            # A node's own port leads to the node's own process, so that what a well-behaved client asks is here.
            gateway = replace(gateway, own_position_only=number - 1)
        coordinator = self._coordinator_config(name, f"coordinator-{number}")
        config = BrokerConfig(gateway, self._storage_config(name, number), coordinator)
        aliases = (f"storage-{number}", f"gateway-{number}", f"coordinator-{number}")
        spec = self._service(name, "broker", config, self._broker_settings(), aliases)
        if self._options.gateways > 1:
            return spec  # others serve all ports
        if self._options.advertise is Advertise.port:
            return replace(spec, ports=(self._options.kafka_ports[number - 1],))
        return replace(spec, ports=tuple(self._options.kafka_ports) if self._options.nodes == 1 else ())

    def storage(self, number: int) -> ServiceSpec:
        name = f"storage-{number}"
        return self._service(name, "storage", self._storage_config(name, number), self._broker_settings())

    def _storage_config(self, name: str, number: int) -> StorageConfig:
        from barnabas.storage.config import StorageConfig

        return StorageConfig(
            node_id=number,
            position=number - 1,
            broker_rack=self._options.rack_of(number),
            log_dirs=(str(self._data / f"node-{number}"),),
            listen_address=self._grpc(name),
            controllers=self._controllers,
            http_address=f"unix:{self._http(name)}",
            log_level=self._log_level,
            movable_clock_file=self._movable_clock_file,
        )

    def coordinator(self, number: int) -> ServiceSpec:
        name = f"coordinator-{number}"
        return self._service(name, "coordinator", self._coordinator_config(name))

    def gateway(self, number: int) -> ServiceSpec:
        name = f"gateway-{number}"
        spec = self._service(name, "gateway", self._gateway_config(name, number))
        return replace(spec, ports=tuple(self._options.kafka_ports) if self._options.gateways == 1 else ())

    def _controller_config(self) -> ControllerConfig:
        from barnabas.controller.config import ControllerConfig

        config = ControllerConfig(
            listen_address=self._grpc("controller"),
            data_dir=str(self._data / "controller"),
            etcd_endpoints=self._options.etcd_endpoints,
            http_address=f"unix:{self._http('controller')}",
            log_level=self._log_level,
            movable_clock_file=self._movable_clock_file,
        )
        return self._overridden(config)

    def _broker_settings(self) -> Mapping[str, str]:
        """What a node's file says beside the node's own settings, and clients are shown; it is checked there."""
        return {**settings_of_up(self._options.nodes), **self._options.broker_settings}

    def _coordinator_config(self, name: str, coordinator_id: str = "") -> CoordinatorConfig:
        from barnabas.coordinator.config import CoordinatorConfig

        config = CoordinatorConfig(
            coordinator_id=coordinator_id or name,
            listen_address=self._grpc(name),
            controllers=self._controllers,
            http_address=f"unix:{self._http(name)}",
            log_level=self._log_level,
            movable_clock_file=self._movable_clock_file,
        )
        return self._overridden(config)

    def _gateway_config(self, name: str, number: int, gateway_id: str = "") -> GatewayConfig:
        from barnabas.gateway.config import GatewayConfig

        options = self._options
        config = GatewayConfig(
            gateway_id=gateway_id or name,
            broker_rack=self._options.rack_of(number),
            controllers=self._controllers,
            listeners=(f"PLAINTEXT://{bracketed(options.host)}:{options.port}",),
            advertise=options.advertise.value,
            ports_per_listener=len(options.kafka_ports),
            fault_injection_enable=options.fault_injection,
            fault_injection_file=str(faults_file(self._directory.sockets)) if options.fault_injection else "",
            http_address=f"unix:{self._http(name)}",
            log_level=self._log_level,
            movable_clock_file=self._movable_clock_file,
        )
        return self._overridden(config)

    def _overridden(self, config: ConfigT) -> ConfigT:
        """The config with what `up` and then `--override` set of it."""
        return with_settings(config, self._broker_settings())

    @property
    def _log_level(self) -> str:
        return self._options.log_level.value.upper()

    @property
    def _movable_clock_file(self) -> str:
        """Tests alone may move the clock."""
        return str(clock_file(self._directory).absolute()) if self._options.fault_injection else ""

    def _grpc(self, name: str) -> str:
        return f"unix:{self._directory.sockets / name}.grpc"

    def _http(self, name: str) -> Path:
        return self._directory.sockets / f"{name}.http"

    def _service(
        self,
        name: str,
        service: str,
        config: object,
        more: Mapping[str, str] = MappingProxyType({}),
        aliases: tuple[str, ...] = (),
    ) -> ServiceSpec:
        """The process, its file written; of two lines for one setting the later counts, which is that in `more`."""
        path = self._directory.run / f"{name}.properties"
        lines = "".join(f"{setting}={text}\n" for setting, text in more.items())
        path.write_text(to_properties(config) + lines, encoding="utf-8")
        arguments = ("--config", str(path.absolute()))
        package = PACKAGES.get(service, service)
        command = (sys.executable, "-m", f"barnabas.{package}", *arguments)
        return ServiceSpec(
            name, service, command, str(self._http(name)), arguments=arguments, aliases=aliases
        )
