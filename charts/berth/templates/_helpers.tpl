{{/* The prefix of all names. It does not depend on the release: scripts and role bindings refer to these names. */}}
{{- define "berth.fullname" -}}
{{- default (default "kueue" .Values.nameOverride) .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "berth.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "berth.selector" -}}
app.kubernetes.io/name: kueue
control-plane: controller-manager
{{- end }}

{{/* Removes keys without a value from a dict and those in it. The manager reads them as absent. */}}
{{- define "berth.prune" -}}
{{- $dict := . }}
{{- range $key, $value := $dict }}
{{- if kindIs "invalid" $value }}{{ $_ := unset $dict $key }}
{{- else if kindIs "map" $value }}{{ include "berth.prune" $value }}{{ end }}
{{- end }}
{{- end }}

{{/* The text of one document of the configuration file: (list . "config.kueue.x-k8s.io"). Empty if there is none of this group. */}}
{{- define "berth.document" -}}
{{- range splitList "\n---" (index . 0).Values.managerConfig.controllerManagerConfigYaml }}
{{- $document := fromYaml . }}
{{- if hasKey $document "Error" }}{{ fail (printf "managerConfig.controllerManagerConfigYaml: %s" $document.Error) }}{{ end }}
{{- if hasPrefix (printf "%s/" (index $ 1)) (get $document "apiVersion" | toString) }}{{ . }}{{ break }}{{ end }}
{{- end }}
{{- end }}

{{/* The document of the manager in its configuration file, parsed, with the settings of JobSet's and the Trainer's documents for this chart. */}}
{{- define "berth.config" -}}
{{- $c := include "berth.document" (list . "config.kueue.x-k8s.io") | fromYaml }}
{{- if not $c }}{{ fail "managerConfig.controllerManagerConfigYaml: has no document of config.kueue.x-k8s.io" }}{{ end }}
{{- $jobSets := include "berth.document" (list . "config.jobset.x-k8s.io") | fromYaml }}
{{- $training := include "berth.document" (list . "config.trainer.kubeflow.org") | fromYaml }}
{{- range list $c $jobSets $training }}{{ include "berth.prune" . }}{{ end }}
{{- $internal := not .Values.enableCertManager }}
{{- if hasKey $c "internalCertManagement" }}{{ $internal = dig "enable" true $c.internalCertManagement }}{{ end }}
{{- if eq $internal .Values.enableCertManager }}
{{- fail "managerConfig.controllerManagerConfigYaml: internalCertManagement.enable and the value enableCertManager contradict each other: leave the former out" }}
{{- end }}
{{- with get $jobSets "leaderElection" }}{{ $_ := set $c "jobSet" (dict "leaderElection" .) }}{{ end }}
{{- if and (hasKey $training "statusServer") (not (hasKey (get $c "trainer" | default dict) "statusServer")) }}
{{- $_ := set $c "trainer" (pick $training "statusServer") }}
{{- end }}
{{- $_ := set $c "featureGates" (get $c "featureGates" | default dict) }}
{{- range $name, $on := get $training "featureGates" | default dict }}
{{- if not (hasKey $c.featureGates $name) }}{{ $_ := set $c.featureGates $name $on }}{{ end }}
{{- end }}
{{- toYaml $c }}
{{- end }}

{{/* The configuration file. Its document of the manager agrees with enableCertManager. */}}
{{- define "berth.configFile" -}}
{{- $text := .Values.managerConfig.controllerManagerConfigYaml }}
{{- if not (hasKey (include "berth.config" . | fromYaml) "internalCertManagement") }}
{{- $certs := dict "enable" (not .Values.enableCertManager) }}
{{- if not .Values.enableCertManager }}
{{- $certs = merge $certs (dict "webhookServiceName" (include "berth.webhookService" .) "webhookSecretName" (include "berth.webhookSecret" .)) }}
{{- end }}
{{- $own := include "berth.document" (list . "config.kueue.x-k8s.io") }}
{{- $rest := regexReplaceAll "(?m)^internalCertManagement:.*$" $own "" | trimSuffix "\n" }}
{{- $text = replace $own (printf "%s\n%s" $rest (dict "internalCertManagement" $certs | toYaml)) $text }}
{{- end }}
{{- trim $text }}
{{- end }}

{{- define "berth.webhookService" -}}
{{- $own := printf "%s-webhook-service" (include "berth.fullname" .) }}
{{- dig "internalCertManagement" "webhookServiceName" $own (include "berth.config" . | fromYaml) }}
{{- end }}

{{- define "berth.webhookSecret" -}}
{{- $own := printf "%s-webhook-server-cert" (include "berth.fullname" .) }}
{{- dig "internalCertManagement" "webhookSecretName" $own (include "berth.config" . | fromYaml) }}
{{- end }}

{{/* The port of a listener: (list . "webhook"), "metrics", "visibility" or "health". Empty if it is off. */}}
{{- define "berth.port" -}}
{{- $c := include "berth.config" (index . 0) | fromYaml }}
{{- $address := "" }}
{{- if eq (index . 1) "webhook" }}{{ $address = dig "webhook" "port" 9443 $c | int | printf ":%d" }}
{{- else if eq (index . 1) "visibility" }}{{ $address = dig "visibilityServer" "bindPort" 8082 $c | int | printf ":%d" }}
{{- else if eq (index . 1) "progress" }}{{ $address = dig "trainer" "statusServer" "port" 10443 $c | int | printf ":%d" }}
{{- else if eq (index . 1) "metrics" }}{{ $address = dig "metrics" "bindAddress" ":8443" $c | toString }}
{{- else }}{{ $address = dig "health" "healthProbeBindAddress" ":8081" $c | toString }}{{ end }}
{{- if ne $address "0" }}{{ regexFind "[0-9]+$" $address }}{{ end }}
{{- end }}

{{/* Whether one of some job kinds is enabled: (list . "batch/job" "pod"). */}}
{{- define "berth.enabled" -}}
{{- $enabled := dig "integrations" "frameworks" (list "batch/job") (include "berth.config" (index . 0) | fromYaml) }}
{{- $is := "" }}
{{- range rest . }}{{ if has . $enabled }}{{ $is = "true" }}{{ end }}{{ end }}
{{- $is }}
{{- end }}

{{/* Kubernetes makes objects of this kind all the time: it must not wait for a webhook that is not wanted. */}}
{{- define "berth.failurePolicy" -}}
{{- if include "berth.enabled" . }}Fail{{ else }}Ignore{{ end }}
{{- end }}

{{/* Whether the manager runs a group of controllers: (list . "jobset"). */}}
{{- define "berth.runs" -}}
{{- $value := (index . 0).Values.controllerManager.manager.controllers | nospace }}
{{- $named := splitList "," $value }}
{{- $all := or (eq $value "") (hasPrefix "-" $value) }}
{{- if has (printf "-%s" (index . 1)) $named }}
{{- else if or $all (has (index . 1) $named) }}true{{ end }}
{{- end }}

{{/* Whether a feature gate is on: (list . "MultiKueue" "AllBeta" true), with the gate of all features of its stage and its default. */}}
{{- define "berth.gate" -}}
{{- $set := get (include "berth.config" (index . 0) | fromYaml) "featureGates" | default dict }}
{{- range (index . 0).Values.controllerManager.featureGates }}{{ $set = set $set .name .enabled }}{{ end }}
{{- $on := index . 3 }}
{{- range list (index . 2) (index . 1) }}{{ if hasKey $set . }}{{ $on = get $set . }}{{ end }}{{ end }}
{{- if $on }}true{{ end }}
{{- end }}

{{/* Which jobs webhooks must see: "marked" ones with a queue or "all", with "-stop" their updates as well, as users may stop them. With "-queued"
     TrainJobs are only queued: another controller runs them. */}}
{{- define "berth.jobs" -}}
{{- $c := include "berth.config" . | fromYaml }}
{{- if get $c "manageJobsWithoutQueueName" }}all{{ else }}marked{{ end }}
{{- if get (get $c "integrations" | default dict) "honourUserSuspend" }}-stop{{ end }}
{{- if not (include "berth.runs" (list . "training")) }}-queued{{ end }}
{{- end }}

{{/* The name of the Lease of JobSets. */}}
{{- define "berth.leaseOfJobSets" -}}
{{- $jobSets := get (include "berth.config" . | fromYaml) "jobSet" | default dict }}
{{- get (get $jobSets "leaderElection" | default dict) "resourceName" | default "6d4f6a47.jobset.x-k8s.io" }}
{{- end }}

{{- define "berth.managedNamespaces" -}}
{{- $addOns := list "kube-system" "kube-node-lease" "kube-public" "calico-apiserver" "calico-system" "cert-manager" "cilium-system" "gatekeeper-system" "gke-managed-system" "gmp-system" "gpu-operator" "ingress-nginx" "istio-system" "jobset-system" "kube-flannel" "kueue-system" "kyverno" "local-path-storage" "longhorn-system" "lws-system" "metallb-system" "network-operator" "node-feature-discovery" "rook-ceph" "tigera-operator" "volcano-system" }}
{{- $own := dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (append $addOns .Release.Namespace | uniq))) }}
{{- $selector := dig "managedJobsNamespaceSelector" $own (include "berth.config" . | fromYaml) }}
{{- range dig "matchExpressions" list $selector }}
{{- /* As the manager reads it: a file for Kueue excludes Kueue's namespace as the manager's. */}}
{{- if and (eq .key "kubernetes.io/metadata.name") (eq .operator "NotIn") (has "kueue-system" .values) }}
{{- $_ := set . "values" (append .values $.Release.Namespace | uniq) }}
{{- end }}
{{- end }}
{{- toYaml $selector }}
{{- end }}

