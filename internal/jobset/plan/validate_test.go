package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

const base = `{metadata: {name: ring}, spec: {replicatedJobs: [
{name: coach, replicas: 1, template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: c, image: i}]}}}}},
{name: oar, replicas: 3, template: {spec: {parallelism: 2, completions: 2, template: {spec: {containers: [{name: c, image: i}]}}}}}]}}`

// edited is the base with JSON merged into it, defaulted.
func edited(t tester, patch string) *jobsetv1alpha2.JobSet {
	t.Helper()
	js := &jobsetv1alpha2.JobSet{}
	if err := yaml.UnmarshalStrict([]byte(base), js); err != nil {
		t.Fatal(err)
	}
	Default(js)
	raw, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	js = mergeJSON(t, js, raw)
	Default(js)
	return js
}

// rjs is a patch of the replicated jobs, where each may be changed.
func rjs(coach, oar string) string {
	pod := `{spec: {containers: [{name: c, image: i}]}}`
	if coach == "" {
		coach = "replicas: 1, template: {spec: {parallelism: 1, completions: 1, template: " + pod + "}}"
	}
	if oar == "" {
		oar = "replicas: 3, template: {spec: {parallelism: 2, completions: 2, template: " + pod + "}}"
	}
	return "{spec: {replicatedJobs: [{name: coach, " + coach + "}, {name: oar, " + oar + "}]}}"
}

