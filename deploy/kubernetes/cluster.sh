#!/usr/bin/env bash
# A Kubernetes of one node on this machine, for tests: the real programs, as processes, and containerd.
#
#   cluster.sh start             begin with an empty cluster; prints the lines to `eval` (KUBECONFIG, PATH)
#   cluster.sh load IMAGE...     give it images of the container engine; etcd's is made where the engine has none
#   cluster.sh stop              end it, its pods, and what they stored; images stay
#   cluster.sh status            fails when there is none
#
# As root on Debian or Ubuntu. State and logs are in BARNABAS_KUBERNETES_DIR. Pods have addresses in 10.244.0.0/24,
# Services in 10.96.0.0/16; NodePorts are at localhost too. Volumes are folders of the machine, twenty of them.
# NetworkPolicies are enforced, by nftables.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/setup/as_root.sh

state=${BARNABAS_KUBERNETES_DIR:-/var/tmp/barnabas-kubernetes}
node=node-1
node_address=10.244.0.1
pods=10.244.0.0/24
services=10.96.0.0/16
disks=20
socket=$state/run/containerd.sock
export KUBECONFIG=$state/kubeconfig
# What a pod's containers share is held by a process that does nothing.
pause_image=barnabas/pause:1

say() { echo "kubernetes: $*" >&2; }
fail() { say "$*"; exit 1; }

make_sure_of_packages() {
    [ "$(id -u)" = 0 ] || fail "only root can start a Kubernetes of its own"
    local wanted=()
    command -v containerd > /dev/null || wanted+=(containerd)
    command -v conntrack > /dev/null || wanted+=(conntrack)
    command -v iptables > /dev/null || wanted+=(iptables)
    command -v openssl > /dev/null || wanted+=(openssl)
    command -v ip > /dev/null || wanted+=(iproute2)
    command -v nft > /dev/null || wanted+=(nftables)
    command -v python3 > /dev/null || wanted+=(python3)
    [ -x /usr/lib/cni/bridge ] || wanted+=(containernetworking-plugins)
    [ ${#wanted[@]} -eq 0 ] || install_packages "${wanted[@]}" >&2 \
        || fail "missing: ${wanted[*]} (Debian, Ubuntu: apt install ${wanted[*]})"
}

make_certificates() {
    local folder=$state/certificates
    mkdir -p "$folder"
    [ ! -f "$folder/done" ] || return 0
    (
        cd "$folder"
        exec 2> openssl.log
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 365 -subj /CN=barnabas-test
        issue() { # NAME SUBJECT EXTENSIONS
            openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2"
            openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -out "$1.crt" -days 365 \
                -extfile <(echo "$3")
        }
        issue server /CN=kube-apiserver \
            "subjectAltName=DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:10.96.0.1,IP:$node_address"
        issue admin /O=system:masters/CN=admin basicConstraints=CA:FALSE
        openssl genrsa -out accounts.key 2048
        openssl rsa -in accounts.key -pubout -out accounts.pub
    ) || fail "cannot make certificates: $folder/openssl.log says why"
    touch "$folder/done"
}

write_settings() {
    mkdir -p "$state"/{run,log,cni,disks,kubelet}
    cat > "$KUBECONFIG" << END
apiVersion: v1
kind: Config
clusters:
  - name: test
    cluster: {server: "https://127.0.0.1:16443", certificate-authority: $state/certificates/ca.crt}
users:
  - name: admin
    user: {client-certificate: $state/certificates/admin.crt, client-key: $state/certificates/admin.key}
contexts:
  - name: test
    context: {cluster: test, user: admin}
current-context: test
END
    cat > "$state/cni/10-bridge.conflist" << END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "barnabas0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$state/addresses", "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": "$pods", "rangeStart": "10.244.0.10"}]]}}]}
END
    # Where root may not lower a process' chance to be killed for memory, the least that is allowed will do.
    cat > "$state/containerd.toml" << END
version = 2
root = "$state/containerd"
state = "$state/run/containerd"
[grpc]
  address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/$pause_image"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/cni"
