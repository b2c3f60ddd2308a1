#!/usr/bin/env bash
# Print the path of a Go of 1.26 or newer: that of the machine, or one fetched from the Go module proxy, where Go's own
# releases are modules too.
set -euo pipefail

LEAST=26
FETCHED=1.26.8

go=$(command -v go) || { echo "go is missing: install it (Debian, Ubuntu: apt install golang-go)" >&2; exit 1; }
minor=$("$go" env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
if [ "${minor:-0}" -lt "$LEAST" ]; then
    echo "fetching Go $FETCHED, as $("$go" version) is too old" >&2
    module=golang.org/toolchain@v0.0.1-go$FETCHED.$("$go" env GOOS)-$("$go" env GOARCH)
    folder=$(cd / && "$go" mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    chmod +x "$folder"/bin/* "$folder"/pkg/tool/*/*
    go=$folder/bin/go
fi
echo "$go"
