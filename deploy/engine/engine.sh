#!/usr/bin/env bash
# A Docker engine for the images, the compose file and their tests, where there is none; and the images that they
# start from, where no registry can be reached.
#
#   engine.sh start [IMAGE...]   make sure of an engine and of the base images, and of these that the compose file
#                                names: etcd redis prometheus collector grafana; prints the line to `eval`
#   engine.sh stop               end the engine that `start` started; what it stored stays
#   engine.sh status             which engine is used; fails when there is none
#
# An engine that answers (`docker info`, with DOCKER_HOST or without) is used as it is. Else, on Debian and Ubuntu as
# root, the distribution's own is installed and started with its state in BARNABAS_ENGINE_DIR. Root without `docker
# compose` gets it, and buildx, for all users: the distributions' Docker has neither (plugins.sh). An image that is there
# is used, one that can be pulled is pulled, and the rest are made: debian:bookworm-slim by debootstrap, the others from
# that and Debian's packages, the collector from its Go modules. Such an image has the programs and the user of the one
# it stands for, not its exact version.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/setup/as_root.sh

state=${BARNABAS_ENGINE_DIR:-/var/tmp/barnabas-engine}
own_host=unix://$state/docker.sock
usual_host=unix:///var/run/docker.sock
certificates=/etc/ssl/certs/ca-certificates.crt

say() { echo "engine: $*" >&2; }
fail() { say "$*"; exit 1; }
answers() { timeout 20 docker info > /dev/null 2>&1; }
own_answers() { DOCKER_HOST=$own_host answers; }
usual_answers() { DOCKER_HOST=$usual_host answers; }

# The image that the compose file names for a short name: one place decides.
name_of() { sed -nE "s,^ *image: *(([^ ]*/)?(opentelemetry-)?$1(-contrib)?:[^ ]+)$,\1,p" deploy/compose.yaml | head -n 1; }

packages_of() {
    case $1 in
        etcd) echo etcd-server etcd-client ;;
        redis) echo redis-server redis-tools ;;
        prometheus) echo prometheus ;;
        *) return 1 ;;
    esac
}

# Lines of a Dockerfile that make Debian's package look like the image that people publish.
finish_of() {
    case $1 in
        redis) echo 'RUN usermod -u 999 redis && groupmod -g 999 redis && install -d -o redis -g redis /data' \
            $'\nWORKDIR /data' ;;
        prometheus) echo 'RUN install -d -o nobody -g nogroup /prometheus && ln -s /usr/bin/prometheus /bin/prometheus' \
            $'|| true\nUSER nobody\nWORKDIR /prometheus\nENTRYPOINT ["/usr/bin/prometheus"]' ;;
    esac
}

install_engine() {
    command -v dockerd > /dev/null || install_packages docker.io >&2 \
        || fail "no container engine answers: install Docker and start it (Debian, Ubuntu: apt install docker.io)"
}

# `docker compose` where it can be had, else docker-compose of old.
make_sure_of_compose() {
    docker compose version > /dev/null 2>&1 && return
    if [ "$(id -u)" = 0 ] && deploy/engine/plugins.sh; then return; fi
    command -v docker-compose > /dev/null || install_packages docker-compose >&2 \
        || say "Compose is missing: install docker-compose-plugin (or docker-compose)"
}

start_engine() {
    [ "$(id -u)" = 0 ] || fail "no container engine answers, and only root can start one: start Docker, or be root"
    install_engine
    export DOCKER_HOST=$own_host
    started=yes
    if own_answers; then return; fi
    mkdir -p "$state"
    local flags=()
    # Without the kernel's tables ports are published all the same (by a proxy), but containers reach nothing outside.
    iptables -t nat -L -n > /dev/null 2>&1 || flags=(--iptables=false --ip6tables=false)
    # Where every tool looks for an engine first, unless somebody is there.
    usual_answers || flags+=(-H "$usual_host")
    # Killed engines leave these behind, and the next one would take them for its own.
    rm -f "$state/pid" "$state/exec/containerd/containerd.pid"
    setsid nohup dockerd "${flags[@]}" --data-root "$state/data" --exec-root "$state/exec" -H "$own_host" \
        -p "$state/pid" > "$state/log" 2>&1 < /dev/null &
    for _ in $(seq 120); do
        own_answers && return
        kill -0 $! 2> /dev/null || break
        sleep 0.5
    done
    tail -n 3 "$state/log" >&2
    fail "dockerd did not start: $state/log says why"
}

has() { docker image inspect "$1" > /dev/null 2>&1; }

# Whether this script's own engine is used.
started=
# Once a registry did not answer, nobody waits for it again.
registry=maybe
pull() {
    [ "$registry" != no ] || return 1
    if timeout "${BARNABAS_PULL_SECONDS:-120}" docker pull -q "$1" > /dev/null 2>&1; then return 0; fi
    registry=no
    return 1
}

