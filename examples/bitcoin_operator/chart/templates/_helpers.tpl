{{- define "operator.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "operator.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "operator.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "operator.selector" -}}
app.kubernetes.io/name: bitcoin-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}
