{{/* The pod's security: the restricted profile. */}}
{{- define "barnabas.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
fsGroupChangePolicy: OnRootMismatch
{{- with .Values.podSecurityContext }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "barnabas.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/*
What the pods of all components have alike. Takes (dict "root" $ "component" "storage" "revisions" true), where
`revisions` is for Deployments: their pods are spread among those of the same revision.
*/}}
{{- define "barnabas.pod" -}}
{{- $values := get .root.Values .component -}}
serviceAccountName: {{ include "barnabas.serviceAccountName" . }}
automountServiceAccountToken: false
# Without this, a Service named barnabas-... would be told in variables that look like settings.
enableServiceLinks: false
securityContext:
  {{- include "barnabas.podSecurity" .root | nindent 2 }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.affinity }}
affinity:
  {{- toYaml $values.affinity | nindent 2 }}
{{- else if eq ($values.podAntiAffinity | default "off") "hard" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "barnabas.selector" . | nindent 12 }}
        {{- if .revisions }}
        # Else a new pod could find no node while the old ones are on all of them.
        matchLabelKeys: [pod-template-hash]
        {{- end }}
{{- else if eq ($values.podAntiAffinity | default "off") "soft" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "barnabas.selector" . | nindent 14 }}
          {{- if .revisions }}
          matchLabelKeys: [pod-template-hash]
          {{- end }}
{{- end }}
{{- if ne ($values.zoneSpread | default "off") "off" }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: {{ $values.zoneSpread }}
    labelSelector:
      matchLabels:
        {{- include "barnabas.selector" . | nindent 8 }}
    {{- if .revisions }}
    matchLabelKeys: [pod-template-hash]
    {{- end }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a component's pods. Takes (dict "root" $ "component" "storage" "config" true). */}}
{{- define "barnabas.podMetadata" -}}
{{- $values := get .root.Values .component -}}
labels:
  {{- /* Without the chart's version, so that a new chart alone restarts nothing. */}}
  {{- include "barnabas.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: barnabas
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := merge (dict) $values.podAnnotations .root.Values.podAnnotations -}}
{{- if .config -}}
{{- $file := fromYaml (include (print .root.Template.BasePath "/" .component "/config.yaml") .root) -}}
{{- $annotations = set $annotations "checksum/config" ($file.data | toJson | sha256sum) -}}
{{- end -}}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The variables of every service. Addresses are here and not in the file, because the images set some, and variables win. */}}
{{- define "barnabas.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: BARNABAS_HTTP_ADDRESS
  value: "{{ include "barnabas.anyAddress" . }}:{{ include "barnabas.httpPort" . }}"
- name: BARNABAS_LOG_LEVEL
  value: {{ .Values.log.level }}
- name: BARNABAS_LOG_FORMAT
  value: {{ .Values.log.format }}
{{- with .Values.tracing.otlpEndpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ $.Release.Namespace }},k8s.pod.name=$(POD_NAME)
{{- end }}
{{- end -}}

{{/* The variables of those that others reach over gRPC. */}}
{{- define "barnabas.grpcEnv" -}}
- name: BARNABAS_LISTEN_ADDRESS
  value: "{{ include "barnabas.anyAddress" . }}:{{ include "barnabas.grpcPort" . }}"
{{- end -}}

{{- define "barnabas.rackEnv" -}}
{{- if .Values.rack.enabled -}}
- name: BARNABAS_BROKER_RACK
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['{{ .Values.rack.podLabel }}']
{{- end }}
{{- end -}}

{{- define "barnabas.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: http}
  {{- toYaml .startup | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  {{- toYaml .liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  {{- toYaml .readiness | nindent 2 }}
{{- end -}}

{{/* What of the file system a service sees: its settings, a place for temporary files, secrets. */}}
{{- define "barnabas.volumeMounts" -}}
- name: config
  mountPath: /etc/barnabas/config
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if .root.Values.internalTls.existingSecret }}
- name: internal-tls
  mountPath: /etc/barnabas/internal-tls
  readOnly: true
{{- end }}
{{- if eq .component (include "barnabas.frontComponent" .root) }}
{{- if .root.Values.tls.existingSecret }}
- name: tls
  mountPath: /etc/barnabas/tls
  readOnly: true
{{- end }}
{{- if .root.Values.sasl.existingSecret }}
- name: sasl
  mountPath: /etc/barnabas/sasl
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{- define "barnabas.volumes" -}}
- name: config
  configMap:
    name: {{ include "barnabas.fullname" .root }}-{{ .component }}
- name: tmp
  emptyDir:
    sizeLimit: 256Mi
{{- with .root.Values.internalTls.existingSecret }}
- name: internal-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if eq .component (include "barnabas.frontComponent" .root) }}
{{- with .root.Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .root.Values.sasl.existingSecret }}
- name: sasl
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end -}}

{{/* A claim of a StatefulSet. Takes (dict "name" "data" "persistence" .Values.etcd.persistence "labels" the selector's). */}}
{{- define "barnabas.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: {{ .name }}
    labels:
      {{- .labels | nindent 6 }}
    {{- with .persistence.annotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .persistence.storageClassName }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests:
        storage: {{ .persistence.size }}
{{- end -}}

{{/* A PodDisruptionBudget. Takes (dict "root" $ "component" "storage"). A pod that is not healthy may always go. */}}
{{- define "barnabas.podDisruptionBudget" -}}
{{- $budget := (get .root.Values .component).podDisruptionBudget -}}
{{- if $budget.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "barnabas.metadata" (dict "root" .root "component" .component "suffix" (printf "-%s" .component)) | nindent 2 }}
spec:
  maxUnavailable: {{ include "barnabas.scalar" $budget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "barnabas.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/*
A headless Service with gRPC and HTTP. Takes (dict "root" $ "component" "storage" "suffix" "-storage" "grpc" true
"early" true), where `early` also names pods that are not ready: those that start must find each other. It leads to the pods
of the component, or of that in `of`; `clients` names the ports for clients inside too; `unscraped` keeps it from Prometheus where another Service leads to the same pods.
*/}}
{{- define "barnabas.headlessService" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "barnabas.metadata" . | nindent 2 }}
    {{- if not .unscraped }}
    barnabas/scrape: "true"
    {{- end }}
spec:
  clusterIP: None
  publishNotReadyAddresses: {{ .early }}
  ipFamilies: [{{ .root.Values.ipFamily }}]
  selector:
    {{- include "barnabas.selector" (dict "root" .root "component" (.of | default .component)) | nindent 4 }}
  ports:
    {{- if .grpc }}
    - name: grpc
      port: {{ include "barnabas.grpcPort" .root }}
      targetPort: grpc
    {{- end }}
    - name: http
      port: {{ include "barnabas.httpPort" .root }}
      targetPort: http
    {{- if .clients }}
    {{- range $position := until (int (include "barnabas.clientPorts" .root)) }}
    - name: internal-{{ $position }}
      port: {{ add (include "barnabas.internalPort" $.root) $position }}
      targetPort: internal-{{ $position }}
    {{- end }}
    {{- end }}
    {{- if .direct }}
    - name: direct-0
      port: {{ include "barnabas.directPort" .root }}
      targetPort: direct-0
    {{- end }}
{{- end -}}
