{{/* Ports of our containers: the same in every service, as in the images. */}}
{{- define "barnabas.httpPort" -}}8080{{- end -}}
{{- define "barnabas.grpcPort" -}}19090{{- end -}}

{{/* Where a service listens at for all its addresses. */}}
{{- define "barnabas.anyAddress" -}}
{{- if eq .Values.ipFamily "IPv6" -}}[::]{{- else -}}0.0.0.0{{- end -}}
{{- end -}}

{{/* The pod's own address, of its environment. */}}
{{- define "barnabas.podAddress" -}}
{{- if eq .Values.ipFamily "IPv6" -}}[$(POD_IP)]{{- else -}}$(POD_IP){{- end -}}
{{- end -}}

{{/* The DNS name of a Service of ours. Takes (dict "root" $ "suffix" "-gateway"). */}}
{{- define "barnabas.host" -}}
{{ include "barnabas.fullname" .root }}{{ .suffix }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end -}}

{{/* The gRPC addresses of all controllers. Each is named: a standby sends others on to the active one. */}}
{{- define "barnabas.controllers" -}}
{{- $host := include "barnabas.host" (dict "root" . "suffix" "-controller") -}}
{{- $addresses := list -}}
{{- range $ordinal := until (int .Values.controller.replicas) -}}
{{- $addresses = append $addresses (printf "%s-controller-%d.%s:%s" (include "barnabas.fullname" $) $ordinal $host (include "barnabas.grpcPort" $)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* etcd's client addresses: of our own members, or those that were given. */}}
{{- define "barnabas.etcdEndpoints" -}}
{{- if .Values.etcd.enabled -}}
{{- $host := include "barnabas.host" (dict "root" . "suffix" "-etcd") -}}
{{- $addresses := list -}}
{{- range $ordinal := until (int .Values.etcd.replicas) -}}
{{- $addresses = append $addresses (printf "%s-etcd-%d.%s:2379" (include "barnabas.fullname" $) $ordinal $host) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- else -}}
{{- join "," .Values.etcd.endpoints -}}
{{- end -}}
{{- end -}}

{{/* The component whose pods clients connect to: brokers are storage nodes that are gateways too. */}}
{{- define "barnabas.frontComponent" -}}
{{- if .Values.broker.enabled -}}storage{{- else -}}gateway{{- end -}}
{{- end -}}

{{/* How many ports a listener of the gateways has: one for each storage node, or one. */}}
{{- define "barnabas.clientPorts" -}}
{{- if eq .Values.gateway.advertise "port" -}}{{ int .Values.storage.replicas }}{{- else -}}1{{- end -}}
{{- end -}}

{{/* The listeners' first ports in a gateway's container: far enough apart for a port per node. */}}
{{- define "barnabas.internalPort" -}}9092{{- end -}}
{{- define "barnabas.externalPort" -}}10092{{- end -}}
{{- define "barnabas.directPort" -}}11092{{- end -}}

{{/* The first port that clients outside are told. */}}
{{- define "barnabas.externalAdvertisedPort" -}}
{{- if eq .Values.gateway.external.type "NodePort" -}}{{ int .Values.gateway.external.nodePort }}{{- else -}}{{ int .Values.gateway.external.port }}{{- end -}}
{{- end -}}

{{/* Where in-cluster clients start. */}}
{{- define "barnabas.bootstrap" -}}
{{ include "barnabas.host" (dict "root" . "suffix" "-gateway") }}:{{ int .Values.gateway.port }}
{{- end -}}

{{/*
Where clients inside are sent for a broker: in `port` mode the pod's own name, so that who asks the leader of a partition
comes to its own process; the port is counted up from here by the broker's place.
*/}}
{{- define "barnabas.brokerAddress" -}}
{{- if eq .Values.gateway.advertise "port" -}}
$(POD_NAME).{{ include "barnabas.host" (dict "root" . "suffix" "-storage") }}:{{ include "barnabas.internalPort" . }}
{{- else -}}
{{ include "barnabas.bootstrap" . }}
{{- end -}}
{{- end -}}

{{- define "barnabas.redisAddress" -}}
{{- if .Values.redis.enabled -}}
{{ include "barnabas.host" (dict "root" . "suffix" "-redis") }}:6379
{{- else -}}
{{- .Values.redis.address -}}
{{- end -}}
{{- end -}}