END
    cat > "$state/kubelet.yaml" << END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
address: $node_address
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: [$node_address]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$socket
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
podLogsDir: $state/pod-logs
END
    cat > "$state/Corefile" << END
.:53 {
  bind $node_address
  errors
  kubernetes cluster.local {
    kubeconfig $KUBECONFIG
    ttl 5
  }
}
END
}

# run NAME COMMAND...: in the background; its output in log/NAME.
run() {
    local name=$1
    shift
    setsid nohup "$@" > "$state/log/$name" 2>&1 < /dev/null &
    echo $! > "$state/run/$name.pid"
}

wait_for() { # WHAT COMMAND...
    local what=$1
    shift
    for _ in $(seq 240); do
        if "$@" > /dev/null 2>&1; then return; fi
        sleep 0.25
    done
    fail "$what did not come: $state/log says why"
}

start_control_plane() {
    local certificates=$state/certificates
    run etcd etcd --data-dir "$state/etcd" --listen-client-urls http://127.0.0.1:12379 \
        --advertise-client-urls http://127.0.0.1:12379 --listen-peer-urls http://127.0.0.1:12380 \
        --initial-advertise-peer-urls http://127.0.0.1:12380 --initial-cluster default=http://127.0.0.1:12380
    run kube-apiserver kube-apiserver --etcd-servers http://127.0.0.1:12379 --secure-port 16443 \
        --advertise-address "$node_address" --client-ca-file "$certificates/ca.crt" \
        --tls-cert-file "$certificates/server.crt" --tls-private-key-file "$certificates/server.key" \
        --service-account-key-file "$certificates/accounts.pub" \
        --service-account-signing-key-file "$certificates/accounts.key" \
        --service-account-issuer https://kubernetes.default.svc --service-cluster-ip-range "$services" \
        --kubelet-preferred-address-types InternalIP --authorization-mode RBAC --allow-privileged
    wait_for kube-apiserver kubectl get --raw /readyz
    run kube-controller-manager kube-controller-manager --kubeconfig "$KUBECONFIG" --leader-elect=false \
        --service-account-private-key-file "$certificates/accounts.key" --root-ca-file "$certificates/ca.crt"
    run kube-scheduler kube-scheduler --kubeconfig "$KUBECONFIG" --leader-elect=false
}

forward_pods() { # OPERATION
    iptables "$1" FORWARD -i barnabas0 -j ACCEPT && iptables "$1" FORWARD -o barnabas0 -j ACCEPT
}

start_node() {
    ip link show barnabas0 > /dev/null 2>&1 || ip link add barnabas0 type bridge
    ip addr replace "$node_address/24" dev barnabas0
    ip link set barnabas0 up
    echo 1 > /proc/sys/net/ipv4/ip_forward
    # Packets from pod to pod pass the rules for Services and NetworkPolicies too.
    modprobe br_netfilter 2> /dev/null || true
    echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
    # Where Docker ran, whatever nobody accepts is dropped.
    forward_pods -C 2> /dev/null || forward_pods -A
    run kubelet kubelet --kubeconfig "$KUBECONFIG" --config "$state/kubelet.yaml" --root-dir "$state/kubelet" \
        --hostname-override $node --node-ip "$node_address" --node-labels topology.kubernetes.io/zone=zone-a
    run kube-proxy kube-proxy --kubeconfig "$KUBECONFIG" --hostname-override $node --proxy-mode iptables \
        --cluster-cidr "$pods"
    run dns dns -conf "$state/Corefile"
    run network-policies python3 deploy/kubernetes/network_policies.py "$node_address"
    wait_for "a node that is ready" kubectl wait --for=condition=Ready node/$node --timeout=1s
}

make_volumes() {
    local number
    {
        cat << END
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
END
        for number in $(seq $disks); do
            mkdir -p "$state/disks/$number"
            cat << END
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk-$number}
spec:
  capacity: {storage: 1Ti}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: local
  local: {path: $state/disks/$number}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [$node]}]
END
        done
    } | kubectl apply -f - > /dev/null
}

