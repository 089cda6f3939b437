package options

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// refusal is a body and the prefixes of the lines of its error, in order; none for a valid body.
type refusal struct {
	body string
	want []string
}

func checkRefusals(t *testing.T, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("c.yaml", withHeader(tc.body), "")
			var got []string
			for i, p := range problemsOf(err) {
				line := p.String()
				if i < len(tc.want) && strings.HasPrefix(line, tc.want[i]) {
					line = tc.want[i]
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// spec: 70 §3.3, rows integrations and managedJobsNamespaceSelector.
func TestValidateJobs(t *testing.T) {
	checkRefusals(t, map[string]refusal{
		"framework twice": { // example 2
			body: "integrations:\n  frameworks: [batch/job, batch/job]",
			want: []string{`c.yaml:4: integrations.frameworks[1]: Duplicate value: "batch/job"`},
		},
		"framework unknown": { // example 3
			body: "integrations: {frameworks: [acme.io/solver]}",
			want: []string{`c.yaml:3: integrations.frameworks[0]: Unsupported value: "acme.io/solver": supported values: "batch/job", "pod", `},
		},
		"framework misspelt": {
			body: "integrations: {frameworks: [batch/jobs]}",
			want: []string{`c.yaml:3: integrations.frameworks[0]: Unsupported value: "batch/jobs": did you mean batch/job? supported`},
		},
		"framework behind a gate": {
			body: "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}",
			want: []string{"c.yaml:3: integrations.frameworks[0]: Forbidden: sparkoperator.k8s.io/sparkapplication needs featureGates.SparkApplicationIntegration: true"},
		},
		"framework with its gate": {
			body: "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}\nfeatureGates: {SparkApplicationIntegration: true}",
		},
		"external framework": {body: "integrations: {externalFrameworks: [PipelineRun.v1.tekton.dev]}"},
		"external framework without group": {
			body: "integrations: {externalFrameworks: [Pipeline.v1, Run.v1.]}",
			want: []string{
				`c.yaml:3: integrations.externalFrameworks[0]: Invalid value: "Pipeline.v1": must have the form Kind.version.group`,
				`c.yaml:3: integrations.externalFrameworks[1]: Invalid value: "Run.v1.": must have the form`,
			},
		},
		"external framework twice": {
			body: "integrations:\n  externalFrameworks:\n  - A.v1.b.c\n  - A.v1.b.c",
			want: []string{`c.yaml:6: integrations.externalFrameworks[1]: Duplicate value: "A.v1.b.c"`},
		},
		"declared kind": {body: declaredText("Crew.v1.example.com", "true")},
		"declared kind with a mistake": { // the line is that of the expression
			body: declaredText("Crew.v1.example.com", "objekt.x"),
			want: []string{`c.yaml:8: integrations.declaredKinds[0].started: Invalid value: "objekt.x": Crew.v1.example.com: line 1, column 1: ` +
				"nothing is called objekt; did you mean object?"},
		},
		"declared kind that is built in": {
			body: declaredText("Job.v1.batch", "true"),
			want: []string{`c.yaml:5: integrations.declaredKinds[0].name: Duplicate value: "Job.v1.batch"`},
		},
		"declared kind that is external": {
			body: declaredText("Crew.v1.example.com", "true") + "\n  externalFrameworks: [Crew.v1.example.com]",
			want: []string{`c.yaml:5: integrations.declaredKinds[0].name: Duplicate value: "Crew.v1.example.com"`},
		},
		"external framework that is built in": { // spec: 30 §7 example 60
			body: "integrations: {externalFrameworks: [Job.v1.batch]}",
			want: []string{`c.yaml:3: integrations.externalFrameworks[0]: Duplicate value: "Job.v1.batch"`},
		},
		"selector of everything": { // example 9
			body: "integrations: {frameworks: [pod]}\nmanagedJobsNamespaceSelector: {}",
			want: []string{
				"c.yaml:4: managedJobsNamespaceSelector: Invalid value: \"<none>\": must not match namespace kube-system; add {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]} to matchExpressions",
				"c.yaml:4: managedJobsNamespaceSelector: Invalid value: \"<none>\": must not match namespace berth-system",
			},
		},
		"selector of the own namespace": {
			body: "namespace: mine\nmanagedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: mine}}",
			want: []string{`c.yaml:4: managedJobsNamespaceSelector: Invalid value: "kubernetes.io/metadata.name=mine": must not match namespace mine`},
		},
		"selector by absence": {
			body: "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}",
			want: []string{
				`c.yaml:3: managedJobsNamespaceSelector: Invalid value: "!a": must not match namespace kube-system`,
				`c.yaml:3: managedJobsNamespaceSelector: Invalid value: "!a": must not match namespace berth-system`,
			},
		},
		"selector by label": {body: "managedJobsNamespaceSelector: {matchLabels: {team: red}}"},
		"selector that is none": {
			body: "managedJobsNamespaceSelector:\n  matchExpressions:\n  - key: a\n    operator: Is",
			want: []string{`c.yaml:6: managedJobsNamespaceSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`},
		},
		"own namespace is kube-system": {body: "namespace: kube-system"},
		"namespace that is none": {
			body: "namespace: My_Space",
			want: []string{`c.yaml:3: namespace: Invalid value: "My_Space": a lowercase RFC 1123 label`},
		},
	})
}

// spec: 70 §3.3, rows tls, internalCertManagement, visibilityServer, and the rules for listeners.
func TestValidateManager(t *testing.T) {
	checkRefusals(t, map[string]refusal{
		"ciphers with 1.3": { // example 14
			body: "tls: {minVersion: VersionTLS13, cipherSuites: [TLS_AES_128_GCM_SHA256]}",
			want: []string{"c.yaml:3: tls.cipherSuites: Forbidden: may not be set with VersionTLS13"},
		},
		"old version": { // example 14
			body: "tls: {minVersion: VersionTLS11}",
			want: []string{`c.yaml:3: tls.minVersion: Unsupported value: "VersionTLS11": supported values: "VersionTLS12", "VersionTLS13"`},
		},
		"version 1.3": {body: "tls: {minVersion: VersionTLS13}"},
		"unknown cipher": {
			body: "tls: {cipherSuites: [TLS_AES_128_GCM_SHA255]}",
			want: []string{`c.yaml:3: tls.cipherSuites[0]: Unsupported value: "TLS_AES_128_GCM_SHA255": did you mean TLS_AES_128_GCM_SHA256?`},
		},
		"unknown curve": {
			body: "tls: {curvePreferences: [29, 65565]}",
			want: []string{`c.yaml:3: tls.curvePreferences[1]: Unsupported value: 65565: supported values: "23 (CurveP256)"`},
		},
		"certificate names": {
			body: "internalCertManagement: {webhookServiceName: 1a, webhookSecretName: A_b}",
			want: []string{
				`c.yaml:3: internalCertManagement.webhookServiceName: Invalid value: "1a": a DNS-1035 label`,
				`c.yaml:3: internalCertManagement.webhookSecretName: Invalid value: "A_b": a lowercase RFC 1123 subdomain`,
			},
		},
		"certificate names nobody uses": {body: "internalCertManagement: {enable: false, webhookServiceName: 1a}"},
		"visibility": {
			body: "visibilityServer: {bindAddress: localhost, bindPort: 70000}",
			want: []string{
				`c.yaml:3: visibilityServer.bindAddress: Invalid value: "localhost": must be an IP address`,
				"c.yaml:3: visibilityServer.bindPort: Invalid value: 70000: must be a port, 1 to 65535",
			},
		},
		"LocalQueues with a name that there is not": {
			body: "localQueues: {generate: default}",
			want: []string{`c.yaml:3: localQueues.generate: Unsupported value: "default": did you mean Default? supported values: "None", "Default", "AsClusterQueue"`},
		},
		"LocalQueues with no name": {body: "localQueues: {}"},
		"visibility port 0":        {body: "visibilityServer: {bindPort: 0}", want: []string{"c.yaml:3: visibilityServer.bindPort: Invalid value: 0: must be a port"}},
		"webhook port":             {body: "webhook: {port: -1}", want: []string{"c.yaml:3: webhook.port: Invalid value: -1: must be a port, 1 to 65535"}},
		"addresses": {
			body: "metrics: {bindAddress: \"8443\"}\nhealth: {healthProbeBindAddress: \"a:99999\"}\npprofBindAddress: \"x:\"",
			want: []string{
				`c.yaml:3: metrics.bindAddress: Invalid value: "8443": must be host:port or :port, or "0" for off`,
				`c.yaml:4: health.healthProbeBindAddress: Invalid value: "a:99999": the port must be 0 to 65535`,
				`c.yaml:5: pprofBindAddress: Invalid value: "x:": must be host:port`,
			},
		},
		"probes at one path": {
			body: "health: {readinessEndpointName: healthz}",
			want: []string{`c.yaml:3: health.livenessEndpointName: Invalid value: "/healthz": must differ from readinessEndpointName`},
		},
		"probes at no path": {
			body: "health:\n  readinessEndpointName: \"a {b}\"\n  livenessEndpointName: up/",
			want: []string{
				`c.yaml:4: health.readinessEndpointName: Invalid value: "/a {b}": must be a path`,
				`c.yaml:5: health.livenessEndpointName: Invalid value: "/up/": must be a path`,
			},
		},
		"probes": {body: "health: {readinessEndpointName: probes/ready, livenessEndpointName: /probes}"},
		"election times": {
			body: "leaderElection: {leaseDuration: 10s, renewDeadline: 10s, retryPeriod: 9s}",
			want: []string{
				`c.yaml:3: leaderElection.leaseDuration: Invalid value: "10s": must be longer than renewDeadline (10s)`,
				`c.yaml:3: leaderElection.renewDeadline: Invalid value: "10s": must be longer than 1.2 times retryPeriod (9s)`,
			},
		},
		"election names": {
			body: "leaderElection: {resourceLock: endpoints, resourceName: A, resourceNamespace: b.c, retryPeriod: -1s}",
			want: []string{
				`c.yaml:3: leaderElection.resourceLock: Unsupported value: "endpoints": supported values: "leases"`,
				`c.yaml:3: leaderElection.resourceName: Invalid value: "A"`,
				`c.yaml:3: leaderElection.resourceNamespace: Invalid value: "b.c"`,
				`c.yaml:3: leaderElection.retryPeriod: Invalid value: "-1s": must be above 0`,
			},
		},
		"workers": {
			body: "controller:\n  cacheSyncTimeout: -1s\n  groupKindConcurrency:\n    Job.batch: 0",
			want: []string{
				"c.yaml:6: controller.groupKindConcurrency[Job.batch]: Invalid value: 0: must be at least 1",
				`c.yaml:4: controller.cacheSyncTimeout: Invalid value: "-1s": must be above 0`,
			},
		},
		"negative burst":             {body: "clientConnection: {burst: -1}", want: []string{"c.yaml:3: clientConnection.burst: Invalid value: -1: must be at least 0"}},
		"negative burst, no limit":   {body: "clientConnection: {qps: -1, burst: -1}"},
		"selector of LocalQueues":    {body: "metrics: {localQueueMetrics: {enable: true, localQueueSelector: {matchLabels: {a: \"b c\"}}}}", want: []string{`c.yaml:3: metrics.localQueueMetrics.localQueueSelector.matchLabels: Invalid value: "b c"`}},
		"several mistakes, all told": {body: "webhook: {port: -1}\nvisibilityServer: {bindPort: -1}", want: []string{"c.yaml:3: webhook.port", "c.yaml:4: visibilityServer.bindPort"}},
	})
}

// spec: 70 §3.3, rows waitForPodsReady, fairSharing, admissionFairSharing,
// quotaCheckStrategy, transformations and retention.
func TestValidateScheduling(t *testing.T) {
	checkRefusals(t, map[string]refusal{
		"timeout": { // example 10
			body: "waitForPodsReady: {timeout: -1s}",
			want: []string{`c.yaml:3: waitForPodsReady.timeout: Invalid value: "-1s": must be above 0`},
		},
		"timeout with the feature off": { // example 10
			body: "waitForPodsReady: {timeout: -1s, requeuingStrategy: {timestamp: Now}}\nfeatureGates: {DisableWaitForPodsReady: true}",
		},
		"the rest of it": {
			body: "waitForPodsReady:\n  recoveryTimeout: -1s\n  requeuingStrategy: {timestamp: Now, backoffLimitCount: -1, backoffBaseSeconds: -2, backoffMaxSeconds: -3}",
			want: []string{
				`c.yaml:4: waitForPodsReady.recoveryTimeout: Invalid value: "-1s": must be at least 0`,
				`c.yaml:5: waitForPodsReady.requeuingStrategy.timestamp: Unsupported value: "Now": supported values: "Eviction", "Creation"`,
				"c.yaml:5: waitForPodsReady.requeuingStrategy.backoffLimitCount: Invalid value: -1: must be at least 0",
				"c.yaml:5: waitForPodsReady.requeuingStrategy.backoffBaseSeconds: Invalid value: -2",
				"c.yaml:5: waitForPodsReady.requeuingStrategy.backoffMaxSeconds: Invalid value: -3",
			},
		},
		"backfill of another kind": {
			body: "scheduling: {backfill: eager}",
			want: []string{`c.yaml:3: scheduling.backfill: Unsupported value: "eager": supported values: "easy", "conservative"`},
		},
		"backfill":              {body: "scheduling: {backfill: easy}"},
		"conservative backfill": {body: "scheduling: {backfill: conservative}"},
		"fair sharing, other order": { // example 8
			body: "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
			want: []string{`c.yaml:3: fairSharing.preemptionStrategies: Unsupported value: "[LessThanInitialShare, LessThanOrEqualToFinalShare]": supported values: "[LessThanOrEqualToFinalShare]", "[LessThanInitialShare]", "[LessThanOrEqualToFinalShare, LessThanInitialShare]"`},
		},
		"fair sharing, none":   {body: "fairSharing: {}", want: []string{`c.yaml:3: fairSharing.preemptionStrategies: Unsupported value: "[]"`}},
		"fair sharing, first":  {body: "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}"},
		"fair sharing, second": {body: "fairSharing: {preemptionStrategies: [LessThanInitialShare]}"},
		"fair sharing, both":   {body: "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}"},
		"usage": {
			body: "admissionFairSharing: {usageHalfLifeTime: -1s, usageSamplingInterval: 0s, resourceWeights: {cpu: -0.5}}",
			want: []string{
				`c.yaml:3: admissionFairSharing.usageHalfLifeTime: Invalid value: "-1s": must be at least 0`,
				`c.yaml:3: admissionFairSharing.usageSamplingInterval: Invalid value: "0s": must be above 0`,
				"c.yaml:3: admissionFairSharing.resourceWeights[cpu]: Invalid value: -0.5: must be at least 0",
			},
		},
		"usage, defaults": {body: "admissionFairSharing: {}"},
		"quota check": {
			body: "resources: {quotaCheckStrategy: Ignore}",
			want: []string{`c.yaml:3: resources.quotaCheckStrategy: Unsupported value: "Ignore": supported values: "BlockUndeclared", "IgnoreUndeclared"`},
		},
		"quota check with prefixes": { // example 13
			body: "resources:\n  quotaCheckStrategy: IgnoreUndeclared\n  excludeResourcePrefixes: [example.org/]",
			want: []string{"c.yaml:5: resources.excludeResourcePrefixes: Forbidden: may not be set with quotaCheckStrategy IgnoreUndeclared"},
		},
		"quota check with its gate off": {
			body: "resources: {quotaCheckStrategy: Ignore, excludeResourcePrefixes: [a]}\nfeatureGates: {QuotaCheckStrategy: false}",
		},
		"transformations": {
			body: "resources:\n  transformations:\n  - {input: a, strategy: Keep}\n  - {input: a}\n  - {}",
			want: []string{
				`c.yaml:5: resources.transformations[0].strategy: Unsupported value: "Keep": supported values: "Retain", "Replace"`,
				`c.yaml:6: resources.transformations[1].input: Duplicate value: "a"`,
				"c.yaml:7: resources.transformations[2].input: Required value",
			},
		},
		"retention": {
			body: "objectRetentionPolicies: {workloads: {afterFinished: -1s, afterDeactivatedByKueue: -1s}}",
			want: []string{
				`c.yaml:3: objectRetentionPolicies.workloads.afterFinished: Invalid value: "-1s": must be at least 0`,
				`c.yaml:3: objectRetentionPolicies.workloads.afterDeactivatedByKueue: Invalid value: "-1s"`,
			},
		},
		"failure recovery": {
			body: "failureRecovery: {delay: -1s}",
			want: []string{`c.yaml:3: failureRecovery.delay: Invalid value: "-1s": must be at least 0`},
		},
		"min run time below 0": {
			body: "preemption: {maxMinRunTime: -1s}",
			want: []string{`c.yaml:3: preemption.maxMinRunTime: Invalid value: "-1s": must be at least 0`},
		},
		"failure recovery at once": {body: "failureRecovery: {delay: 0s}"},
		"retention at once":        {body: "objectRetentionPolicies: {workloads: {afterFinished: 0s}}"},
	})
}

// spec: 70 §3.3, row multiKueue; 40 §3.
func TestValidateMultiKueue(t *testing.T) {
	provider := "name: p, execConfig: {command: c, apiVersion: v, interactiveMode: Never}"
	checkRefusals(t, map[string]refusal{
		"times and origin": {
			body: "multiKueue: {gcInterval: -1s, workerLostTimeout: -1s, origin: \"a b\"}",
			want: []string{
				`c.yaml:3: multiKueue.gcInterval: Invalid value: "-1s": must be at least 0`,
				`c.yaml:3: multiKueue.workerLostTimeout: Invalid value: "-1s": must be at least 0`,
				`c.yaml:3: multiKueue.origin: Invalid value: "a b": a valid label`,
			},
		},
		"steps of another dispatcher": { // example 11
			body: "multiKueue: {incrementalDispatcherConfig: {stepSize: 2}}",
			want: []string{"c.yaml:3: multiKueue.incrementalDispatcherConfig: Invalid value: \"kueue.x-k8s.io/multikueue-dispatcher-all-at-once\": may be set only with dispatcherName kueue.x-k8s.io/multikueue-dispatcher-incremental"},
		},
		"steps": { // example 11
			body: "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, incrementalDispatcherConfig: {stepSize: 2}}",
		},
		"no steps": {
			body: "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, incrementalDispatcherConfig: {stepSize: 0}}",
			want: []string{"c.yaml:3: multiKueue.incrementalDispatcherConfig.stepSize: Invalid value: 0: must be at least 1"},
		},
		"round": {
			body: "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, incrementalDispatcherConfig: {roundTimeout: 0s}}",
			want: []string{"c.yaml:3: multiKueue.incrementalDispatcherConfig.roundTimeout: Invalid value: \"0s\": must be above 0"},
		},
		"origins": {
			body: "multiKueue:\n  origin: a\n  previousOrigins:\n  - b\n  - b\n  - a\n  - 'x y'",
			want: []string{
				`c.yaml:7: multiKueue.previousOrigins[1]: Duplicate value: "b"`,
				`c.yaml:8: multiKueue.previousOrigins[2]: Duplicate value: "a"`,
				`c.yaml:9: multiKueue.previousOrigins[3]: Invalid value: "x y": a valid label`,
			},
		},
		"times": {
			body: "multiKueue: {remoteRetentionAfterFinish: -1s, singleClusterPreemptionTimeout: 0s}",
			want: []string{
				`c.yaml:3: multiKueue.remoteRetentionAfterFinish: Invalid value: "-1s": must be at least 0`,
				`c.yaml:3: multiKueue.singleClusterPreemptionTimeout: Invalid value: "0s": must be above 0`,
			},
		},
		"a transform that is wrong": {
			body: "multiKueue: {externalFrameworks: [{name: A.v1.b.c, preconditions: [{name: p, expression: cluster.name == ''}]}]}",
			want: []string{`c.yaml:3: multiKueue.externalFrameworks[0].preconditions[0].expression: Invalid value: "cluster.name == ''": line 1, column 1: nothing is called cluster`},
		},
		"outside dispatcher":             {body: "multiKueue: {dispatcherName: example.com/mine}"},
		"outside dispatcher, no domain":  {body: "multiKueue: {dispatcherName: mine}", want: []string{`c.yaml:3: multiKueue.dispatcherName: Invalid value: "mine": must be a domain-prefixed path`}},
		"outside dispatcher, a long one": {body: "multiKueue: {dispatcherName: example.com/" + strings.Repeat("x", 60) + "}", want: []string{"c.yaml:3: multiKueue.dispatcherName: Too long"}},
		"adapters": {
			body: "multiKueue:\n  externalFrameworks:\n  - name: A.v1.b\n  - name: A.v1.b\n  - name: x\n  - name: Job.v1.batch",
			want: []string{
				`c.yaml:6: multiKueue.externalFrameworks[1].name: Duplicate value: "A.v1.b"`,
				`c.yaml:7: multiKueue.externalFrameworks[2].name: Invalid value: "x": must have the form Kind.version.group`,
				`c.yaml:8: multiKueue.externalFrameworks[3].name: Invalid value: "Job.v1.batch": is served by the framework batch/job`,
			},
		},
		"adapter of a framework that is off": {body: "multiKueue: {externalFrameworks: [{name: RayJob.v1.ray.io}]}"},
		"providers":                          {body: "multiKueue: {clusterProfile: {accessProviders: [{" + provider + "}]}}"},
		"provider without anything": {
			body: "multiKueue:\n  clusterProfile:\n    accessProviders:\n    - execConfig:\n        env:\n        - value: x",
			want: []string{
				"c.yaml:6: multiKueue.clusterProfile.accessProviders.name: Required value",
				"c.yaml:6: multiKueue.clusterProfile.accessProviders.execConfig.command: Required value",
				"c.yaml:6: multiKueue.clusterProfile.accessProviders.execConfig.apiVersion: Required value",
				"c.yaml:8: multiKueue.clusterProfile.accessProviders.execConfig.env.name: Required value",
				"c.yaml:6: multiKueue.clusterProfile.accessProviders.execConfig.interactiveMode: Required value: one of Never, IfAvailable, Always",
			},
		},
		"the second of two providers": {
			body: "multiKueue:\n  clusterProfile:\n    accessProviders:\n    - {" + provider + "}\n    - {" + strings.TrimPrefix(provider, "name: p, ") + "}",
			want: []string{"c.yaml:7: multiKueue.clusterProfile.accessProviders.name: Required value"},
		},
		"provider by its old name": {
			body: "multiKueue: {clusterProfile: {credentialsProviders: [{name: p, execConfig: {command: c, apiVersion: v, interactiveMode: Maybe}}]}}",
			want: []string{`c.yaml:3: multiKueue.clusterProfile.credentialsProviders.execConfig.interactiveMode: Unsupported value: "Maybe": supported values: "Never", "IfAvailable", "Always"`},
		},
		"providers by both names": {
			body: "multiKueue: {clusterProfile: {accessProviders: [{" + provider + "}], credentialsProviders: [{}]}}",
			want: []string{"c.yaml:3: multiKueue.clusterProfile.credentialsProviders: Forbidden: may not be set together with accessProviders"},
		},
	})
}

// spec: 70 §3.3, row customLabels.
func TestValidateCustomLabels(t *testing.T) {
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "\n  - {"+format+"}", i)
		}
		return "metrics:\n  customLabels:" + b.String()
	}
	values := func(n int) string {
		v := make([]string, n)
		for i := range v {
			v[i] = fmt.Sprintf("v%d", i)
		}
		return "[" + strings.Join(v, ", ") + "]"
	}
	all := strings.ReplaceAll(list(6, "name: a%d"), "metrics:\n  customLabels:", "") +
		strings.ReplaceAll(list(6, "name: b%d, sourceKind: LocalQueue"), "metrics:\n  customLabels:", "") +
		strings.ReplaceAll(list(6, "name: c%d, sourceKind: Cohort"), "metrics:\n  customLabels:", "") +
		strings.ReplaceAll(list(2, "name: d%d, sourceKind: Workload, trackedValues: [x]"), "metrics:\n  customLabels:", "")
	checkRefusals(t, map[string]refusal{
		"as many as may be": {body: "metrics:\n  customLabels:" + all},
		"one too many": { // example 12
			body: "metrics:\n  customLabels:" + all + "\n  - {name: e}",
			want: []string{"c.yaml:4: metrics.customLabels: Too many: 21: must have at most 20 items", "c.yaml:4: metrics.customLabels: Invalid value: 7: has 7 labels of sourceKind ClusterQueue; at most 6 are allowed"},
		},
		"three of Workload": { // example 12
			body: list(3, "name: a%d, sourceKind: Workload, trackedValues: [x]"),
			want: []string{"c.yaml:4: metrics.customLabels: Invalid value: 3: has 3 labels of sourceKind Workload; at most 2 are allowed"},
		},
		"Workload without values": { // example 12
			body: list(1, "name: a%d, sourceKind: Workload"),
			want: []string{"c.yaml:5: metrics.customLabels[0].trackedValues: Required value"},
		},
		"Workload, 12 values":     {body: list(1, "name: a%d, sourceKind: Workload, trackedValues: "+values(12))},
		"Workload, 13 values":     {body: list(1, "name: a%d, sourceKind: Workload, trackedValues: "+values(13)), want: []string{"c.yaml:5: metrics.customLabels[0].trackedValues: Too many: 13: must have at most 12 items"}},
		"ClusterQueue, 17 values": {body: list(1, "name: a%d, trackedValues: "+values(17)), want: []string{"c.yaml:5: metrics.customLabels[0].trackedValues: Too many: 17: must have at most 16 items"}},
		"value twice":             {body: list(1, "name: a%d, trackedValues: [x, x]"), want: []string{`c.yaml:5: metrics.customLabels[0].trackedValues[1]: Duplicate value: "x"`}},
		"name twice":              {body: "metrics: {customLabels: [{name: a}, {name: a}]}", want: []string{`c.yaml:3: metrics.customLabels[1].name: Duplicate value: "a"`}},
		"name that is none":       {body: "metrics: {customLabels: [{name: 1a}]}", want: []string{`c.yaml:3: metrics.customLabels[0].name: Invalid value: "1a": must be a letter followed by`}},
		"name that is no key":     {body: "metrics: {customLabels: [{name: a_}]}", want: []string{`c.yaml:3: metrics.customLabels[0].name: Invalid value: "a_": is used as a key of a label or annotation`}},
		"name with its own key":   {body: "metrics: {customLabels: [{name: a_, sourceLabelKey: a}]}"},
		"key that is none":        {body: "metrics: {customLabels: [{name: a, sourceAnnotationKey: a/b/c}]}", want: []string{`c.yaml:3: metrics.customLabels[0].sourceAnnotationKey: Invalid value: "a/b/c"`}},
		"two keys":                {body: "metrics: {customLabels: [{name: a, sourceLabelKey: a, sourceAnnotationKey: b}]}", want: []string{"c.yaml:3: metrics.customLabels[0].sourceAnnotationKey: Forbidden: may not be set together with sourceLabelKey"}},
		"kind that is none":       {body: "metrics: {customLabels: [{name: a, sourceKind: Job}]}", want: []string{`c.yaml:3: metrics.customLabels[0].sourceKind: Unsupported value: "Job"`}},
	})
}

