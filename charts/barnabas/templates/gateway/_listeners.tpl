{{/* What gateways are told of their listeners, by setting: JSON of a dict. Brokers' own addresses are in their variables. */}}
{{- define "barnabas.listeners" -}}
{{- $any := include "barnabas.anyAddress" . -}}
{{- $listeners := list (printf "INTERNAL://%s:%s" $any (include "barnabas.internalPort" .)) -}}
{{- $external := .Values.gateway.external -}}
{{- if ne $external.type "None" -}}
{{- $listeners = append $listeners (printf "EXTERNAL://%s:%s" $any (include "barnabas.externalPort" .)) -}}
{{- end -}}
{{- if .Values.canary.enabled -}}
{{- /* Not advertised at another address: who comes here by a pod's address stays with that pod. */ -}}
{{- $listeners = append $listeners (printf "DIRECT://%s:%s" $any (include "barnabas.directPort" .)) -}}
{{- end -}}
{{- dict
    "listeners" $listeners
    "advertise" .Values.gateway.advertise
    "ports.per.listener" (include "barnabas.clientPorts" .) | toJson -}}
{{- end -}}

{{/* What clients are told of the listeners. Takes (dict "root" $ "internal" where clients inside are sent, host:port). */}}
{{- define "barnabas.advertisedListeners" -}}
{{- $external := .root.Values.gateway.external -}}
INTERNAL://{{ .internal }}
{{- if ne $external.type "None" -}}
{{- $host := $external.host -}}
{{- if contains ":" $host -}}{{- $host = printf "[%s]" $host -}}{{- end -}}
,EXTERNAL://{{ $host }}:{{ include "barnabas.externalAdvertisedPort" .root }}
{{- end -}}
{{- end -}}

{{/* The client ports of a gateway's or broker's container. */}}
{{- define "barnabas.clientContainerPorts" -}}
{{- range $position := until (int (include "barnabas.clientPorts" .)) }}
- name: internal-{{ $position }}
  containerPort: {{ add (include "barnabas.internalPort" $) $position }}
{{- if ne $.Values.gateway.external.type "None" }}
- name: external-{{ $position }}
  containerPort: {{ add (include "barnabas.externalPort" $) $position }}
{{- end }}
{{- if $.Values.canary.enabled }}
- name: direct-{{ $position }}
  containerPort: {{ add (include "barnabas.directPort" $) $position }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The variables of a gateway, or of the one in a broker. */}}
{{- define "barnabas.gatewayEnv" -}}
- name: BARNABAS_GATEWAY_ID
  value: $(POD_NAME)
{{- with include "barnabas.redisAddress" . }}
- name: BARNABAS_REDIS_ADDRESS # no gateway reads it yet
  value: {{ . }}
{{- end }}
{{- end -}}

{{/* Connections go on coming until every node knows that a pod is on its way out. */}}
{{- define "barnabas.drain" -}}
lifecycle:
  preStop:
    sleep: {seconds: {{ .Values.gateway.drainSeconds }}}
{{- end -}}
