{{- define "volmedic.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The labels that select a pod. They never change. Takes a list: the root, the component. */}}
{{- define "volmedic.selector" -}}
app.kubernetes.io/name: volmedic
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "volmedic.labels" -}}
{{- $root := index . 0 -}}
{{ include "volmedic.selector" . }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/*
The objects of a file that is also shipped on its own, put into the release's namespace.
  root, file, component
  skip:     objects that are left out, as Kind/name
  without:  rules that are left out, as resource:verb
  accounts: subjects that are renamed
  resourceNames: what stands in the place of the names of resources, as a map from the resource to a list
  namespace, account, suffix: for an account elsewhere, and what is added to the names of what is granted to it
*/}}
{{- define "volmedic.objects" -}}
{{- $namespace := .namespace | default .root.Release.Namespace -}}
{{- $labels := include "volmedic.labels" (list .root .component) | fromYaml -}}
{{- range $text := splitList "\n---\n" (.root.Files.Get .file) }}
{{- $object := fromYaml $text }}
{{- if not (has (printf "%s/%s" $object.kind $object.metadata.name) ($.skip | default list)) }}
{{- $_ := set $object.metadata "labels" $labels }}
{{- if has $object.kind (list "ServiceAccount" "Role" "RoleBinding") }}
{{- $_ := set $object.metadata "namespace" $namespace }}
{{- end }}
{{- if $object.rules }}
{{- $kept := list }}
{{- range $rule := $object.rules }}
{{- if not (has (printf "%s:%s" (join "," $rule.resources) (join "," $rule.verbs)) ($.without | default list)) }}
{{- range $resource := $rule.resources }}
{{- with get ($.resourceNames | default dict) $resource }}
{{- $_ := set $rule "resourceNames" . }}
{{- end }}
{{- end }}
{{- $kept = append $kept $rule }}
{{- end }}
{{- end }}
{{- $_ := set $object "rules" $kept }}
{{- end }}
{{- range $subject := $object.subjects }}
{{- $_ := set $subject "namespace" $namespace }}
{{- $_ := set $subject "name" ($.account | default (get ($.accounts | default dict) $subject.name) | default $subject.name) }}
{{- end }}
{{- if $.suffix }}
{{- $_ := set $object.metadata "name" (printf "%s-%s" $object.metadata.name $.suffix) }}
{{- if $object.roleRef }}
{{- $_ := set $object.roleRef "name" (printf "%s-%s" $object.roleRef.name $.suffix) }}
{{- end }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end -}}

