{{- define "remote-gpu.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "remote-gpu.image" -}}
{{ .Values.image.repository }}:{{ include "remote-gpu.tag" . }}
{{- end }}

{{/* Labels of what belongs to the part: the dict has "root" and "part". */}}
{{- define "remote-gpu.selector" -}}
app.kubernetes.io/name: remote-gpu
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "remote-gpu.labels" -}}
{{ include "remote-gpu.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "remote-gpu.name" -}}
{{ printf "%s-%s" .root.Release.Name .part | trunc 63 | trimSuffix "-" }}
{{- end }}
