#!/usr/bin/env bash
# Build what checks the chart: helm, kubeconform and pod-security into build/chart-checks/bin, and the schemas beside it.
#
# All of it comes from the Go module proxy and the Python package index, in the versions of go.mod, requirements.txt and
# schemas.py. What is there already and not older than these files stays.
set -euo pipefail
cd "$(dirname "$0")"

KUBERNETES="1.33 1.34 1.35 1.36 1.37" # of which the last three are maintained

root=$(cd ../.. && pwd)
target=$root/build/chart-checks
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3

find_go() { # sets `go`
    go=$("$root"/deploy/setup/recent_go.sh)
    export GOROOT
    GOROOT=$("$go" env GOROOT)
}

# newer STAMP FILE...: whether the stamp is there and no file was changed after it.
newer() { [ -e "$1" ] && [ -z "$(find "${@:2}" -newer "$1" -print -quit)" ]; }

export GOTOOLCHAIN=local CGO_ENABLED=0
mkdir -p "$target/bin"
if ! newer "$target/bin/built" install.sh main.go go.mod go.sum; then
    find_go
    # Programs that run for a second at a time need no optimiser, which takes a third of the time.
    "$go" build -buildvcs=false -gcflags='all=-N -l' -ldflags='-s -w' -o "$target/bin/" tool .
    mv -f "$target/bin/chart-checks" "$target/bin/pod-security"
    touch "$target/bin/built"
fi
if ! newer "$target/schemas/written" install.sh schemas.py requirements.txt; then
    [ -n "${go:-}" ] || find_go
    # shellcheck disable=SC2086
    PATH=$(dirname "$go"):$PATH "$python" schemas.py "$target/schemas" $KUBERNETES
    touch "$target/schemas/written"
fi