start() {
    make_sure_of_packages
    local programs
    programs=$(deploy/kubernetes/programs.sh)
    stop
    # What was begun and did not come to its end is ended.
    trap '[ $? = 0 ] || stop' EXIT
    mkdir -p "$state"
    ln -sfn "$programs" "$state/programs"
    make_certificates
    write_settings
    run containerd containerd --config "$state/containerd.toml"
    wait_for containerd ctr -a "$socket" version
    start_control_plane
    start_node
    make_volumes
    echo "export KUBECONFIG=$KUBECONFIG PATH=$programs:\$PATH"
}

# make_image NAME PROGRAM: an image of nothing but one of our programs, unless the engine has it.
make_image() {
    docker image inspect "$1" > /dev/null 2>&1 && return
    local folder
    folder=$(mktemp -d)
    cp "$state/programs/$2" "$folder"
    printf 'FROM scratch\nCOPY %s /bin/\nENV PATH=/bin\nCMD ["%s"]\n' "$2" "$2" > "$folder/Dockerfile"
    docker build -q -t "$1" "$folder" > /dev/null 2> "$state/log/build" || fail "cannot make $1: $state/log/build says why"
    rm -r "$folder"
}

load() {
    local image
    make_image $pause_image pause
    for image in "$@"; do
        case $image in */etcd:*) make_image "$image" etcd ;; esac
    done
    docker save $pause_image "$@" | ctr -a "$socket" -n k8s.io images import - > /dev/null
}

end() { # NAME
    local file=$state/run/$1.pid pid
    [ -f "$file" ] || return 0
    pid=$(cat "$file")
    kill "$pid" 2> /dev/null || true
    for _ in $(seq 40); do kill -0 "$pid" 2> /dev/null || break; sleep 0.25; done
    kill -9 "$pid" 2> /dev/null || true
    rm -f "$file"
}

# What kube-proxy does not clean up: the kubelet's own.
forget_the_kubelets_chains() {
    local table chain
    for table in filter nat mangle; do
        for chain in KUBE-FIREWALL KUBE-KUBELET-CANARY KUBE-IPTABLES-HINT; do
            iptables -t $table -D INPUT -j $chain 2> /dev/null || true
            iptables -t $table -D OUTPUT -j $chain 2> /dev/null || true
            iptables -t $table -F $chain 2> /dev/null || true
            iptables -t $table -X $chain 2> /dev/null || true
        done
    done
}

stop() {
    local name task
    # Nobody starts again what is ended next.
    for name in kubelet kube-controller-manager kube-scheduler network-policies; do end $name; done
    if [ -S "$socket" ]; then
        for task in $(timeout 20 ctr -a "$socket" -n k8s.io task ls -q 2> /dev/null); do
            ctr -a "$socket" -n k8s.io task rm -f "$task" > /dev/null 2>&1 || true
            ctr -a "$socket" -n k8s.io container rm "$task" > /dev/null 2>&1 || true
        done
    fi
    for name in kube-proxy dns kube-apiserver etcd containerd; do end $name; done
    awk -v below="$state/" 'index($2, below) == 1 {print $2}' /proc/mounts | sort -r | xargs -r umount
    if ip link show barnabas0 > /dev/null 2>&1; then
        kube-proxy --cleanup > /dev/null 2>&1 || true
        forget_the_kubelets_chains
        forward_pods -D 2> /dev/null || true
        ip link del barnabas0
    fi
    nft delete table inet network_policies 2> /dev/null || true
    rm -rf "$state"/{run,etcd,kubelet,disks,addresses,cni,pod-logs}
    # The kubelet's links to them are always there.
    [ ! -d /var/log/containers ] || find /var/log/containers -lname "$state/*" -delete
}

# Where the programs were when it started: to stop it nothing is built.
PATH=$state/programs:$PATH
case ${1:-} in
    start) start ;;
    load) shift; load "$@" ;;
    stop) stop ;;
    status) kubectl get nodes 2> /dev/null || fail "not running" ;;
    *) sed -n '2,11p' "$0" >&2; exit 2 ;;
esac
