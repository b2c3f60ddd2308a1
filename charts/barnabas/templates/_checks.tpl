{{/* What no schema can say: values that contradict one another. NOTES.txt includes it, so each command runs it once. */}}
{{- define "barnabas.check" -}}
{{- /* Not `kubeVersion` in Chart.yaml: a Helm 3 that its user built, asked for a template, knows of 1.20 alone. */ -}}
{{- $kubernetes := .Capabilities.KubeVersion.Version -}}
{{- if and (semverCompare "<1.30.0-0" $kubernetes) (ne $kubernetes "v1.20.0") -}}
{{- fail (printf "Kubernetes %s is too old: upgrade it to 1.30 or newer, which gateways need to stop without losing clients" $kubernetes) -}}
{{- end -}}
{{- $external := .Values.gateway.external -}}
{{- if and (ne $external.type "None") (not $external.host) -}}
{{- fail (printf "gateway.external.host is empty: with gateway.external.type=%s, set it to the one host name or address that clients outside connect to; they are told it by the gateways" $external.type) -}}
{{- end -}}
{{- if and (eq $external.type "NodePort") (gt (add (int $external.nodePort) (int (include "barnabas.clientPorts" .))) 32768) -}}
{{- fail (printf "gateway.external.nodePort=%d: a port for each of %d storage nodes goes over 32767; take a lower one, or gateway.advertise=one" (int $external.nodePort) (int .Values.storage.replicas)) -}}
{{- end -}}
{{- if and (eq .Values.controller.store "embedded") (ne (int .Values.controller.replicas) 1) -}}
{{- fail (printf "controller.replicas=%d: controller.store=embedded is a file of one controller; set controller.replicas to 1, or controller.store to etcd" (int .Values.controller.replicas)) -}}
{{- end -}}
{{- if and (eq .Values.controller.store "embedded") .Values.etcd.enabled -}}
{{- fail "etcd.enabled=true: with controller.store=embedded nothing uses etcd; set etcd.enabled to false" -}}
{{- end -}}
{{- if and (eq .Values.controller.store "etcd") (not .Values.etcd.enabled) (not .Values.etcd.endpoints) -}}
{{- fail "etcd.endpoints is empty: name your etcd's addresses (host:port), or set etcd.enabled to true, or controller.store to embedded" -}}
{{- end -}}
{{- if and .Values.etcd.enabled .Values.etcd.endpoints -}}
{{- fail "etcd.endpoints is set although etcd.enabled=true makes an etcd of its own: choose one of them" -}}
{{- end -}}
{{- if and .Values.redis.enabled .Values.redis.address -}}
{{- fail "redis.address is set although redis.enabled=true makes a Redis of its own: choose one of them" -}}
{{- end -}}
{{- $scaling := .Values.gateway.autoscaling -}}
{{- if and $scaling.enabled .Values.broker.enabled -}}
{{- fail "gateway.autoscaling.enabled=true: with broker.enabled=true there are as many gateways as brokers (storage.replicas); set gateway.autoscaling.enabled to false" -}}
{{- end -}}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- fail (printf "gateway.autoscaling.minReplicas=%d is above maxReplicas=%d" (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- if and $scaling.enabled (not (dig "requests" "cpu" "" .Values.gateway.resources)) -}}
{{- fail "gateway.resources.requests.cpu is not set: gateway.autoscaling measures against it" -}}
{{- end -}}
{{- end -}}
