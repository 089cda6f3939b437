package ray_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/ray"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/job/plan/view/viewtest"
)

var parse = viewtest.Parse

var setting = &plan.Setting{Config: &plan.Config{Topology: true}}

const head = "headGroupSpec: {template: {spec: {containers: [{name: c, image: rayproject/ray, resources: {requests: {cpu: 100m}}}]}}}"

// describe lists pod sets with their containers and requests.
func describe(t *testing.T, d *plan.Descriptor, o plan.Object) []string {
	t.Helper()
	sets, err := d.PodSets(o, setting)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, s := range sets {
		line := fmt.Sprintf("%s:%d", s.Name, s.Count)
		for _, c := range s.Template.Spec.Containers {
			line += fmt.Sprintf(" %s(%s, %s)", c.Name, c.Resources.Requests.Cpu(), c.Resources.Requests.Memory())
		}
		if s.TopologyRequest != nil {
			t.Errorf("%s has topology request %v", s.Name, s.TopologyRequest)
		}
		out = append(out, line)
	}
	return out
}

func TestClusterPodSets(t *testing.T) {
	group := func(rest string) string {
		return "{" + head + ", workerGroupSpecs: [{groupName: Big" + rest + ", template: {spec: {}}}]}"
	}
	tests := map[string]struct {
		spec, annotations string
		want              []string
	}{
		"head alone":       {spec: "{" + head + "}", want: []string{"head:1 c(100m, 0)"}},
		"no replicas":      {spec: group(""), want: []string{"head:1 c(100m, 0)", "big:1"}},
		"replicas":         {spec: group(", replicas: 4, minReplicas: 0, maxReplicas: 10"), want: []string{"head:1 c(100m, 0)", "big:4"}},
		"less than least":  {spec: group(", replicas: 1, minReplicas: 3"), want: []string{"head:1 c(100m, 0)", "big:3"}},
		"more than most":   {spec: group(", replicas: 9, maxReplicas: 3"), want: []string{"head:1 c(100m, 0)", "big:3"}},
		"several hosts":    {spec: group(", replicas: 2, numOfHosts: 4"), want: []string{"head:1 c(100m, 0)", "big:8"}},
		"a suspended one":  {spec: group(", replicas: 2, minReplicas: 1, suspend: true"), want: []string{"head:1 c(100m, 0)", "big:0"}},
		"tolerates faults": {spec: "{gcsFaultToleranceOptions: {}, " + head + "}", want: []string{"head:1 c(200m, 256Mi)"}},
		"by annotation":    {spec: "{" + head + "}", annotations: `{ray.io/ft-enabled: "true"}`, want: []string{"head:1 c(200m, 256Mi)"}},
		"scales by itself": {spec: "{enableInTreeAutoscaling: true, " + head + "}", want: []string{"head:1 c(100m, 0) autoscaler(500m, 512Mi)"}},
		"scaler's size": {
			spec: "{enableInTreeAutoscaling: true, autoscalerOptions: {resources: {requests: {cpu: 2}}}, " + head + "}",
			want: []string{"head:1 c(100m, 0) autoscaler(2, 0)"},
		},
		"no head": {spec: "{workerGroupSpecs: []}", want: []string{"spec.headGroupSpec.template is missing: a cluster needs a head"}},
	}
	for name, tc := range tests {
		o := parse(t, "kind: X\nmetadata: {annotations: "+tc.annotations+"}\nspec: "+tc.spec)
		before := o.DeepCopy()
		if diff := cmp.Diff(tc.want, describe(t, ray.Cluster(ray.Settings{}), o)); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
		if diff := cmp.Diff(before.Object, o.Object); diff != "" {
			t.Errorf("%s: looking changed it:\n%s", name, diff)
		}
	}
}

