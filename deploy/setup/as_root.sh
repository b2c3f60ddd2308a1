# To be sourced: Debian packages, where they can be had without asking anybody.

# Run a command as root; fails, having said nothing, when that needs a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        command -v sudo > /dev/null 2>&1 && sudo -n "$@" 2> /dev/null
    fi
}

# install_packages PACKAGE...: returns 1 when they cannot be installed (no apt, no root, unknown package).
install_packages() {
    command -v apt-get > /dev/null 2>&1 && as_root true || return 1
    local log
    log=$(mktemp)
    echo "installing Debian packages: $*"
    # A package source that cannot be reached need not be the one that has these packages.
    as_root apt-get update -q > "$log" 2>&1 < /dev/null || true
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" \
        >> "$log" 2>&1 < /dev/null; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}
