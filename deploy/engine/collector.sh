#!/usr/bin/env bash
# Print the path of an OpenTelemetry Collector with the parts that deploy/observability/otel-collector.yaml names, built
# from Go modules (collector/) unless it is there: for tests, and for the image where none can be pulled.
set -euo pipefail
cd "$(dirname "$0")/../.."

source=deploy/engine/collector
digest=$(cat $source/go.mod $source/go.sum $source/main.go | sha256sum | cut -c 1-12)
program=$PWD/build/observability/collector-$digest
if [ ! -x "$program" ]; then
    deploy/setup/programs.sh go >&2
    go=$(deploy/setup/recent_go.sh)
    mkdir -p "$(dirname "$program")"
    # Without C it runs in an image that holds nothing else.
    (cd $source && CGO_ENABLED=0 "$go" build -mod=readonly -trimpath -ldflags="-s -w" -o "$program.$$" .) >&2
    mv "$program.$$" "$program"
fi
echo "$program"
