#!/usr/bin/env bash
# Make sure that the outside programs that the tests and the demo use are there.
#
#   programs.sh PROGRAM...     of: etcd etcdctl go java javac kcat mvn node npm prometheus promtool
#
# What is missing is installed through apt where that needs no password; else one line says what to install.
set -euo pipefail
. "$(dirname "$0")/as_root.sh"

JAVA_LEAST=17 # for Spark 4 and Kafka 4's tools

has() {
    if [ "$1" = java ]; then
        [ "$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' || true)" -ge "$JAVA_LEAST" ] 2> /dev/null
    else
        command -v "$1" > /dev/null 2>&1
    fi
}

package_of() {
    case $1 in
        etcd) echo etcd-server ;;
        etcdctl) echo etcd-client ;;
        go) echo golang-go ;;
        java | javac) echo default-jdk-headless ;;
        mvn) echo maven ;;
        node) echo nodejs ;;
        promtool) echo prometheus ;;
        *) echo "$1" ;;
    esac
}

# Sets `missing` and the `packages` that have them.
look() {
    missing=() packages=()
    local program
    for program in "$@"; do
        if ! has "$program"; then
            missing+=("$program")
            packages+=("$(package_of "$program")")
        fi
    done
}

look "$@"
[ ${#missing[@]} -gt 0 ] || exit 0

# Some packages would also start a server for the whole machine; the tests start their own.
masked=()
if [ -d /run/systemd/system ]; then
    [[ " ${packages[*]} " != *" etcd-server "* ]] || masked+=(etcd.service)
    [[ " ${packages[*]} " != *" prometheus "* ]] || masked+=(prometheus.service prometheus-node-exporter.service)
fi
[ ${#masked[@]} -eq 0 ] || as_root systemctl mask --runtime "${masked[@]}" > /dev/null 2>&1 || masked=()
install_packages "${packages[@]}" || true
if [ ${#masked[@]} -gt 0 ]; then
    as_root systemctl unmask --runtime "${masked[@]}" > /dev/null 2>&1 || true
    as_root systemctl disable "${masked[@]}" > /dev/null 2>&1 || true
fi

look "$@"
if [ ${#missing[@]} -gt 0 ]; then
    echo "missing: ${missing[*]} (Java of $JAVA_LEAST or newer): install them (Debian, Ubuntu: apt install ${packages[*]}) and run this again" >&2
    exit 1
fi
