{{- define "tributary.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tributary.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tributary.metadata" -}}
name: {{ include "tributary.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "tributary.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tributary.dashboardMetadata" -}}
name: {{ include "tributary.name" . }}-dashboard
namespace: {{ .Release.Namespace }}
labels:
  {{- include "tributary.selector" . | nindent 2 }}
  {{- with .Values.dashboard.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "tributary.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "tributary.consoleSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-console
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tributary.consoleMetadata" -}}
name: {{ include "tributary.name" . }}-console
namespace: {{ .Release.Namespace }}
labels:
  {{- include "tributary.consoleSelector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tributary.receiveSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-receive
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tributary.receiveMetadata" -}}
name: {{ include "tributary.name" . }}-receive
namespace: {{ .Release.Namespace }}
labels:
  {{- include "tributary.receiveSelector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The variables of a user of the broker: inboxPrefix and secret. */ -}}
{{- define "tributary.user" -}}
{{- with .inboxPrefix }}
- { name: NATS_INBOX_PREFIX, value: {{ . | quote }} }
{{- end }}
{{- if .secret.name }}
{{- if .secret.creds }}
- { name: NATS_CREDS, value: /etc/nats/nats.creds }
{{- end }}
{{- if .secret.nkey }}
- { name: NATS_NKEY, value: /etc/nats/nkey.seed }
{{- end }}
{{- if .secret.ca }}
- { name: NATS_CA, value: /etc/nats/ca.crt }
{{- end }}
{{- if .secret.certificate }}
- { name: NATS_CERT, value: /etc/nats/tls.crt }
- { name: NATS_KEY, value: /etc/nats/tls.key }
{{- end }}
{{- end }}
{{- end }}
