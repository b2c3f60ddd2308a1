{{/* One value of a properties file. Helm reads whole numbers as floats, which must not be written as 1e+08. */}}
{{- define "barnabas.scalar" -}}
{{- if kindIs "slice" . -}}
{{- $parts := list -}}
{{- range . -}}{{- $parts = append $parts (include "barnabas.scalar" .) -}}{{- end -}}
{{- join "," $parts -}}
{{- else if and (kindIs "float64" .) (eq (float64 (int64 .)) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* The text of a properties file. Takes (dict "own" what the chart sets "user" what the values say); the user's wins. */}}
{{- define "barnabas.properties" -}}
{{- $settings := merge (dict) .user .own -}}
{{- range $name := keys $settings | sortAlpha }}
{{ $name }}={{ include "barnabas.scalar" (get $settings $name) }}
{{- end -}}
{{- end -}}

{{/*
The ConfigMap with a service's file. Takes (dict "root" $ "component" "storage" "own" (dict ...) "user" (dict ...)), where
`user` is the component's own `config` unless it is given.
*/}}
{{- define "barnabas.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "barnabas.metadata" (dict "root" .root "component" .component "suffix" (printf "-%s" .component)) | nindent 2 }}
data:
  {{ .component }}.properties: |
    # Settings of the {{ .component }} service; the pod's BARNABAS_* variables win over them.
    {{- include "barnabas.properties" (dict "own" .own "user" (.user | default (get .root.Values .component).config)) | trim | nindent 4 }}
{{- end -}}

{{/*
What new topics get where there are nodes enough, as JSON: the controllers do it, storage nodes show it to clients. Fewer
nodes than three cannot take a write while one is away and have what was acknowledged twice.
*/}}
{{- define "barnabas.replicated" -}}
{{- ternary (dict "default.replication.factor" 3) dict (ge (int .Values.storage.replicas) 3) | toJson -}}
{{- end -}}
