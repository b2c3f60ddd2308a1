#!/bin/sh
# Fetch the jars that deploy/jars/NAME/pom.xml lists into OUTDIR, with the machine's own Maven.
#
#   fetch.sh NAME OUTDIR     NAME is a folder beside this file
#
# Does nothing when OUTDIR already holds what NAME lists (a stamp keeps the checksum of its files). The new
# jars are complete in a folder beside OUTDIR before they replace it, so an interrupted run leaves no half set.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 NAME OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
name=$1
out=$2
pom=$here/$name/pom.xml
if [ ! -f "$pom" ]; then
    echo "fetch.sh: no $name here; there are: $(cd "$here" && ls -d */ | tr -d '/' | tr '\n' ' ')" >&2
    exit 2
fi

want=$(find "$here/$name" -type f | sort | xargs -d '\n' cat | cksum)
if [ -f "$out/.checksum" ] && [ "$(cat "$out/.checksum")" = "$want" ]; then
    exit 0
fi
for tool in java mvn; do
    if ! command -v "$tool" > /dev/null 2>&1; then
        echo "fetch.sh: $tool is missing: install Java 17 (or newer) and Maven, then run this again" >&2
        exit 1
    fi
done

mkdir -p "$(dirname "$out")"
new=$(cd "$(dirname "$out")" && pwd)/.$(basename "$out").new.$$
trap 'rm -rf "$new"' EXIT INT TERM
mkdir "$new"
echo "fetching jars: $name"
if ! mvn -q -B -f "$pom" dependency:copy-dependencies -DincludeScope=runtime \
    "-DoutputDirectory=$new" > "$new/mvn.log" 2>&1; then
    grep -m 3 ERROR "$new/mvn.log" >&2 || cat "$new/mvn.log" >&2
    echo "fetch.sh: Maven could not fetch $name: see the lines above" >&2
    exit 1
fi
rm -f "$new/mvn.log"
printf '%s\n' "$want" > "$new/.checksum"
rm -rf "$out"
mv "$new" "$out"