{{/* The same as an expression over the labels of a namespace, for the policy about queue labels. */}}
{{- define "berth.managedExpression" -}}
{{- $selector := include "berth.managedNamespaces" . | fromYaml }}
{{- range $key, $value := dig "matchLabels" dict $selector }}
{{- printf "(%q in variables.labels && variables.labels[%q] in %s) &&\n" $key $key (list $value | toJson) }}
{{- end }}
{{- range dig "matchExpressions" list $selector }}
{{- $values := dig "values" list . | toJson }}
{{- if eq .operator "In" }}{{ printf "(%q in variables.labels && variables.labels[%q] in %s) &&\n" .key .key $values }}
{{- else if eq .operator "NotIn" }}{{ printf "!(%q in variables.labels && variables.labels[%q] in %s) &&\n" .key .key $values }}
{{- else if eq .operator "Exists" }}{{ printf "(%q in variables.labels) &&\n" .key }}
{{- else }}{{ printf "!(%q in variables.labels) &&\n" .key }}
{{- end }}
{{- end -}}
true
{{- end }}

{{/* Where cert-manager finds the authority of a certificate: (list . "webhook"). */}}
{{- define "berth.injectCA" -}}
{{- $root := index . 0 }}
{{- if $root.Values.enableCertManager -}}
annotations:
  cert-manager.io/inject-ca-from: {{ $root.Release.Namespace }}/{{ include "berth.fullname" $root }}-{{ index . 1 }}-server-cert
{{- end }}
{{- end }}