func TestValidateNew(t *testing.T) {
	all := Config{RestartJob: true, InPlaceRestart: true, ElasticJobSet: true}
	long := strings.Repeat("x", 50)
	tests := map[string]struct {
		c     Config
		patch string
		want  string // part of the error; empty is none
	}{
		"as it is":                       {Config{}, `{}`, ""},
		"no name that is a label":        {Config{}, `{metadata: {name: 2fast}}`, "spec.replicatedJobs[0].name"},
		"a dot in the name":              {Config{}, `{metadata: {name: a.b}}`, "a DNS-1035 label"},
		"generated name, long child":     {Config{}, `{metadata: {name: null, generateName: ring-}, spec: {replicatedJobs: [{name: ` + long + `, template: {spec: {completions: 1}}}]}}`, "no more than 63"},
		"generated name":                 {Config{}, `{metadata: {name: null, generateName: ring-}}`, ""},
		"long pods":                      {Config{}, `{metadata: {name: ` + strings.Repeat("x", 48) + `}, spec: {replicatedJobs: [{name: oar, template: {spec: {completions: 100000}}}]}}`, "its last pod"},
		"long pods without index":        {Config{}, `{metadata: {name: ` + strings.Repeat("x", 48) + `}, spec: {replicatedJobs: [{name: oar, template: {spec: {completionMode: NonIndexed, completions: 100000}}}]}}`, ""},
		"no replicas":                    {Config{}, rjs("", "replicas: 0"), ""},
		"empty":                          {Config{}, `{spec: {replicatedJobs: []}}`, ""},
		"too many pods":                  {Config{}, rjs("", "replicas: 32768, template: {spec: {parallelism: 65536}}"), "replicas × parallelism"},
		"too many Jobs":                  {Config{}, rjs("", "replicas: 100000"), "spec.replicatedJobs[1].replicas: Invalid value: 100000: 100001 Jobs would be made for one job, and integrations.maxChildren allows 100000"},
		"as many Jobs as there may be":   {Config{}, rjs("", "replicas: 99999"), ""},
		"too many for this manager":      {Config{MaxJobs: 3}, `{}`, "spec.replicatedJobs[1].replicas: Invalid value: 3: 4 Jobs would be made for one job, and integrations.maxChildren allows 3"},
		"the most Jobs, twice":           {Config{}, rjs("replicas: 2147483647", "replicas: 2147483647"), "spec.replicatedJobs[0].replicas: Invalid value: 2147483647: 4294967294 Jobs"},
		"group":                          {Config{}, rjs("", "groupName: A_B"), "groupName"},
		"first depends on none":          {Config{}, rjs("dependsOn: []", ""), "spec.replicatedJobs[0].dependsOn"},
		"depends on one before":          {Config{}, rjs("", "dependsOn: [{name: coach, status: Ready}]"), ""},
		"depends on itself":              {Config{}, rjs("", "dependsOn: [{name: oar, status: Ready}]"), "spec.replicatedJobs[1].dependsOn[0].name"},
		"depends on nobody":              {Config{}, rjs("", "dependsOn: [{name: cox, status: Ready}]"), "must be a replicated job that stands earlier"},
		"subdomain":                      {Config{}, `{spec: {network: {subdomain: Row_1}}}`, "spec.network.subdomain"},
		"subdomain starts with a digit":  {Config{}, `{spec: {network: {subdomain: 1row}}}`, "spec.network.subdomain"},
		"good subdomain":                 {Config{}, `{spec: {network: {subdomain: row}}}`, ""},
		"managedBy":                      {Config{}, `{spec: {managedBy: acme.io/x}}`, ""},
		"managedBy without domain":       {Config{}, `{spec: {managedBy: nodomain}}`, "spec.managedBy"},
		"managedBy too long":             {Config{}, `{spec: {managedBy: acme.io/` + strings.Repeat("x", 56) + `}}`, "spec.managedBy: Too long"},
		"success target":                 {Config{}, `{spec: {successPolicy: {operator: All, targetReplicatedJobs: [oar, cox]}}}`, "spec.successPolicy.targetReplicatedJobs[1]"},
		"coordinator":                    {Config{}, `{spec: {coordinator: {replicatedJob: oar, jobIndex: 2, podIndex: 1}}}`, ""},
		"coordinator nowhere":            {Config{}, `{spec: {coordinator: {replicatedJob: cox}}}`, "spec.coordinator.replicatedJob"},
		"coordinator's job":              {Config{}, `{spec: {coordinator: {replicatedJob: oar, jobIndex: 3}}}`, "spec.coordinator.jobIndex"},
		"coordinator's pod":              {Config{}, `{spec: {coordinator: {replicatedJob: oar, podIndex: 2}}}`, "spec.coordinator.podIndex"},
		"coordinator's completions":      {Config{}, `{spec: {coordinator: {replicatedJob: oar}, replicatedJobs: [{name: oar, template: {spec: {parallelism: 2}}}]}}`, "completions set"},
		"coordinator's address":          {Config{}, `{spec: {coordinator: {replicatedJob: oar}, network: {subdomain: ` + long + `xx}}}`, "spec.coordinator: Invalid"},
		"negative restarts":              {Config{}, `{spec: {failurePolicy: {maxRestarts: -1}}}`, "spec.failurePolicy.maxRestarts"},
		"rule name by default":           {Config{}, `{spec: {failurePolicy: {rules: [{action: FailJobSet}, {action: FailJobSet}]}}}`, ""},
		"rule name":                      {Config{}, `{spec: {failurePolicy: {rules: [{name: a-b, action: FailJobSet}]}}}`, "spec.failurePolicy.rules[0].name"},
		"rule name ends in a comma":      {Config{}, `{spec: {failurePolicy: {rules: [{name: "a,", action: FailJobSet}]}}}`, "spec.failurePolicy.rules[0].name"},
		"rule name too long":             {Config{}, `{spec: {failurePolicy: {rules: [{name: ` + strings.Repeat("x", 129) + `, action: FailJobSet}]}}}`, "Too long"},
		"rule name twice":                {Config{}, `{spec: {failurePolicy: {rules: [{name: a, action: FailJobSet}, {name: a, action: FailJobSet}]}}}`, "spec.failurePolicy.rules[1].name: Duplicate"},
		"rule target":                    {Config{}, `{spec: {failurePolicy: {rules: [{action: FailJobSet, targetReplicatedJobs: [cox]}]}}}`, "targetReplicatedJobs[0]"},
		"rule reason":                    {Config{}, `{spec: {failurePolicy: {rules: [{action: FailJobSet, onJobFailureReasons: [BackoffLimitExceeded, Bad]}]}}}`, "onJobFailureReasons[1]: Unsupported"},
		"rule reason of a pod policy":    {Config{}, `{spec: {failurePolicy: {rules: [{action: FailJobSet, onJobFailureReasons: [PodFailurePolicy_x]}]}}}`, ""},
		"rule pattern":                   {Config{}, `{spec: {failurePolicy: {rules: [{action: FailJobSet, onJobFailureMessagePatterns: ["["]}]}}}`, "onJobFailureMessagePatterns[0]"},
		"rule patterns, many":            {Config{}, withPatterns(strings.Repeat(`"a", `, 99)), ""},
		"rule patterns, too many":        {Config{}, withPatterns(strings.Repeat(`"a", `, 100)), "rules[2].onJobFailureMessagePatterns[0]: Forbidden: the rules must not have more than 100 patterns"},
		"rule pattern, too long":         {Config{}, withPatterns(strings.Repeat("a", 1001)), "rules[1].onJobFailureMessagePatterns[0]: Too long"},
		"rule patterns, complex":         {Config{}, withPatterns(strings.Repeat(`"a{900}", `, 20)), ""},
		"rule patterns, too complex":     {Config{}, withPatterns(strings.Repeat(`"a{900}", `, 30)), "rules[1].onJobFailureMessagePatterns[22]: Invalid"},
		"RestartJob off":                 {Config{}, `{spec: {failurePolicy: {rules: [{action: RestartJob}]}}}`, "feature gate RestartJob"},
		"RestartJob":                     {all, `{spec: {failurePolicy: {rules: [{action: RestartJob}]}}}`, ""},
		"RestartJob of too many":         {all, `{spec: {failurePolicy: {rules: [{action: RestartJobAndIgnoreMaxRestarts}]}, replicatedJobs: [{name: oar, replicas: 1025}]}}`, "spec.replicatedJobs[0].replicas"},
		"in place off":                   {Config{}, `{spec: {failurePolicy: {restartStrategy: InPlaceRestart}}}`, "feature gate InPlaceRestart"},
		"in place, pods that fail a Job": {all, `{spec: {failurePolicy: {restartStrategy: InPlaceRestart}}}`, "spec.replicatedJobs[0].template.spec.backoffLimit"},
		"in place, early replacement":    {all, `{spec: {failurePolicy: {restartStrategy: InPlaceRestart}}}`, "podReplacementPolicy"},
		"in place, uneven":               {all, `{spec: {failurePolicy: {restartStrategy: InPlaceRestart}, replicatedJobs: [{name: oar, template: {spec: {backoffLimit: 2147483647, podReplacementPolicy: Failed, parallelism: 1}}}]}}`, "spec.replicatedJobs[0].template.spec.completions"},
		"in place":                       {all, `{spec: {failurePolicy: {restartStrategy: InPlaceRestart}, replicatedJobs: [{name: oar, template: {spec: {backoffLimit: 2147483647, podReplacementPolicy: Failed, parallelism: 1, completions: 1}}}]}}`, ""},
		"claim that nobody mounts":       {Config{}, `{spec: {volumeClaimPolicies: [{templates: [{metadata: {name: data}}]}]}}`, "no container"},
		"claim":                          {Config{}, withClaim("data", ""), ""},
		"claim with a bad name":          {Config{}, withClaim("Data", ""), "spec.volumeClaimPolicies[0].templates[0].metadata.name"},
		"claim with a long name":         {Config{}, withClaim(strings.Repeat("d", 59), ""), "more than 63"},
		"claim beside a volume":          {Config{}, withClaim("data", "volumes: [{name: data}], "), "has a volume of that name"},
		"claim twice":                    {Config{}, `{spec: {volumeClaimPolicies: [{templates: [{metadata: {name: d}}]}, {templates: [{metadata: {name: d}}]}]}}`, "templates[0].metadata.name: Duplicate"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check(t, test.c.Validate(edited(t, test.patch), nil).ToAggregate(), test.want)
		})
	}
}

