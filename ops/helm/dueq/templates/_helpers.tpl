{{/* With a worker's name, at most 63 characters. A release may have dots and begin with a digit, a Service may not. */}}
{{- define "dueq.fullname" -}}
{{- $name := .Release.Name | replace "." "-" }}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- if regexMatch "^[0-9]" $name }}{{ $name = printf "%s-%s" .Chart.Name $name }}{{ end }}
{{- $name | trunc 36 | trimAll "-" }}
{{- end }}

{{- define "dueq.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What selects pods: `component` is serve or a worker's. */}}
{{- define "dueq.selector" -}}
app.kubernetes.io/name: dueq
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end }}

{{- define "dueq.labels" -}}
{{ include "dueq.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* With labels of the user, none of which replaces one of the chart. */}}
{{- define "dueq.labelsAnd" -}}
{{ merge (include "dueq.labels" . | fromYaml) .more | toJson }}
{{- end }}

{{/* A server has one URL: other hosts in a request are refused, except the address of the pod. */}}
{{- define "dueq.publicUrl" -}}
{{- if .Values.serve.publicUrl }}{{ .Values.serve.publicUrl | trimSuffix "/" }}
{{- else if .Values.ingress.enabled }}{{ printf "%s://%s" (ternary "https" "http" (ne .Values.ingress.tlsSecret "")) .Values.ingress.host }}
{{- else }}{{ printf "http://%s-serve.%s.svc:%v" (include "dueq.fullname" .) .Release.Namespace .Values.serve.port }}
{{- end }}
{{- end }}

{{/* Kubernetes replaces $(NAME) in arguments, and $$ by $. */}}
{{- define "dueq.args" -}}
{{ range . }}
- {{ . | toString | replace "$" "$$" | toJson }}
{{- end }}
{{- end }}

{{/* Pod security "restricted", and a grace that is longer than that of the program. */}}
{{- define "dueq.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .graceSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "dueq.selector" . | nindent 8 }}
{{- end }}

{{- define "dueq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "dueq.redisEnv" -}}
- name: REDIS_URL
{{- with .Values.redis }}
{{- if .urlSecret.name }}
  valueFrom: {secretKeyRef: {name: {{ .urlSecret.name | quote }}, key: {{ .urlSecret.key | quote }}}}
{{- else }}
  value: {{ .url | quote }}
{{- end }}
{{- if .passwordSecret.name }}
- {name: DUEQ_REDIS_PASSWORD_FILE, value: {{ printf "/etc/dueq/password/%s" .passwordSecret.key | quote }}}
{{- end }}
{{- if .tlsSecret.name }}
{{- range $variable, $key := dict "DUEQ_CACERT" .tlsSecret.ca "DUEQ_CERT" .tlsSecret.cert "DUEQ_KEY" .tlsSecret.key }}
{{- if $key }}
- {name: {{ $variable }}, value: {{ printf "/etc/dueq/tls/%s" $key | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The ports of the URL, and those of servers that it does not name. In a password an @ need not be encoded. */}}
{{- define "dueq.redisPorts" -}}
{{- $ports := list }}
{{- $unnamed := .Values.networkPolicy.redisPorts }}
{{- $url := .Values.redis.url }}
{{- $isSentinel := contains "+sentinel://" $url }}
{{- if .Values.redis.urlSecret.name }}
{{- $unnamed = $unnamed | default (list 6379) }}
{{- else }}
{{- range regexReplaceAll "^[^:]+://([^?]*@)?([^/?#]*).*$" $url "${2}" | splitList "," }}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default (ternary 26379 6379 $isSentinel) | int) }}
{{- end }}
{{- if $isSentinel }}{{ $unnamed = $unnamed | default (list 6379) }}{{ end }}
{{- end }}
{{- range $unnamed }}{{ $ports = append $ports (int .) }}{{ end }}
{{- range uniq $ports }}
- {port: {{ . }}}
{{- end }}
{{- end }}

{{/* The secrets that are mounted, by their folder below /etc/dueq. */}}
{{- define "dueq.secrets" -}}
{{- $secrets := dict }}
{{- with .root.Values.redis.passwordSecret.name }}{{ $_ := set $secrets "password" . }}{{ end }}
{{- with .root.Values.redis.tlsSecret.name }}{{ $_ := set $secrets "tls" . }}{{ end }}
{{- range $folder, $name := .more }}{{ if $name }}{{ $_ := set $secrets $folder $name }}{{ end }}{{ end }}
{{- toJson $secrets }}
{{- end }}

{{- define "dueq.mounts" -}}
{{- range $folder, $_ := include "dueq.secrets" . | fromJson }}
- {name: {{ $folder }}, mountPath: /etc/dueq/{{ $folder }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "dueq.volumes" -}}
{{- range $folder, $name := include "dueq.secrets" . | fromJson }}
- name: {{ $folder }}
  secret: {secretName: {{ $name | quote }}, defaultMode: 0440}
{{- end }}
{{- end }}
