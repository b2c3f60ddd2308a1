#!/usr/bin/env bash
# Print the path of an OpenTelemetry Collector with the parts that deploy/observability/otel-collector.yaml names, built
# from Go modules (collector/) unless it is there: for tests, and for the image where none can be pulled.
set -euo pipefail
cd "$(dirname "$0")/../.."

echo "$(deploy/setup/go_programs.sh deploy/engine/collector)/collector"