{{/* The level `restricted` of the Pod Security Standards. */}}
{{- define "volmedic.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The security context of the hub's container, with the values merged over it. */}}
{{- define "volmedic.hubSecurity" -}}
{{- mergeOverwrite (include "volmedic.restricted" . | fromYaml) (deepCopy (.Values.hub.securityContext | default dict)) | toYaml -}}
{{- end -}}

{{/* The same of the agent's container. The SecurityContextConstraints are made from it too. */}}
{{- define "volmedic.agentSecurity" -}}
{{- mergeOverwrite (include "volmedic.agentNeeds" . | fromYaml) (deepCopy (.Values.agent.securityContext | default dict)) | toYaml -}}
{{- end -}}

{{- define "volmedic.agentNeeds" -}}
readOnlyRootFilesystem: true
runAsUser: 0
{{- if .Values.agent.privileged }}
privileged: true
{{- else }}
allowPrivilegeEscalation: false
seccompProfile: {type: RuntimeDefault}
capabilities:
  drop: [ALL]
  add:
    - DAC_OVERRIDE    # drivers' sockets, FUSE connections
    - DAC_READ_SEARCH # volumes that belong to others
    {{- if .Values.agent.sysAdmin }}
    - SYS_ADMIN       # to receive file-system errors from the kernel
    {{- end }}
{{- end }}
{{- end -}}

{{/* The kubelet does not verify certificates. */}}
{{- define "volmedic.probeScheme" -}}
{{- if .Values.metrics.auth.enabled }}, scheme: HTTPS{{ end -}}
{{- end -}}

{{/*
How a monitor reads metrics that need a token. The certificates are self-signed, so the token has no right but this one. A
PodMonitor cannot use the token of Prometheus itself.
*/}}
{{- define "volmedic.scrape" -}}
{{- if .Values.metrics.auth.enabled }}
scheme: https
tlsConfig: {insecureSkipVerify: true}
authorization:
  credentials: {name: volmedic-metrics-reader, key: token}
{{- end -}}
{{- end -}}

{{- define "volmedic.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: metrics{{ include "volmedic.probeScheme" . }}}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics{{ include "volmedic.probeScheme" . }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{/* The pod's own name and namespace. */}}
{{- define "volmedic.whoami" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- end -}}

{{/*
A certificate for one name, signed by an authority whose key is discarded. An existing certificate is kept, so that an
upgrade changes nothing. `helm template` cannot read the cluster and always creates a new one.
  root, name, component, host
*/}}
{{- define "volmedic.certificate" -}}
{{- $there := lookup "v1" "Secret" .root.Release.Namespace .name -}}
{{- $data := dict -}}
{{- if $there.data -}}
{{- $data = $there.data -}}
{{- else -}}
{{- $authority := genCA (printf "%s authority" .name) 3650 -}}
{{- $made := genSignedCert .host nil (list .host) 3650 $authority -}}
{{- $data = dict "tls.crt" ($made.Cert | b64enc) "tls.key" ($made.Key | b64enc) "ca.crt" ($authority.Cert | b64enc) -}}
{{- end -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "volmedic.labels" (list .root .component) | nindent 4 }}
type: kubernetes.io/tls
data: {{- toYaml $data | nindent 2 }}
{{- end -}}

{{/* The known values of a driver, overridden by the given ones. Takes a list: the root, the entry. */}}
{{- define "volmedic.driver" -}}
{{- $root := index . 0 -}}
{{- $entry := index . 1 -}}
{{- $known := $root.Files.Get "files/drivers.yaml" | fromYaml -}}
{{- $driver := merge (deepCopy $entry) (get $known $entry.driver | default dict) -}}
{{- range $field := list "csiDriver" "namespace" "workload" "serviceAccount" "socketVolume" "socket" -}}
{{- if not (get $driver $field) -}}
{{- fail (printf "controllers: %s is not in files/drivers.yaml, so %s must be given" $entry.driver $field) -}}
{{- end -}}
{{- end -}}
{{ toYaml $driver }}
{{- end -}}

{{/* The container beside a driver's controller plugin. Takes a list: the root, the driver. */}}
{{- define "volmedic.controllerSidecar" -}}
{{- $root := index . 0 -}}
{{- $driver := index . 1 -}}
{{- $values := $root.Values.controller -}}
name: volmedic
image: {{ include "volmedic.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
args:
  - controller
  - --csi-address=/run/csi/{{ $driver.socket }}
  - --leader-election
  - --http-endpoint=:{{ $values.httpPort }}
  {{- if $root.Values.metrics.auth.enabled }}
  - --metrics-auth
  {{- end }}
  - --log-level={{ $root.Values.log.level }}
  - --log-format={{ $root.Values.log.format }}
  - --monitor-interval={{ $values.monitorInterval }}
  - --list-volumes-interval={{ $values.listVolumesInterval }}
  {{- if $values.nodeWatcher }}
  - --enable-node-watcher
  {{- end }}
  {{- with $values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env: {{- include "volmedic.whoami" $root | nindent 2 }}
ports:
  - {name: volmedic, containerPort: {{ $values.httpPort }}}
# No readiness probe: the driver is ready even if this sidecar is not.
livenessProbe:
  httpGet: {path: /healthz/leader-election, port: volmedic{{ include "volmedic.probeScheme" $root }}}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 6
resources: {{- toYaml $values.resources | nindent 2 }}
# Runs as the pod's user, who owns the socket.
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: {{ $driver.socketVolume }}, mountPath: /run/csi}
{{- end -}}