func withPatterns(list string) string {
	return `{spec: {failurePolicy: {rules: [{action: FailJobSet}, {action: FailJobSet, onJobFailureMessagePatterns: [` + list + `]}, {action: FailJobSet, onJobFailureMessagePatterns: [b]}]}}}`
}

func withClaim(name, pod string) string {
	return `{spec: {volumeClaimPolicies: [{templates: [{metadata: {name: ` + name + `}}]}], replicatedJobs: [{name: oar, template: {spec: {template: {spec: {` + pod +
		`containers: [{name: c, image: i, volumeMounts: [{name: ` + name + `, mountPath: /d}]}]}}}}}]}}`
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil && want != "":
		t.Errorf("accepted, want %q", want)
	case err != nil && want == "":
		t.Errorf("refused: %v", err)
	case err != nil && !strings.Contains(err.Error(), want):
		t.Errorf("%v\nwant %q", err, want)
	}
}

func TestValidateChange(t *testing.T) {
	oar := func(fields string) string {
		return rjs("", "replicas: 3, template: {spec: {parallelism: 2, completions: 2, template: {"+fields+"}}}")
	}
	resized := func(parallelism, completions string) string {
		return rjs("", "replicas: 3, template: {spec: {parallelism: "+parallelism+", completions: "+completions+", template: {spec: {containers: [{name: c, image: i}]}}}}")
	}
	moved := oar(`metadata: {labels: {a: b}, annotations: {a: b}}, spec: {nodeSelector: {a: b}, tolerations: [{key: k}], schedulingGates: [{name: g}], containers: [{name: c, image: i}]}`)
	suspend := func(patch string) string { return strings.Replace(patch, "{spec: {", "{spec: {suspend: true, ", 1) }
	finished := func(patch string) string {
		return strings.TrimSuffix(patch, "}") + `, status: {conditions: [{type: Completed, status: "True"}]}}`
	}
	const ofTrainJob = `{metadata: {ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: lark, uid: u, controller: true}]}}`
	elastic := Config{ElasticJobSet: true}
	immutable := "spec.replicatedJobs[1]: Invalid"
	tests := map[string]struct {
		c        Config
		old, new string
		want     string
	}{
		"nothing":                            {Config{}, `{}`, `{}`, ""},
		"suspend":                            {Config{}, `{}`, `{spec: {suspend: true}}`, ""},
		"managedBy later":                    {Config{}, `{}`, `{spec: {managedBy: acme.io/x}}`, "spec.managedBy"},
		"managedBy gone":                     {Config{}, `{spec: {managedBy: acme.io/x}}`, `{}`, "spec.managedBy"},
		"selectors while running":            {Config{}, `{}`, moved, immutable},
		"selectors and suspend":              {Config{}, `{}`, suspend(moved), ""},
		"selectors while suspended":          {Config{}, `{spec: {suspend: true}}`, suspend(moved), ""},
		"selectors and resume":               {Config{}, `{spec: {suspend: true}}`, moved, ""},
		"image while suspended":              {Config{}, `{spec: {suspend: true}}`, suspend(oar(`spec: {containers: [{name: c, image: j}]}`)), immutable},
		"affinity while suspended":           {Config{}, `{spec: {suspend: true}}`, suspend(oar(`spec: {affinity: {nodeAffinity: {}}, containers: [{name: c, image: i}]}`)), immutable},
		"labels of the Job while suspended":  {Config{}, `{spec: {suspend: true}}`, suspend(rjs("", `replicas: 3, template: {metadata: {labels: {a: b}}, spec: {parallelism: 2, completions: 2, template: {spec: {containers: [{name: c, image: i}]}}}}`)), immutable},
		"replicas while suspended":           {Config{}, `{spec: {suspend: true}}`, suspend(strings.Replace(rjs("", ""), "replicas: 3", "replicas: 4", 1)), immutable},
		"one less":                           {Config{}, `{spec: {suspend: true}}`, `{spec: {suspend: true, replicatedJobs: [{name: coach}]}}`, "neither added, removed"},
		"another order":                      {Config{}, `{spec: {suspend: true}}`, `{spec: {suspend: true, replicatedJobs: [{name: oar}, {name: coach}]}}`, "neither added, removed"},
		"resized with the gate off":          {Config{}, `{}`, resized("4", "4"), immutable},
		"resized":                            {elastic, `{}`, resized("4", "4"), ""},
		"resized, of a TrainJob":             {elastic, ofTrainJob, resized("4", "4"), "spec.replicatedJobs[1].template.spec.parallelism: Forbidden: the JobSet belongs to TrainJob lark; create a new TrainJob"},
		"suspended, of a TrainJob":           {elastic, ofTrainJob, `{spec: {suspend: true}}`, ""},
		"resized unevenly":                   {elastic, `{}`, resized("4", "3"), "must be equal to parallelism, 4"},
		"resized too far":                    {elastic, `{}`, resized("2147483647", "2147483647"), "spec.replicatedJobs[1].template.spec.parallelism: Invalid value: 6442450941: replicas × parallelism must not exceed"},
		"resized to nothing":                 {elastic, `{}`, resized("0", "0"), "must be at least 1"},
		"resized after the end":              {elastic, finished(`{spec: {}}`), resized("4", "4"), "has finished"},
		"resized with another image":         {elastic, `{}`, strings.ReplaceAll(resized("4", "4"), "image: i", "image: j"), immutable},
		"resized without index":              {elastic, rjs("", "replicas: 3, template: {spec: {completionMode: NonIndexed}}"), rjs("", "replicas: 3, template: {spec: {completionMode: NonIndexed, parallelism: 4}}"), immutable},
		"failure policy removed":             {Config{}, `{spec: {failurePolicy: {maxRestarts: 1}}}`, `{}`, ""},
		"failure policy appears":             {Config{}, `{}`, `{spec: {failurePolicy: {maxRestarts: 1}}}`, ""},
		"bad failure policy appears":         {Config{}, `{}`, `{spec: {failurePolicy: {rules: [{name: a-b, action: FailJobSet}]}}}`, "spec.failurePolicy.rules[0].name"},
		"bad failure policy stays":           {Config{}, `{spec: {failurePolicy: {rules: [{name: a-b, action: FailJobSet}]}}}`, `{spec: {suspend: true, failurePolicy: {rules: [{name: a-b, action: FailJobSet}]}}}`, ""},
		"bad success policy appears":         {Config{}, `{spec: {successPolicy: null}}`, `{spec: {successPolicy: {operator: Any, targetReplicatedJobs: [cox]}}}`, "spec.successPolicy"},
		"bad network appears":                {Config{}, `{spec: {network: null}}`, `{spec: {network: {subdomain: Row_1}}}`, "spec.network.subdomain"},
		"bad claims appear":                  {Config{}, `{}`, `{spec: {volumeClaimPolicies: [{templates: [{metadata: {name: data}}]}]}}`, ""},
		"bad coordinator, which is not seen": {Config{}, `{}`, `{spec: {coordinator: {replicatedJob: cox}}}`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old, js := edited(t, test.old), edited(t, test.new)
			switch {
			case strings.HasPrefix(name, "bad success"):
				old.Spec.SuccessPolicy = nil
			case strings.HasPrefix(name, "bad network"):
				old.Spec.Network = nil
			}
			check(t, test.c.Validate(js, old).ToAggregate(), test.want)
		})
	}
}

