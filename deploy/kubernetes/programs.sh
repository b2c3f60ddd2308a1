#!/usr/bin/env bash
# Print the folder of Kubernetes' programs, of CoreDNS and of etcd, built from Go modules (programs/) unless they are
# there.
set -euo pipefail
cd "$(dirname "$0")/../.."

source=deploy/kubernetes/programs
digest=$(cat $source/go.mod $source/go.sum $source/*/main.go | sha256sum | cut -c 1-12)
folder=$PWD/build/kubernetes/$digest
if [ ! -d "$folder" ]; then
    deploy/setup/programs.sh go >&2
    go=$(deploy/setup/recent_go.sh)
    version=$(sed -nE 's/^\tk8s.io\/kubernetes (v[0-9.]+)$/\1/p' $source/go.mod)
    echo "building Kubernetes $version (some minutes)" >&2
    mkdir -p "$folder.$$"
    (cd $source && CGO_ENABLED=0 "$go" build -mod=readonly -trimpath -o "$folder.$$/" \
        -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version" ./...) >&2
    for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
        ln -s kubernetes "$folder.$$/$name"
    done
    mv "$folder.$$" "$folder"
fi
echo "$folder"