make_debian() {
    command -v debootstrap > /dev/null || install_packages debootstrap >&2 || fail "cannot install debootstrap"
    [ "$(id -u)" = 0 ] || fail "no registry answers, and only root can make $1 with debootstrap"
    say "making $1 with debootstrap"
    mkdir -p "$state"
    local root=$state/rootfs
    rm -rf "$root"
    debootstrap --variant=minbase --include=ca-certificates bookworm "$root" > "$state/debootstrap.log" 2>&1 \
        || fail "debootstrap failed: $state/debootstrap.log says why"
    # What the published slim images leave out, now and whenever a package is installed.
    printf 'path-exclude /usr/share/%s/*\n' doc man info locale lintian > "$root/etc/dpkg/dpkg.cfg.d/slim"
    rm -rf "$root"/usr/share/{doc,man,info,locale,lintian}/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
    rm -rf "$root"/var/log/*.log
    # A build behind a proxy with a certificate of its own must trust that one too.
    cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2> /dev/null || true
    chroot "$root" update-ca-certificates > /dev/null 2>&1
    [ ! -f "$certificates" ] || cp -L "$certificates" "$root$certificates"
    tar -C "$root" -c . | docker import - "$1" > /dev/null
    rm -rf "$root"
}

# make_image NAME 'PACKAGES' 'LINES': Debian's packages as an image.
make_image() {
    say "making $1 from Debian's packages"
    mkdir -p "$state"
    docker build --network=host -q -t "$1" - > "$state/build.log" 2>&1 << END || fail "cannot make $1: $state/build.log"
FROM debian:bookworm-slim
RUN apt-get update -q && apt-get install -y -q --no-install-recommends $2 \\
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
$3
END
}

base_images() {
    local python=python:3.11-slim-bookworm
    if has $python || pull $python; then return; fi
    has debian:bookworm-slim || make_debian debian:bookworm-slim
    make_image $python 'python3 python3-venv python3-pip' \
        "RUN ln -sf python3 /usr/bin/python && rm -f /usr/lib/python3.11/EXTERNALLY-MANAGED"$'\n'"CMD [\"python3\"]"
}

# make_collector NAME: nothing but the program.
make_collector() {
    say "making $1 from Go modules"
    local program
    program=$(deploy/engine/collector.sh) || fail "cannot build the collector"
    docker build -q -t "$1" -f - "$(dirname "$program")" > "$state/build.log" 2>&1 << END \
        || fail "cannot make $1: $state/build.log says why"
FROM scratch
COPY $(basename "$program") /otelcol
USER 10001:10001
ENTRYPOINT ["/otelcol"]
END
}

# Other programs in containers: image of a short name that the compose file uses.
named_image() {
    local name
    name=$(name_of "$1")
    [ -n "$name" ] || fail "deploy/compose.yaml names no image of $1"
    if has "$name" || pull "$name"; then return; fi
    mkdir -p "$state"
    if [ "$1" = collector ]; then make_collector "$name"; return; fi
    if [ "$1" = grafana ]; then
        say "no registry answers, and Grafana cannot be made: start the rest with" \
            "-f deploy/compose.yaml -f deploy/engine/without-grafana.yaml"
        return
    fi
    packages_of "$1" > /dev/null || fail "$name: no registry answers, and Debian has no package for it"
    has debian:bookworm-slim || make_debian debian:bookworm-slim
    make_image "$name" "$(packages_of "$1")" "$(finish_of "$1")"
}

case ${1:-} in
    start)
        shift
        command -v docker > /dev/null && answers || start_engine
        make_sure_of_compose
        base_images
        for image in "$@"; do named_image "$image"; done
        if [ -n "$started" ] && ! usual_answers; then say "for a shell of your own: export DOCKER_HOST=$DOCKER_HOST"; fi
        [ -z "${DOCKER_HOST:-}" ] || echo "export DOCKER_HOST=$DOCKER_HOST"
        ;;
    stop)
        if [ -f "$state/pid" ]; then
            pid=$(cat "$state/pid")
            kill "$pid" 2> /dev/null || true
            for _ in $(seq 60); do kill -0 "$pid" 2> /dev/null || break; sleep 0.5; done
        fi
        ;;
    status)
        if command -v docker > /dev/null && answers; then
            echo "running: ${DOCKER_HOST:-the default engine}"
        elif command -v docker > /dev/null && own_answers; then
            echo "running: $own_host (export DOCKER_HOST=$own_host)"
        else
            echo "not running"
            exit 1
        fi
        ;;
    *)
        sed -n '2,9p' "$0" >&2
        exit 2
        ;;
esac
