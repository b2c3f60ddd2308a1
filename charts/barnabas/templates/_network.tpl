{{/* Egress that every pod needs: names. The port alone, because clusters run DNS in different places. */}}
{{- define "barnabas.dnsEgress" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end -}}

{{/* A peer: the pods of a component of this release. */}}
{{- define "barnabas.peer" -}}
- podSelector:
    matchLabels:
      {{- include "barnabas.selector" . | nindent 6 }}
{{- end -}}

{{/* An egress rule to a component's gRPC port. */}}
{{- define "barnabas.grpcEgress" -}}
- to:
    {{- include "barnabas.peer" . | nindent 4 }}
  ports:
    - {protocol: TCP, port: {{ include "barnabas.grpcPort" .root }}}
{{- end -}}

{{/* An ingress rule to the gRPC port. Takes (dict "root" $ "from" (list "gateway" "coordinator")). */}}
{{- define "barnabas.grpcIngress" -}}
- from:
    {{- range .from }}
    {{- include "barnabas.peer" (dict "root" $.root "component" .) | nindent 4 }}
    {{- end }}
  ports:
    - {protocol: TCP, port: {{ include "barnabas.grpcPort" .root }}}
{{- end -}}

{{/* Ingress to the port of metrics and health. Takes (dict "root" $ "port" 8080). */}}
{{- define "barnabas.metricsIngress" -}}
- ports:
    - {protocol: TCP, port: {{ .port }}}
  {{- with .root.Values.networkPolicy.metricsFrom }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The client ports of one listener of the gateways, as one range. */}}
{{- define "barnabas.clientPortRange" -}}
{{- $count := int (include "barnabas.clientPorts" .root) -}}
{protocol: TCP, port: {{ .first }}{{ if gt $count 1 }}, endPort: {{ add .first (sub $count 1) }}{{ end }}}
{{- end -}}

{{/* Ingress of clients to gateways, or to the gateways in brokers. */}}
{{- define "barnabas.clientIngress" -}}
- ports:
    - {{ include "barnabas.clientPortRange" (dict "root" . "first" (include "barnabas.internalPort" .)) }}
    {{- if ne .Values.gateway.external.type "None" }}
    - {{ include "barnabas.clientPortRange" (dict "root" . "first" (include "barnabas.externalPort" .)) }}
    {{- end }}
  {{- with .Values.networkPolicy.clientsFrom }}
  from:
    {{- toYaml . | nindent 4 }}
    # The test and the canary are clients too.
    {{- include "barnabas.peer" (dict "root" $ "component" "test") | nindent 4 }}
    {{- include "barnabas.peer" (dict "root" $ "component" "canary") | nindent 4 }}
  {{- end }}
{{- if .Values.canary.enabled }}
- from:
    {{- include "barnabas.peer" (dict "root" . "component" "canary") | nindent 4 }}
  ports:
    - {{ include "barnabas.clientPortRange" (dict "root" . "first" (include "barnabas.directPort" .)) }}
{{- end }}
{{- end -}}

{{/* Egress of gateways to Redis. */}}
{{- define "barnabas.redisEgress" -}}
{{- if .Values.redis.enabled }}
- to:
    {{- include "barnabas.peer" (dict "root" . "component" "redis") | nindent 4 }}
  ports:
    - {protocol: TCP, port: 6379}
{{- else if .Values.redis.address }}
- ports:
    - {protocol: TCP, port: {{ regexFind "[0-9]+$" .Values.redis.address }}}
{{- end }}
{{- end -}}

{{/* What the values allow besides, and the collector of traces. */}}
{{- define "barnabas.moreEgress" -}}
{{- with .Values.tracing.otlpEndpoint }}
- ports:
    - {protocol: TCP, port: {{ regexFind "[0-9]+$" (trimSuffix "/" .) | default "4317" }}}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The head of a NetworkPolicy. Takes (dict "root" $ "component" "storage"). */}}
{{- define "barnabas.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "barnabas.metadata" (dict "root" .root "component" .component "suffix" (printf "-%s" .component)) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "barnabas.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end -}}
