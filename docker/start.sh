#!/bin/sh
# What a container of ours runs: exec, so that signals reach the service itself.
set -eu
if [ "$SERVICE" = barnabas ]; then
    # Without arguments a cluster for clients on the machine that publishes the port; with some, the command line.
    [ $# -gt 0 ] || set -- up --host 0.0.0.0 --port "${KAFKA_PORT:-9092}" --data-dir /var/lib/barnabas/data \
        --override "advertised.listeners=PLAINTEXT://${KAFKA_HOST:-localhost}:${KAFKA_PORT:-9092}"
    exec tini -- barnabas "$@"
fi
# A container is reached from outside it or not at all. Each service takes what it knows of these.
export BARNABAS_HTTP_ADDRESS="${BARNABAS_HTTP_ADDRESS:-0.0.0.0:8080}"
export BARNABAS_LISTEN_ADDRESS="${BARNABAS_LISTEN_ADDRESS:-0.0.0.0:19090}"
export BARNABAS_LOG_FORMAT="${BARNABAS_LOG_FORMAT:-json}"
# A broker hosts a gateway, a storage node and, with coordinator.id, a coordinator.
[ "$SERVICE" = broker ] && package=host || package=$SERVICE
exec python -m "barnabas.$package" "$@"
