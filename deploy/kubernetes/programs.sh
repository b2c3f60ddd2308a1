#!/usr/bin/env bash
# Print the folder of Kubernetes' programs, of CoreDNS and of etcd, built from Go modules (programs/) unless they are
# there: some minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$(sed -nE 's/^\tk8s.io\/kubernetes (v[0-9.]+)$/\1/p' deploy/kubernetes/programs/go.mod)
folder=$(deploy/setup/go_programs.sh deploy/kubernetes/programs "-X k8s.io/component-base/version.gitVersion=$version")
for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
    ln -sf kubernetes "$folder/$name"
done
echo "$folder"