// Default keeps what is there, and is done once.
func TestDefault(t *testing.T) {
	js := edited(t, `{spec: {network: {enableDNSHostnames: false}, successPolicy: {operator: Any}, startupPolicy: {startupPolicyOrder: InOrder},
		volumeClaimPolicies: [{}, {retentionPolicy: {whenDeleted: Retain}}],
		failurePolicy: {rules: [{name: own, action: FailJobSet}, {action: FailJobSet}]},
		replicatedJobs: [{name: a, template: {spec: {completionMode: NonIndexed, template: {spec: {restartPolicy: Never}}}}}, {name: b}]}}`)
	s := js.Spec
	if *s.Network.EnableDNSHostnames || !*s.Network.PublishNotReadyAddresses || s.SuccessPolicy.Operator != "Any" || s.StartupPolicy.StartupPolicyOrder != "InOrder" ||
		s.VolumeClaimPolicies[0].RetentionPolicy.WhenDeleted != "Delete" || s.VolumeClaimPolicies[1].RetentionPolicy.WhenDeleted != "Retain" ||
		s.FailurePolicy.Rules[0].Name != "own" || s.FailurePolicy.Rules[1].Name != "failurePolicyRule1" {
		t.Errorf("%+v", s)
	}
	a, b := s.ReplicatedJobs[0].Template.Spec, s.ReplicatedJobs[1].Template.Spec
	if *a.CompletionMode != "NonIndexed" || a.Template.Spec.RestartPolicy != "Never" || *b.CompletionMode != "Indexed" || b.Template.Spec.RestartPolicy != "OnFailure" {
		t.Errorf("%+v, %+v", a, b)
	}
	again := js.DeepCopy()
	Default(again)
	if toYAML(t, again) != toYAML(t, js) {
		t.Error("defaulting twice is not the same as once")
	}
}

