#!/usr/bin/env bash
# Make the virtual environment DIR with a Python of 3.11 or newer.
#
#   venv.sh DIR
#
# Looks for python3 first, then python3.14 down to python3.11 on PATH. Debian ships venv apart from Python: it is
# installed through apt where that needs no password. Does nothing when DIR already has a Python that works.
set -euo pipefail
. "$(dirname "$0")/as_root.sh"

venv=$1

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1
}

if [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version > /dev/null 2>&1; then
    exit 0
fi

python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if new_enough "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "Barnabas needs Python 3.11 or newer (found: $(python3 --version 2> /dev/null || echo none)): install one and run this again" >&2
    exit 1
fi

if ! "$python" -c 'import ensurepip, venv' > /dev/null 2>&1; then
    package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
    install_packages "$package" || {
        echo "$python has no venv: install the package $package (Debian, Ubuntu: apt install $package) and run this again" >&2
        exit 1
    }
fi

rm -rf "$venv"
"$python" -m venv "$venv"
