{{/* The chart's own name. */}}
{{- define "barnabas.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What stands in front of every object's name; short enough for "-gateway-external" and a pod's suffix. */}}
{{- define "barnabas.fullname" -}}
{{- $name := include "barnabas.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select a component's pods; they never change. Takes (dict "root" $ "component" "storage"). */}}
{{- define "barnabas.selector" -}}
app.kubernetes.io/name: {{ include "barnabas.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* All labels of an object. Takes (dict "root" $ "component" "storage"). */}}
{{- define "barnabas.labels" -}}
{{ include "barnabas.selector" . }}
app.kubernetes.io/part-of: barnabas
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name, namespace and labels of an object. Takes (dict "root" $ "component" "storage" "suffix" "-storage"). */}}
{{- define "barnabas.metadata" -}}
name: {{ include "barnabas.fullname" .root }}{{ .suffix }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "barnabas.labels" . | nindent 2 }}
{{- end -}}

{{/* An image of ours: registry, repository, and digest or tag. Takes (dict "root" $ "image" .Values.gateway.image). */}}
{{- define "barnabas.image" -}}
{{- $repository := .image.repository -}}
{{- if .root.Values.image.registry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .root.Values.image.registry) $repository -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default (default .root.Chart.AppVersion .root.Values.image.tag) .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* An image of others, which has its registry in its name. */}}
{{- define "barnabas.imageOfOthers" -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag }}{{- end -}}
{{- end -}}

{{- define "barnabas.serviceAccountName" -}}
{{- if .root.Values.serviceAccount.create -}}
{{- printf "%s-%s" (include "barnabas.fullname" .root) .component -}}
{{- else -}}
{{- .root.Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}
