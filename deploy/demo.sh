#!/usr/bin/env bash
# Run the demo against the cluster at localhost:9092, or, where none answers, against one of its own that is gone
# afterwards. Arguments go to `python -m barnabas.pipelines demo`; with --bootstrap among them, that cluster it is.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH

if [[ " $* " == *" --bootstrap"* ]]; then
    exec python -m barnabas.pipelines demo "$@"
fi
if (exec 3<> /dev/tcp/127.0.0.1/9092) 2> /dev/null; then
    echo "using the cluster at localhost:9092"
    exec python -m barnabas.pipelines demo --bootstrap localhost:9092 "$@"
fi

data=$(mktemp -d)
cluster=
finish() {
    [ -z "$cluster" ] || { kill "$cluster" 2> /dev/null && wait "$cluster"; } || true
    rm -rf "$data"
}
trap finish EXIT
trap 'exit 130' INT TERM

read -r port http_port < <(python - << 'END'
import socket

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(sock.getsockname()[1] for sock in sockets))
END
)
barnabas up --port "$port" --http-port "$http_port" --data-dir "$data" > "$data/up.log" &
cluster=$!
until grep -q 'is ready' "$data/up.log"; do
    kill -0 "$cluster" 2> /dev/null || exit 1 # its own line on stderr said why
    sleep 0.1
done
cat "$data/up.log"
python -m barnabas.pipelines demo --bootstrap "localhost:$port" "$@"