// spec: 70 §3.3, row deviceClassMappings.
func TestValidateDeviceClassMappings(t *testing.T) {
	const selector = "deviceSelector: {cel: {expression: \"true\"}}"
	counter := func(name string) string { return "{counter: {name: " + name + ", driver: d.io, " + selector + "}}" }
	capacity := func(name string) string { return "{capacity: {name: " + name + ", driver: d.io, " + selector + "}}" }
	mapping := func(name, classes, sources string) string {
		return "\n  - {name: " + name + ", deviceClassNames: [" + classes + "], sources: [" + sources + "]}"
	}
	file := func(mappings ...string) string {
		return "featureGates: {KueueDRAIntegrationConsumableCapacity: true}\nresources:\n  deviceClassMappings:" + strings.Join(mappings, "")
	}
	const at = "c.yaml:6: resources.deviceClassMappings[0]."
	var many []string
	for i := range 17 {
		many = append(many, mapping(fmt.Sprintf("n%d", i), fmt.Sprintf("c%d", i), ""))
	}
	checkRefusals(t, map[string]refusal{
		"16":          {body: file(many[:16]...)},
		"17":          {body: file(many...), want: []string{"c.yaml:5: resources.deviceClassMappings: Too many: 17: must have at most 16 items"}},
		"names":       {body: file(mapping("a/b/c", "x", "")), want: []string{at + `name: Invalid value: "a/b/c"`}},
		"name twice":  {body: file(mapping("a", "x", ""), mapping("a", "y", "")), want: []string{`c.yaml:7: resources.deviceClassMappings[1].name: Duplicate value: "a"`}},
		"long name":   {body: file(mapping(strings.Repeat("a.", 120)+"a/"+strings.Repeat("b", 20), "x", "")), want: []string{at + "name: Too long"}},
		"no class":    {body: file(mapping("a", "", "")), want: []string{at + "deviceClassNames: Required value"}},
		"9 classes":   {body: file(mapping("a", "a, b, c, d, e, f, g, h, i", "")), want: []string{at + "deviceClassNames: Too many: 9: must have at most 8 items"}},
		"bad class":   {body: file(mapping("a", "-", "")), want: []string{at + `deviceClassNames[0]: Invalid value: "-"`}},
		"class twice": {body: file(mapping("a", "x, x", "")), want: []string{at + `deviceClassNames[1]: Duplicate value: "x"`}},
		"class in two": {
			body: file(mapping("a", "x", ""), mapping("b", "x", "")),
			want: []string{`c.yaml:7: resources.deviceClassMappings[1].deviceClassNames[0]: Invalid value: "x": is in the mapping a too`},
		},
		"class in two, distinct counters": {body: file(mapping("a", "x", counter("p")), mapping("b", "x", counter("q")))},
		"class in two, one counter": {
			body: file(mapping("a", "x", counter("p")), mapping("b", "x", counter("p"))),
			want: []string{`c.yaml:7: resources.deviceClassMappings[1].deviceClassNames[0]: Invalid value: "x": is in the mapping a too`},
		},
		"class in two, capacities": {
			body: file(mapping("a", "x", capacity("p")), mapping("b", "x", capacity("q"))),
			want: []string{"c.yaml:7: resources.deviceClassMappings[1].deviceClassNames[0]: Invalid value"},
		},
		"no source kind": {body: file(mapping("a", "x", "{}")), want: []string{at + "sources[0]: Required value: one of counter and capacity"}},
		"both source kinds": {
			body: file(mapping("a", "x", strings.TrimSuffix(counter("p"), "}")+", "+strings.TrimPrefix(capacity("q"), "{"))),
			want: []string{at + "sources[0]: Forbidden: counter and capacity may not stand in one entry"},
		},
		"mixed":           {body: file(mapping("a", "x", counter("p")+", "+capacity("q"))), want: []string{at + "sources[1]: Forbidden: counter and capacity may not be mixed"}},
		"counter name":    {body: file(mapping("a", "x", counter("P_q"))), want: []string{at + `sources[0].counter.name: Invalid value: "P_q"`}},
		"capacity name":   {body: file(mapping("a", "x", capacity("Dom.io/mem_1")))},
		"capacity names":  {body: file(mapping("a", "x", capacity("1a"))), want: []string{at + `sources[0].capacity.name: Invalid value: "1a": the name must be a letter or underscore`}},
		"capacity domain": {body: file(mapping("a", "x", capacity("_/a"))), want: []string{at + `sources[0].capacity.name: Invalid value: "_/a": the part before / must be`}},
		"no driver":       {body: file(mapping("a", "x", strings.Replace(counter("p"), "driver: d.io, ", "", 1))), want: []string{at + "sources[0].counter.driver: Required value"}},
		"upper driver":    {body: file(mapping("a", "x", strings.Replace(counter("p"), "d.io", "D.io", 1))), want: []string{at + `sources[0].counter.driver: Invalid value: "D.io"`}},
		"long driver":     {body: file(mapping("a", "x", strings.Replace(counter("p"), "d.io", strings.Repeat("d", 64), 1))), want: []string{at + "sources[0].counter.driver: Too long"}},
		"no expression":   {body: file(mapping("a", "x", strings.Replace(counter("p"), "cel: {expression: \"true\"}", "", 1))), want: []string{at + "sources[0].counter.deviceSelector.cel.expression: Required value"}},
		"broken CEL":      {body: file(mapping("a", "x", strings.Replace(counter("p"), "\"true\"", "device.drive", 1))), want: []string{at + `sources[0].counter.deviceSelector.cel.expression: Invalid value: "device.drive": compilation failed`}},
		"CEL, not a bool": {body: file(mapping("a", "x", strings.Replace(counter("p"), "\"true\"", "device.driver", 1))), want: []string{at + `sources[0].counter.deviceSelector.cel.expression: Invalid value: "device.driver": must evaluate to bool`}},
		"capacity, gate off": {
			body: strings.Replace(file(mapping("a", "x", capacity("p"))), "true}", "false}", 1),
			want: []string{at + "sources[0].capacity: Forbidden: needs featureGates.KueueDRAIntegrationConsumableCapacity: true"},
		},
		"counter, gate off": {
			body: strings.Replace(file(mapping("a", "x", counter("p"))), "ConsumableCapacity: true", "PartitionableDevices: false", 1),
			want: []string{at + "sources[0].counter: Forbidden: needs featureGates.KueueDRAIntegrationPartitionableDevices: true"},
		},
	})
}