func TestJobPodSets(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []string
	}{
		"no mode":        {"{rayClusterSpec: {" + head + "}}", []string{"head:1 c(100m, 0)", "submitter:1 ray-job-submitter(500m, 200Mi)"}},
		"own submitter":  {"{submissionMode: K8sJobMode, submitterPodTemplate: {spec: {containers: [{name: own}]}}, rayClusterSpec: {" + head + "}}", []string{"head:1 c(100m, 0)", "submitter:1 own(0, 0)"}},
		"in the head":    {"{submissionMode: SidecarMode, rayClusterSpec: {" + head + "}}", []string{"head:1 c(100m, 0) ray-job-submitter(500m, 200Mi)"}},
		"by HTTP":        {"{submissionMode: HTTPMode, rayClusterSpec: {" + head + "}}", []string{"head:1 c(100m, 0)"}},
		"by a user":      {"{submissionMode: InteractiveMode, rayClusterSpec: {" + head + "}}", []string{"head:1 c(100m, 0)"}},
		"no cluster":     {"{}", []string{"spec.rayClusterSpec.headGroupSpec.template is missing: a cluster needs a head"}},
		"empty head pod": {"{rayClusterSpec: {headGroupSpec: {template: {}}}}", []string{"head:1", "submitter:1 ray-job-submitter(500m, 200Mi)"}},
	}
	for name, tc := range tests {
		if diff := cmp.Diff(tc.want, describe(t, ray.Job(ray.Settings{}), parse(t, "kind: X\nspec: "+tc.spec))); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

// TestSubmitterIsWritten: the first start writes the submitter's template to the spec, where it stays.
func TestSubmitterIsWritten(t *testing.T) {
	d := ray.Job(ray.Settings{})
	o := parse(t, "kind: X\nspec: {suspend: true, rayClusterSpec: {"+head+"}}")
	before, err := d.PodSets(o, setting)
	if err != nil {
		t.Fatal(err)
	}
	info := plan.PodSetInfo{NodeSelector: map[string]string{"pool": "h100"}}
	if err := d.Start(o, []plan.PodSetInfo{info, info}, setting); err != nil {
		t.Fatal(err)
	}
	template := func() map[string]any { return view.Map(o.Object, "spec", "submitterPodTemplate", "spec") }
	if got := view.String(template(), "nodeSelector", "pool"); got != "h100" || view.Maps(template(), "containers")[0]["image"] != "rayproject/ray" {
		t.Errorf("submitter %v", template())
	}
	d.Suspend(o)
	if !d.Restore(o, before) || template() == nil || view.Map(template(), "nodeSelector") != nil {
		t.Errorf("restored: submitter %v", template())
	}
	after, err := d.PodSets(o, setting)
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("the pod sets have changed (%v) -want +got:\n%s", err, diff)
	}
}

