#!/usr/bin/env bash
# go_programs.sh MODULE [LDFLAGS]: print the folder with the programs of a Go module of ours (a folder of this tree), built
# from the modules that it names unless they are there: its own programs, or those that its go.mod calls tools.
set -euo pipefail
cd "$(dirname "$0")/../.."

module=$1
digest=$(find "$module" -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -c 1-12)
folder=$PWD/build/go/$(basename "$module")-$digest
if [ ! -d "$folder" ]; then
    deploy/setup/programs.sh go >&2
    go=$(deploy/setup/recent_go.sh)
    mkdir -p "$folder.$$"
    programs=./...
    ! grep -q ^tool "$module/go.mod" || programs=tool
    # Without C they run in an image that holds nothing else.
    (cd "$module" && CGO_ENABLED=0 "$go" build -mod=readonly -trimpath -ldflags="-s -w ${2:-}" -o "$folder.$$/" $programs) >&2
    mv "$folder.$$" "$folder"
fi
echo "$folder"
