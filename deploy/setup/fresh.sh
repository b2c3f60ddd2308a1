#!/usr/bin/env bash
# Run README's two commands on a bare Debian that is made for it: Python and make, and nothing else. What the set-up
# forgets fails here, and not on somebody's new machine.
#
#   fresh.sh [PYTEST-ARGUMENT...]     as root; the arguments go to `make test` and shorten it
#
# The Debian is a folder made by debootstrap, entered with mounts and processes of its own, all of which are gone
# afterwards. The network is this machine's. The tree is that of git's HEAD. This machine's settings for package registries
# (apt, pip, npm, Maven, Go, Cargo; proxies and certificates) are handed in: files as they are, variables by their names.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/setup/as_root.sh

RUN_SECONDS=900   # for the installing and the start of `make run`
STOP_SECONDS=60

SETTINGS=(
    /etc/apt /etc/pip.conf /etc/npmrc /usr/local/etc/npmrc /usr/local/share/ca-certificates /etc/hosts /etc/resolv.conf
    "$HOME/.config/pip" "$HOME/.pip" "$HOME/.npmrc" "$HOME/.m2/settings.xml" "$HOME/.m2/settings-security.xml"
    "$HOME/.config/go" "$HOME/.cargo/config.toml"
)
VARIABLES='^(PIP_|npm_config_|NPM_CONFIG_|MAVEN_|CARGO_REGISTR|GO(PROXY|SUMDB|NOSUMDB|NOPROXY|PRIVATE|INSECURE|FLAGS|VCS)=)'
VARIABLES+='|^[A-Za-z]*_(proxy|PROXY)=|^(SSL_CERT_(FILE|DIR)|[A-Z_]*CA_BUNDLE|NODE_EXTRA_CA_CERTS|JAVA_TOOL_OPTIONS)='

say() { echo "fresh: $*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || fail "only root can make a Debian and enter it"
command -v debootstrap > /dev/null || install_packages debootstrap >&2 || fail "cannot install debootstrap"
unshare --mount --pid --fork true 2> /dev/null || fail "mounts and processes of one's own are not allowed here"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/barnabas-fresh.XXXXXX")
root=$work/root
inside=
# --kill-child ends all that runs inside, and the mounts end with the last of them; unshare itself hears no other signal.
clean_up() {
    [ -z "$inside" ] || { kill -KILL "$inside" 2> /dev/null && wait "$inside"; } || true
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

make_debian() {
    local mirror
    # The first archive that this machine's own apt names; debootstrap knows one otherwise.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2> /dev/null | head -n 1 || true)
    say "making a Debian"
    # shellcheck disable=SC2086
    debootstrap --variant=minbase --include=ca-certificates,python3,make bookworm "$root" $mirror \
        > "$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log" >&2; fail "debootstrap failed"; }
}

# hand_in PATH: a file or a folder goes to the same place, root's home included.
hand_in() {
    [ -e "$1" ] || return 0
    local target=$root${1/#"$HOME"/\/root}
    mkdir -p "$(dirname "$target")"
    rm -rf "$target"
    cp -rL "$1" "$target"
}

hand_in_settings() {
    local path
    for path in "${SETTINGS[@]}"; do hand_in "$path"; done
    chroot "$root" update-ca-certificates > /dev/null 2>&1
    # A folder of wheels is no registry, and is not there.
    mapfile -d '' -t handed < <(env -0 | grep -zE "$VARIABLES" | grep -zv '^PIP_FIND_LINKS=' || true)
    # A variable that names a file, such as one of certificates, is of no use without it.
    for path in "${handed[@]#*=}"; do
        [[ $path != /* || ! -f $path || -e $root$path ]] || hand_in "$path"
    done
}

# enter COMMAND...: in the Debian, with the handed variables and no others. Its folder is the root of its mounts: tests make
# disks in namespaces of their own, which the kernel allows to nobody whose root is another.
enter() {
    unshare --mount --pid --fork --kill-child --propagation private -- bash -c '
        root=$1
        shift
        set -e
        mount --bind "$root" "$root"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        mount -t proc proc "$root/proc"
        cd "$root"
        pivot_root . .
        umount -l .
        exec env -i "$@"' enter \
        "$root" HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        "${handed[@]}" "$@" < /dev/null &
    inside=$!
    local status=0
    wait "$inside" || status=$?
    inside=
    return $status
}

free_ports() {
    python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(sock.getsockname()[1] for sock in sockets))'
}

# Runs in the Debian: a cluster that takes a record and gives it back, ended as by Ctrl-C.
try_make_run() {
    local deadline=$((SECONDS + RUN_SECONDS)) log=/tmp/run.log got
    set -m # a process group of its own, for Ctrl-C
    make run ARGS="--port $1 --http-port $2" > "$log" 2>&1 &
    until grep -q 'is ready' "$log"; do
        if ! kill -0 $! 2> /dev/null || [ $SECONDS -gt $deadline ]; then
            tail -n 20 "$log" >&2
            return 1
        fi
        sleep 0.5
    done
    cat "$log"
    echo 'k1:hello' | .venv/bin/barnabas produce greetings -b "localhost:$1" -K :
    got=$(.venv/bin/barnabas consume greetings -b "localhost:$1" -K : -e -q)
    [ "$got" = k1:hello ] || { echo "produced k1:hello, consumed $got" >&2; return 1; }
    kill -INT -- "-$!"
    deadline=$((SECONDS + STOP_SECONDS))
    while kill -0 $! 2> /dev/null; do
        [ $SECONDS -le $deadline ] || { echo "make run did not end by Ctrl-C" >&2; return 1; }
        sleep 0.1
    done
}

started=$SECONDS
make_debian
handed=()
hand_in_settings
git -c safe.directory='*' clone -q --no-hardlinks . "$root/barnabas"
git -c safe.directory='*' diff --quiet HEAD || say "changes that are not committed are not in it"
say "a Debian with $(chroot "$root" python3 --version) and make, after $((SECONDS - started)) s"

read -r port http_port < <(free_ports)
script="set -euo pipefail; cd /barnabas; RUN_SECONDS=$RUN_SECONDS; STOP_SECONDS=$STOP_SECONDS; $(declare -f try_make_run)"
say "make run"
enter bash -c "$script; try_make_run $port $http_port" || fail "make run failed"
say "make run: a record went in and came out, after $((SECONDS - started)) s"

arguments=
[ $# -eq 0 ] || arguments=$(printf '%q ' "$@")
say "make test${arguments:+ ARGS=\"$arguments\"}"
enter bash -c 'cd /barnabas && exec make test ARGS="$1"' make-test "$arguments" || fail "make test failed"
say "both commands passed, after $((SECONDS - started)) s"