func TestStatus(t *testing.T) {
	tests := map[string]struct {
		d      *plan.Descriptor
		status string
		want   string // active, ready, on hold, finished, success
	}{
		"cluster: never seen": {ray.Cluster(ray.Settings{}), "{}", "false false false false false"},
		"cluster: starting":   {ray.Cluster(ray.Settings{}), "{observedGeneration: 1}", "true false false false false"},
		"cluster: ready":      {ray.Cluster(ray.Settings{}), "{state: ready}", "true true false false false"},
		"cluster: suspended":  {ray.Cluster(ray.Settings{}), "{state: suspended}", "false false false false false"},
		"cluster: resumed":    {ray.Cluster(ray.Settings{}), "{state: suspended, conditions: [{type: RayClusterSuspended, status: 'False'}]}", "true false false false false"},
		"cluster: no pods":    {ray.Cluster(ray.Settings{}), "{state: suspended, conditions: [{type: RayClusterSuspended, status: 'True'}]}", "false false false false false"},
		"job: new":            {ray.Job(ray.Settings{}), "{}", "false false false false false"},
		"job: running":        {ray.Job(ray.Settings{}), "{jobDeploymentStatus: Running, rayClusterStatus: {state: ready}}", "true true false false false"},
		"job: retrying":       {ray.Job(ray.Settings{}), "{jobDeploymentStatus: Retrying}", "true false false false false"},
		"job: refused":        {ray.Job(ray.Settings{}), "{jobDeploymentStatus: ValidationFailed}", "true false true false false"},
		"job: suspended":      {ray.Job(ray.Settings{}), "{jobDeploymentStatus: Suspended}", "false false false false false"},
		"job: complete":       {ray.Job(ray.Settings{}), "{jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}", "true false false true true"},
		"job: stopped":        {ray.Job(ray.Settings{}), "{jobDeploymentStatus: Complete, jobStatus: STOPPED}", "true false false true false"},
		"job: failed":         {ray.Job(ray.Settings{}), "{jobDeploymentStatus: Failed, jobStatus: FAILED}", "true false false true false"},
	}
	for name, tc := range tests {
		o := parse(t, "kind: X\nspec: {rayClusterSpec: {"+head+"}, "+head+"}\nstatus: "+tc.status)
		hold := tc.d.States != nil && tc.d.States.OnHold(o)
		_, success, finished := tc.d.Finished(o)
		if got := fmt.Sprint(tc.d.IsActive(o), tc.d.PodsReady(o, setting), hold, finished, finished && success); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestValidate(t *testing.T) {
	many := "workerGroupSpecs: [" + strings.Repeat("{groupName: g, template: {spec: {}}},", 17) + "]"
	tests := map[string]struct {
		d        *plan.Descriptor
		spec     string
		unqueued bool
		want     []string
	}{
		"cluster":                    {d: ray.Cluster(ray.Settings{}), spec: "{" + head + "}"},
		"cluster scales":             {d: ray.Cluster(ray.Settings{}), spec: "{enableInTreeAutoscaling: true, " + head + "}", want: []string{"spec.enableInTreeAutoscaling"}},
		"nobody queues it":           {d: ray.Cluster(ray.Settings{}), spec: "{enableInTreeAutoscaling: true, " + head + "}", unqueued: true},
		"17 groups":                  {d: ray.Cluster(ray.Settings{}), spec: "{" + head + ", " + many + "}"},
		"17 groups and a submitter":  {d: ray.Job(ray.Settings{}), spec: "{shutdownAfterJobFinishes: true, rayClusterSpec: {" + head + ", " + many + "}}", want: []string{"spec.rayClusterSpec.workerGroupSpecs"}},
		"a group named head":         {d: ray.Cluster(ray.Settings{}), spec: "{" + head + ", workerGroupSpecs: [{groupName: Head, template: {spec: {}}}]}", want: []string{"spec.workerGroupSpecs[0].groupName"}},
		"a bad topology":             {d: ray.Cluster(ray.Settings{}), spec: "{headGroupSpec: {template: {metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: A B}}}}}", unqueued: true, want: []string{"spec.headGroupSpec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]"}},
		"job":                        {d: ray.Job(ray.Settings{}), spec: "{shutdownAfterJobFinishes: true, rayClusterSpec: {" + head + "}}"},
		"job stays":                  {d: ray.Job(ray.Settings{}), spec: "{rayClusterSpec: {" + head + "}}", want: []string{"spec.shutdownAfterJobFinishes"}},
		"job selects":                {d: ray.Job(ray.Settings{}), spec: "{clusterSelector: {a: b}}"},
		"job selects and brings":     {d: ray.Job(ray.Settings{}), spec: "{clusterSelector: {a: b}, rayClusterSpec: {" + head + "}}", want: []string{"spec.clusterSelector"}},
		"job does neither":           {d: ray.Job(ray.Settings{}), spec: "{}", want: []string{"spec.rayClusterSpec"}},
		"job does neither, unqueued": {d: ray.Job(ray.Settings{}), spec: "{}", unqueued: true},
		"job, said":                  {d: ray.Job(ray.Settings{}), spec: "{submissionMode: K8sJobMode, shutdownAfterJobFinishes: true, rayClusterSpec: {" + head + "}}"},
		"job in the head":            {d: ray.Job(ray.Settings{}), spec: "{submissionMode: SidecarMode, shutdownAfterJobFinishes: true, rayClusterSpec: {" + head + "}}"},
		"job by HTTP":                {d: ray.Job(ray.Settings{}), spec: "{submissionMode: HTTPMode, shutdownAfterJobFinishes: true, rayClusterSpec: {" + head + "}}"},
		"job waits for a user":       {d: ray.Job(ray.Settings{}), spec: "{submissionMode: InteractiveMode, shutdownAfterJobFinishes: true, rayClusterSpec: {" + head + "}}"},
		"job waits, and stays":       {d: ray.Job(ray.Settings{}), spec: "{submissionMode: InteractiveMode, rayClusterSpec: {" + head + "}}", want: []string{"spec.shutdownAfterJobFinishes"}},
		"job selects, and waits":     {d: ray.Job(ray.Settings{}), spec: "{submissionMode: InteractiveMode, clusterSelector: {a: b}}"},
	}
	for name, tc := range tests {
		o := parse(t, "kind: X\nspec: "+tc.spec)
		if !tc.unqueued {
			o.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
		}
		var got []string
		for _, e := range tc.d.Validate(o, nil, setting) {
			got = append(got, e.Field)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
	elastic := &plan.Setting{Config: &plan.Config{ElasticJobs: true}}
	scales := parse(t, "kind: X\nmetadata: {labels: {kueue.x-k8s.io/queue-name: lq}, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}\nspec: {enableInTreeAutoscaling: true, "+head+"}")
	if errs := ray.Cluster(ray.Settings{}).Validate(scales, nil, elastic); len(errs) != 1 || errs[0].Field != "spec.headGroupSpec.template.spec.schedulingGates" {
		t.Errorf("the pods of an elastic cluster have a gate: %v", errs)
	}
	ray.Cluster(ray.Settings{}).Default(scales, true, &plan.Setting{Config: elastic.Config, Mode: plan.Managed})
	if errs := ray.Cluster(ray.Settings{}).Validate(scales, nil, elastic); len(errs) > 0 {
		t.Errorf("an elastic cluster may scale by itself: %v", errs)
	}
	view.Set(scales.Object, kueue.MultiKueueControllerName, "spec", "managedBy")
	if errs := ray.Cluster(ray.Settings{}).Validate(scales, nil, elastic); len(errs) != 1 {
		t.Errorf("but not on another cluster: %v", errs)
	}
	selects := parse(t, "kind: X\nspec: {clusterSelector: {a: b}}")
	if d := ray.Job(ray.Settings{}); !d.Skips(selects) || d.Skips(parse(t, "kind: X\nspec: {}")) {
		t.Error("jobs on a cluster that exists are left alone, and no others")
	}
}

// TestGates: the templates of an elastic cluster get the gate once, if a Workload will ungate its pods.
func TestGates(t *testing.T) {
	const group = ", workerGroupSpecs: [{groupName: a, template: {spec: {schedulingGates: [{name: other}]}}}]"
	const ofJob = "ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: j, uid: u, controller: true}]"
	tests := map[string]struct {
		meta string
		mode plan.Mode
		off  bool
		want int
	}{
		"queued":                   {mode: plan.Managed, want: 2},
		"not queued":               {mode: plan.Ignored},
		"of an elastic job":        {meta: ofJob, mode: plan.Follows, want: 2},
		"of a job that waits not":  {meta: ofJob, mode: plan.Ignored},
		"of some other kind":       {meta: strings.ReplaceAll(ofJob, "RayJob", "AppWrapper"), mode: plan.Follows},
		"the feature gate is off":  {mode: plan.Managed, off: true},
		"in an unmanaged space":    {mode: plan.Unmanaged},
		"an old version of RayJob": {meta: strings.ReplaceAll(ofJob, "v1", "v1alpha1"), mode: plan.Follows},
	}
	for name, tc := range tests {
		o := parse(t, "kind: X\nmetadata: {annotations: {kueue.x-k8s.io/elastic-job: \"true\"}, "+tc.meta+"}\nspec: {"+head+group+"}")
		for range 2 {
			ray.Cluster(ray.Settings{}).Default(o, tc.mode == plan.Managed, &plan.Setting{Config: &plan.Config{ElasticJobs: !tc.off}, Mode: tc.mode})
		}
		raw, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(raw), `{"name":"`+kueue.ElasticJobSchedulingGate+`"}`); got != tc.want {
			t.Errorf("%s: %d gates, want %d: %s", name, got, tc.want, raw)
		}
	}
}

// TestAppliedAgain: a client that applies the manifest of an elastic cluster with another number of workers writes its templates anew. They
// keep the gate, and while the cluster runs the values of its start.
func TestAppliedAgain(t *testing.T) {
	const manifest = "kind: RayCluster\nmetadata: {name: c, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}\n" +
		"spec: {" + head + ", workerGroupSpecs: [{groupName: Big, replicas: 1, template: {metadata: {labels: {mine: a}}, spec: {containers: []}}}]}"
	in := &plan.Setting{Config: &plan.Config{ElasticJobs: true}, Mode: plan.Managed}
	d := ray.Cluster(ray.Settings{})
	started := parse(t, manifest)
	d.Default(started, true, in)
	before, err := d.PodSets(started, in)
	if err != nil {
		t.Fatal(err)
	}
	var infos []plan.PodSetInfo
	for _, s := range before {
		infos = append(infos, plan.PodSetInfo{
			Name: s.Name, Labels: map[string]string{kueue.PodSetLabel: string(s.Name)}, Annotations: map[string]string{kueue.WorkloadSliceNameAnnotation: "w"},
			NodeSelector: map[string]string{"pool": "h100"}, SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}},
		})
	}
	podset.Annotate(started, plan.InjectedAnnotation, podset.Injected(before, infos))
	if err := d.Start(started, infos, in); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		mode          plan.Mode
		was, is       bool
		gated, values bool
	}{
		"it runs":       {mode: plan.Managed, gated: true, values: true},
		"it waits":      {mode: plan.Managed, was: true, is: true, gated: true},
		"it is stopped": {mode: plan.Managed, is: true, gated: true},
		"it starts":     {mode: plan.Managed, was: true, gated: true},
		"not queued":    {mode: plan.Ignored},
	} {
		o, old, in := parse(t, strings.Replace(manifest, "replicas: 1", "replicas: 3", 1)), started.DeepCopy(), *in
		in.Mode = tc.mode
		view.Set(old.Object, tc.was, "spec", "suspend")
		view.Set(o.Object, tc.is, "spec", "suspend")
		want := started.DeepCopy()
		if !tc.values {
			want = o.DeepCopy()
		}
		if tc.gated && !tc.values {
			d.Default(want, true, &in)
		}
		view.Set(want.Object, tc.is, "spec", "suspend")
		view.Maps(want.Object, "spec", "workerGroupSpecs")[0]["replicas"] = int64(3)
		for range 2 {
			if _, errs := d.Guard.Check(o, old, &in); len(errs) > 0 {
				t.Errorf("%s: %v", name, errs)
			}
		}
		if diff := cmp.Diff(want.Object, o.Object); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

// TestCountsOfTheCluster: an elastic job that scales by itself has as many workers as its live cluster.
func TestCountsOfTheCluster(t *testing.T) {
	const workers = ", enableInTreeAutoscaling: true, workerGroupSpecs: [{groupName: Big, replicas: 1, template: {spec: {}}}]"
	cluster := func(owner, spec string) view.Object {
		o := parse(t, "kind: RayCluster\nmetadata: {name: c, generation: 7, ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: j, uid: "+owner+", controller: true}]}\nspec: {"+spec+"}")
		return o
	}
	tests := map[string]struct {
		annotations, suspend string
		child                view.Object
		want                 string
		generation           string
	}{
		"no cluster":         {want: "big:1"},
		"its cluster":        {child: cluster("u", "workerGroupSpecs: [{groupName: big, replicas: 4}]"), want: "big:4", generation: "7"},
		"somebody else's":    {child: cluster("v", "workerGroupSpecs: [{groupName: big, replicas: 4}]"), want: "big:1"},
		"suspended":          {suspend: "suspend: true, ", child: cluster("u", "workerGroupSpecs: [{groupName: big, replicas: 4}]"), want: "big:1"},
		"a group it has not": {child: cluster("u", "workerGroupSpecs: [{groupName: other, replicas: 4}]"), want: "cluster c has a group of workers other that its RayJob does not have", generation: "7"},
	}
	for name, tc := range tests {
		o := parse(t, "kind: RayJob\nmetadata: {name: j, uid: u, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}\nstatus: {rayClusterName: c}\nspec: {"+tc.suspend+"submissionMode: HTTPMode, rayClusterSpec: {"+head+workers+"}}")
		d := ray.Job(ray.Settings{})
		in := &plan.Setting{Config: &plan.Config{ElasticJobs: true}, Objects: map[plan.Reference]plan.Object{}}
		if refs := d.Refers(o); tc.child != nil {
			in.Objects[refs[0]] = tc.child
		}
		got := ""
		if sets, err := d.PodSets(o, in); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%s:%d", sets[1].Name, sets[1].Count)
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		changed := d.Elastic.Annotate(o, in)
		if got := o.GetAnnotations()[kueue.RayClusterGenerationAnnotation]; got != tc.generation || changed != (tc.generation != "") || d.Elastic.Annotate(o, in) {
			t.Errorf("%s: generation %q, changed %v", name, got, changed)
		}
		if extra := d.Elastic.NameExtra(o); strings.TrimPrefix(extra, "_") != tc.generation {
			t.Errorf("%s: %q in names", name, extra)
		}
	}
}

// TestCurrent: a cluster matches its service after KubeRay's normalization, and after changes of ignored fields.
func TestCurrent(t *testing.T) {
	const spec = "rayVersion: '2', headGroupSpec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}"
	const group = "{groupName: a, replicas: 2, template: {spec: {containers: [{name: w, image: x}]}}}"
	tests := map[string]struct {
		goal, child string
		want        bool
	}{
		"the same":             {spec, spec, true},
		"written by KubeRay":   {spec, strings.Replace(strings.Replace(spec, "cpu: 1", "cpu: 1000m", 1), "headGroupSpec: {", "headGroupSpec: {rayStartParams: {}, ", 1), true},
		"held":                 {spec, spec + ", suspend: true", true},
		"scaled":               {spec + ", workerGroupSpecs: [" + group + "]", spec + ", workerGroupSpecs: [" + strings.Replace(group, "replicas: 2", "replicas: 7, scaleStrategy: {workersToDelete: [x]}", 1) + "]", true},
		"gated":                {spec, strings.Replace(spec, "containers:", "schedulingGates: [{name: g}], tolerations: [{key: k}], containers:", 1), true},
		"a group is added":     {spec + ", workerGroupSpecs: [" + group + "]", spec, true},
		"a group is gone":      {spec, spec + ", workerGroupSpecs: [" + group + "]", false},
		"another group":        {spec + ", workerGroupSpecs: [" + group + "]", spec + ", workerGroupSpecs: [" + strings.Replace(group, "image: x", "image: y", 1) + "]", false},
		"asks for more":        {spec, strings.Replace(spec, "cpu: 1", "cpu: 2", 1), false},
		"of another version":   {spec, strings.Replace(spec, "'2'", "'3'", 1), false},
		"with a node selector": {spec, strings.Replace(spec, "containers:", "nodeSelector: {a: b}, containers:", 1), false},
	}
	for name, tc := range tests {
		goal, child := parse(t, "kind: X\nspec: {"+tc.goal+"}"), parse(t, "kind: X\nspec: {"+tc.child+"}")
		if got := ray.IsCurrent(view.Map(child.Object, "spec"), view.Map(goal.Object, "spec")); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSuspendedService: spec.suspend alone suspends a service, unless this KubeRay has none.
func TestSuspendedService(t *testing.T) {
	tests := map[string]struct {
		spec         string
		want, legacy bool
	}{
		"both":                      {"{suspend: true, rayClusterConfig: {suspend: true}}", true, true},
		"neither":                   {"{rayClusterConfig: {}}", false, false},
		"its clusters alone":        {"{rayClusterConfig: {suspend: true}}", false, true},
		"gated clusters of one":     {"{suspend: false, rayClusterConfig: {suspend: true}}", false, false},
		"the service, not clusters": {"{suspend: true, rayClusterConfig: {suspend: false}}", true, true},
	}
	legacy := ray.Settings{Legacy: &atomic.Bool{}}
	legacy.Legacy.Store(true)
	for name, tc := range tests {
		o := parse(t, "kind: X\nspec: "+tc.spec)
		if got := ray.Service(ray.Settings{}).IsSuspended(o); got != tc.want {
			t.Errorf("%s: suspended %v", name, got)
		}
		if got := ray.Service(legacy).IsSuspended(o); got != tc.legacy {
			t.Errorf("%s: without spec.suspend, suspended %v", name, got)
		}
	}
}

// TestStoppedService: a service that its user suspends counts as suspended for the rules of updates. One that was suspended before may not say
// in the same breath that its clusters run.
func TestStoppedService(t *testing.T) {
	d, in := ray.Service(ray.Settings{Gating: true}), &plan.Setting{Config: &plan.Config{ElasticJobs: true}, Mode: plan.Managed}
	const running, stopped = "kind: X\nspec: {suspend: false, rayClusterConfig: {suspend: false}}", "kind: X\nspec: {suspend: true, rayClusterConfig: {suspend: false}}"
	created := parse(t, stopped)
	if d.Default(created, true, in); !d.ManagedChildren.Upgrades.HoldsChildren(created) {
		t.Error("a new one counts as running")
	}
	for _, tc := range []struct {
		old  string
		mode plan.Mode
		want bool
	}{
		{running, plan.Managed, true},
		{stopped, plan.Managed, false},
		{running, plan.Ignored, false},
	} {
		changed := parse(t, stopped)
		in.Mode = tc.mode
		warnings, errs := d.Guard.Check(changed, parse(t, tc.old), in)
		if got := d.ManagedChildren.Upgrades.HoldsChildren(changed); len(warnings)+len(errs) > 0 || got != tc.want {
			t.Errorf("%s, mode %v: counts as suspended %v, warnings %q, errors %v", tc.old, tc.mode, got, warnings, errs)
		}
	}
}

// TestWarnsOfDowntime: a change of the clusters of a running service that is not elastic stops it, which a warning says.
func TestWarnsOfDowntime(t *testing.T) {
	legacy := &atomic.Bool{}
	legacy.Store(true)
	gating := ray.Settings{Gating: true}
	const config = "rayClusterConfig: {" + head + "}"
	with := func(extra string) string { return strings.Replace(config, "{"+head, "{"+extra+", "+head, 1) }
	tests := map[string]struct {
		settings ray.Settings
		old, job string
		mode     plan.Mode
		want     int
	}{
		"its clusters":              {settings: gating, old: config, job: with("rayVersion: '3'"), want: 1},
		"another group":             {settings: gating, old: config, job: with("workerGroupSpecs: [{groupName: a, template: {spec: {}}}]"), want: 1},
		"what needs no new cluster": {settings: gating, old: config, job: with("suspend: true")},
		"its applications":          {settings: gating, old: config, job: config + ", serveConfigV2: x"},
		"it starts":                 {settings: gating, old: config + ", suspend: true", job: with("rayVersion: '3'")},
		"it is stopped":             {settings: gating, old: config, job: with("rayVersion: '3'") + ", suspend: true"},
		"no upgrades":               {settings: gating, old: config, job: with("rayVersion: '3'") + ", upgradeStrategy: {type: None}"},
		"not queued":                {settings: gating, old: config, job: with("rayVersion: '3'"), mode: plan.Ignored},
		"new":                       {settings: gating, job: config},
		"no elastic ones":           {old: config, job: with("rayVersion: '3'")},
		"none with this KubeRay":    {settings: ray.Settings{Gating: true, Legacy: legacy}, old: config, job: with("rayVersion: '3'")},
	}
	for name, tc := range tests {
		in := &plan.Setting{Config: &plan.Config{ElasticJobs: true}, Mode: plan.Managed}
		if tc.mode != plan.Undecided {
			in.Mode = tc.mode
		}
		var old plan.Object
		if tc.old != "" {
			old = parse(t, "kind: X\nspec: {"+tc.old+"}")
		}
		warnings, errs := ray.Service(tc.settings).Guard.Check(parse(t, "kind: X\nspec: {"+tc.job+"}"), old, in)
		if len(warnings) != tc.want || len(errs) > 0 {
			t.Errorf("%s: warnings %q, errors %v", name, warnings, errs)
		}
	}
}

// TestCopiesOfJobsStay: KubeRay on a worker must not delete a RayJob before its manager has observed the end. Its cluster may go.
func TestCopiesOfJobsStay(t *testing.T) {
	for have, want := range map[string]string{
		"{ttlSecondsAfterFinished: 5}":                                                                                     "{ttlSecondsAfterFinished: 5}",
		"{deletionStrategy: {deletionRules: [{policy: DeleteSelf}]}}":                                                      "{}",
		"{deletionStrategy: {deletionRules: [{policy: DeleteWorkers}]}}":                                                   "{deletionStrategy: {deletionRules: [{policy: DeleteWorkers}]}}",
		"{deletionStrategy: {deletionRules: [{policy: DeleteSelf, condition: {ttlSeconds: 9}}, {policy: DeleteCluster}]}}": "{deletionStrategy: {deletionRules: [{policy: DeleteCluster}]}}",
		"{deletionStrategy: {onSuccess: {policy: DeleteSelf}, onFailure: {policy: DeleteNone}}}":                           "{deletionStrategy: {onSuccess: {policy: DeleteCluster}, onFailure: {policy: DeleteNone}}}",
	} {
		o, wanted := parse(t, "{apiVersion: ray.io/v1, kind: RayJob, spec: "+have+"}"), parse(t, "{apiVersion: ray.io/v1, kind: RayJob, spec: "+want+"}")
		if d := ray.Job(ray.Settings{}); d.Remote.Prepare != nil {
			d.Remote.Prepare(o.Object)
		}
		if diff := cmp.Diff(wanted.Object, o.Object); diff != "" {
			t.Errorf("%s -want +got:\n%s", have, diff)
		}
	}
}
