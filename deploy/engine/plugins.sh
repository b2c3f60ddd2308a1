#!/usr/bin/env bash
# Install what current Docker has and Debian's has not: the docker command's plugins Compose and buildx (BuildKit), for
# all users of this machine, built from Go modules (plugins/). What is there already stays.
set -euo pipefail
cd "$(dirname "$0")/../.."

module=deploy/engine/plugins
folder=/usr/local/lib/docker/cli-plugins

version_of() { sed -nE "s,^\s*$1 (v[^ ]+).*,\1,p" $module/go.mod; }

# install_plugin NAME PROGRAM: nothing where the docker command knows the plugin.
install_plugin() {
    docker "$1" version > /dev/null 2>&1 && return
    local compose=github.com/docker/compose/v5 buildx=github.com/docker/buildx programs
    programs=$(deploy/setup/go_programs.sh $module "-X $compose/internal.Version=$(version_of $compose) \
        -X $buildx/version.Version=$(version_of $buildx)")
    install -D "$programs/$2" "$folder/docker-$1"
}

[ "$(id -u)" = 0 ] || { echo "plugins.sh: only root installs plugins for everyone" >&2; exit 1; }
install_plugin compose cmd
install_plugin buildx buildx
