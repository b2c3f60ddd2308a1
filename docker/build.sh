#!/usr/bin/env bash
# Build the images: all of them, or those that are named.
#
#   build.sh [SERVICE...]    of: gateway storage broker controller coordinator canary barnabas pipelines
#
# Tags are barnabas/SERVICE:$BARNABAS_VERSION (the version of pyproject.toml if that is not set). pip's own settings in
# the environment (PIP_INDEX_URL, ...) are passed on, and BUILD_FLAGS to `docker build`.
set -euo pipefail
cd "$(dirname "$0")/.."

images=(gateway storage broker controller coordinator canary barnabas)
[ $# -eq 0 ] || images=("$@")
version=${BARNABAS_VERSION:-$(sed -nE 's/^version = "(.*)"/\1/p' pyproject.toml)}
revision=$(git rev-parse --short HEAD 2> /dev/null || echo unknown)

# What pip is told here it is told in the build; the files that these name are the builder's own.
arguments=()
for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST; do
    value=${!name:-$(python3 -m pip config get "global.$(tr A-Z_ a-z- <<< "${name#PIP_}")" 2> /dev/null || true)}
    [ -z "$value" ] || arguments+=(--build-arg "$name=$value")
done
mkdir -p build/images

for service in "${images[@]}"; do
    if [ "$service" = pipelines ] && command -v mvn > /dev/null; then # else the build fetches them itself
        deploy/jars/fetch.sh spark-kafka build/jars/spark-kafka
    fi
    # The builder's network: packages come through whatever this machine uses.
    # shellcheck disable=SC2086
    docker build --network=host -f docker/Dockerfile -t "barnabas/$service:$version" \
        --build-arg SERVICE="$service" --build-arg VERSION="$version" --build-arg REVISION="$revision" \
        "${arguments[@]}" ${BUILD_FLAGS:-} . > build/images/"$service".log 2>&1 \
        || { tail -n 20 build/images/"$service".log >&2; echo "build.sh: cannot build $service" >&2; exit 1; }
    echo "barnabas/$service:$version $(docker image inspect -f '{{.Size}}' "barnabas/$service:$version" \
        | awk '{printf "%.0f MB", $1 / 1e6}')"
done