func TestValidateClaims(t *testing.T) {
	template := `{metadata: {name: data}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}`
	js := func(policy string) *jobsetv1alpha2.JobSet {
		return edited(t, `{spec: {volumeClaimPolicies: [{templates: [`+template+`], retentionPolicy: {whenDeleted: `+policy+`}}]}}`)
	}
	have := func(spec string) map[string]*corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-ring"}}
		if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
			t.Fatal(err)
		}
		return map[string]*corev1.PersistentVolumeClaim{"data-ring": c}
	}
	change := func(claims map[string]*corev1.PersistentVolumeClaim, f func(*corev1.PersistentVolumeClaim)) map[string]*corev1.PersistentVolumeClaim {
		f(claims["data-ring"])
		return claims
	}
	deleted := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }
	ofJobSet := func(name string) func(c *corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: jobsetv1alpha2.KindJobSet, Name: name, UID: "u", Controller: new(true)}}
		}
	}
	const gone = "is being deleted; create the JobSet when it is gone"
	bound := `{accessModes: [ReadWriteMany], resources: {requests: {storage: 1024Mi}}, storageClassName: standard, volumeMode: Filesystem, volumeName: pv-1}`
	tests := map[string]struct {
		policy string
		have   map[string]*corev1.PersistentVolumeClaim
		want   string
	}{
		"none":          {"Delete", nil, ""},
		"to be deleted": {"Delete", have(bound), "spec.volumeClaimPolicies[0].retentionPolicy.whenDeleted"},
		"bound":         {"Retain", have(bound), ""},
		"other modes":   {"Retain", have(`{accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`), "templates[0].spec.accessModes"},
		"other size":    {"Retain", have(`{accessModes: [ReadWriteMany], resources: {requests: {storage: 2Gi}}}`), "templates[0].spec.resources.requests"},

		"being deleted":             {"Delete", change(have(bound), deleted), gone},
		"other size, being deleted": {"Retain", change(have(`{}`), deleted), gone},
		"of an earlier JobSet":      {"Delete", change(have(bound), ofJobSet("ring")), gone},
		"of another JobSet":         {"Delete", change(have(bound), ofJobSet("other")), "exists already"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check(t, ValidateClaims(js(test.policy), test.have).ToAggregate(), test.want)
		})
	}
}

