#!/usr/bin/env bash
# Build what checks the chart: helm, kubeconform and pod-security into build/chart-checks/bin, and the schemas beside it.
#
# All of it comes from the Go module proxy and the Python package index, in the versions of go.mod, requirements.txt and
# schemas.py. What is there already and not older than these files stays.
set -euo pipefail
cd "$(dirname "$0")"

KUBERNETES="1.33 1.34 1.35 1.36 1.37" # of which the last three are maintained
GO_LEAST=26                           # go 1.26: what go.mod asks for
GO_FETCHED=1.26.8

root=$(cd ../.. && pwd)
target=$root/build/chart-checks
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3

# Sets `go` to one that is new enough: that of the machine, or one of its own making, which is a Go module too.
find_go() {
    go=$(command -v go) || { echo "go is missing: install it (Debian, Ubuntu: apt install golang-go)" >&2; exit 1; }
    local minor folder
    minor=$("$go" env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -lt "$GO_LEAST" ] || return 0
    echo "fetching Go $GO_FETCHED, as $("$go" version) is too old for helm"
    folder=$(cd / && "$go" mod download -json "golang.org/toolchain@v0.0.1-go$GO_FETCHED.$("$go" env GOOS)-$("$go" env GOARCH)" \
        | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    chmod +x "$folder"/bin/* "$folder"/pkg/tool/*/*
    go=$folder/bin/go
    export GOROOT=$folder
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
