{{- define "ingress.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "ingress.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "ingress.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "ingress.selector" -}}
app.kubernetes.io/name: kubeloop-ingress
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ingress.labels" -}}
{{ include "ingress.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}