func TestWarnings(t *testing.T) {
	js := edited(t, `{spec: {volumeClaimPolicies: [{templates: [{metadata: {name: d}}]}], replicatedJobs: [
		{name: a, template: {metadata: {annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}, spec: {completionMode: NonIndexed, ttlSecondsAfterFinished: 5, template: {spec: {restartPolicy: Always}}}}},
		{name: b, template: {metadata: {labels: {kueue.x-k8s.io/queue-name: lq}}, spec: {template: {spec: {containers: [{name: c}]}}}}}]}}`)
	got := strings.Join(Warnings(js), "\n")
	for _, want := range []string{
		"spec.replicatedJobs[0].template.spec.ttlSecondsAfterFinished", "spec.replicatedJobs[0].template.spec.completionMode",
		"spec.replicatedJobs[0].template.spec.template.spec.containers:", "restartPolicy", "spec.replicatedJobs[1].template.spec.template.spec.containers[0]",
		"spec.volumeClaimPolicies[0].templates[0].spec", "spec.replicatedJobs[1].template.metadata.labels[kueue.x-k8s.io/queue-name]",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no warning about %s in\n%s", want, got)
		}
	}
	js.Labels = map[string]string{kueue.QueueNameLabel: "lq"}
	if got := strings.Join(Warnings(js), "\n"); strings.Contains(got, kueue.QueueNameLabel) {
		t.Errorf("a queued JobSet: %s", got)
	}
	if w := Warnings(edited(t, `{}`)); len(w) > 0 {
		t.Errorf("%v", w)
	}
}