func TestGatesDecideWhatIsResolved(t *testing.T) {
	for name, tc := range map[string]struct {
		body, flag string
		check      func(Options) bool
	}{
		"pods ready off":       {flag: "DisableWaitForPodsReady=true", check: func(o Options) bool { return o.PodsReady == PodsReady{} }},
		"undeclared ignored":   {body: "resources: {quotaCheckStrategy: IgnoreUndeclared}", check: func(o Options) bool { return o.Resources.IgnoreUndeclared }},
		"undeclared, gate off": {body: "resources: {quotaCheckStrategy: IgnoreUndeclared}", flag: "QuotaCheckStrategy=false", check: func(o Options) bool { return !o.Resources.IgnoreUndeclared }},
		"usage, gate off":      {body: "admissionFairSharing: {}", flag: "AdmissionFairSharing=false", check: func(o Options) bool { return !o.AdmissionFairSharing.Enabled }},
		"local queues, gate off": {flag: "LocalQueueMetrics=false", check: func(o Options) bool {
			return o.Metrics.LocalQueues.String() == "" && !o.Metrics.LocalQueues.Matches(nil)
		}},
		"steps, gate off": {
			body: "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, incrementalDispatcherConfig: {stepSize: 9}}",
			flag: "MultiKueueIncrementalDispatcherConfig=false", check: func(o Options) bool { return o.MultiKueue.StepSize == 3 },
		},
		"adapters, gate off": {
			body: "multiKueue: {externalFrameworks: [{name: A.v1.b}]}",
			flag: "MultiKueueAdaptersForCustomJobs=false", check: func(o Options) bool { return o.MultiKueue.ExternalFrameworks == nil },
		},
		"labels, gate off": {body: "metrics: {customLabels: [{name: a}]}", check: func(o Options) bool { return o.Metrics.CustomLabels == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			if o := mustParse(t, tc.body, tc.flag); !tc.check(o) {
				t.Errorf("not what was meant: %+v", o)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"trap": { // example 15
			"metrics: {localQueueMetrics: {}}",
			"metrics.localQueueMetrics has no enable, which turns the series of LocalQueues off; add enable: true, or remove localQueueMetrics",
		},
		"kind that is only read": {
			"controller: {groupKindConcurrency: {AdmissionCheck.kueue.x-k8s.io: 2, Topology.kueue.x-k8s.io: 2}}",
			"controller.groupKindConcurrency[Topology.kueue.x-k8s.io]: no such kind is reconciled; did you mean Workload.kueue.x-k8s.io?",
		},
		"unknown kind":     {"controller: {groupKindConcurrency: {Jobs.batch: 2}}", "controller.groupKindConcurrency[Jobs.batch]: no such kind is reconciled; did you mean Job.batch?"},
		"label key":        {"integrations: {labelKeysToCopy: [a, \"b c\"]}", `integrations.labelKeysToCopy[1]: "b c" can be no label key and is never copied`},
		"destructive":      {"objectRetentionPolicies: {workloads: {afterDeactivatedByKueue: 1m}}", "objectRetentionPolicies.workloads.afterDeactivatedByKueue deletes jobs 1m0s after their Workload was deactivated by the manager"},
		"trap not stepped": {"metrics: {localQueueMetrics: {enable: false}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(mustParse(t, tc.body, "").Warnings, "\n"); got != tc.want {
				t.Errorf("want %q\n got %q", tc.want, got)
			}
		})
	}
	if o := mustParse(t, "metrics: {localQueueMetrics: {}}", ""); o.Metrics.LocalQueues.Matches(nil) {
		t.Error("metrics.localQueueMetrics: {} must turn the series off (spec: 70 §2.1.2)")
	}
}

// declaredText is a section with one declared kind.
func declaredText(name, started string) string {
	return "integrations:\n  declaredKinds:\n  - name: " + name + "\n    suspend: {path: spec.suspend}\n    podSets: '[]'\n    started: '" + started + "'\n    finished: '{}'"
}