{{/* Of a CRD: (list . true) if the manager converts its objects. */}}
{{- define "berth.crdAnnotations" -}}
{{- $root := index . 0 }}
{{- $inject := and (index . 1) $root.Values.enableCertManager }}
{{- if or $root.Values.crds.keep $inject -}}
annotations:
{{- if $root.Values.crds.keep }}
  helm.sh/resource-policy: keep
{{- end }}
{{- if $inject }}
  cert-manager.io/inject-ca-from: {{ $root.Release.Namespace }}/{{ include "berth.fullname" $root }}-webhook-server-cert
{{- end }}
{{- end }}
{{- end }}

{{/* What a variable of the dashboard is set to: (list . "KUEUEVIZ_PORT"). Where that is not known until it runs, that it is set. */}}
{{- define "berth.dashboardVariable" -}}
{{- range (index . 0).Values.kueueViz.backend.env }}
{{- if eq .name (index $ 1) }}{{ .value | default "set" }}{{ end }}
{{- end }}
{{- end }}

{{- define "berth.dashboardPort" -}}
{{- include "berth.dashboardVariable" (list . "KUEUEVIZ_PORT") | default "8080" }}
{{- end }}

{{/* Values that this release does not know how to honour are refused, not ignored. */}}
{{- define "berth.refuse" -}}
{{- if and .Values.enableKueueViz (not (include "berth.dashboardVariable" (list . "KUEUEVIZ_ALLOWED_ORIGINS"))) }}
{{- fail "kueueViz.backend.env: name the origins under which people open the dashboard, such as {name: KUEUEVIZ_ALLOWED_ORIGINS, value: https://berth.example.org}" }}
{{- end }}
{{- if and .Values.enableKueueViz (not (regexMatch "^[0-9]+$" (include "berth.dashboardPort" .))) }}
{{- fail "kueueViz.backend.env: KUEUEVIZ_PORT needs a value that is a number: the Service leads to it" }}
{{- end }}
{{- if not (include "berth.runs" (list . "webhooks")) }}{{ fail "controllerManager.manager.controllers: the chart installs webhooks, which the manager has to serve" }}{{ end }}
{{- end }}
