package pod

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podgroup"
)

// newPod is one as the webhook sees it: after the API server's own defaults.
func newPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		Priority: new(int32(0)),
		Containers: []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}}}},
		Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
		},
	}}
}

func TestRole(t *testing.T) {
	role := func(change func(*corev1.PodSpec)) string {
		pod := newPod()
		change(&pod.Spec)
		got, err := podgroup.Role(&pod.Spec)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	const upstream = "b642cab1" // the worked example of the specification
	if got := role(func(*corev1.PodSpec) {}); got != upstream {
		t.Errorf("got %s, want %s", got, upstream)
	}
	for name, change := range map[string]func(*corev1.PodSpec){
		"an image":  func(s *corev1.PodSpec) { s.Containers[0].Image = "y" },
		"a gate":    func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} },
		"a volume":  func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "v"}} },
		"an amount": func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = resource.MustParse("0.25") },
	} {
		if got := role(change); got != upstream {
			t.Errorf("%s changes the role to %s", name, got)
		}
	}
	for name, change := range map[string]func(*corev1.PodSpec){
		"a request":   func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1") },
		"a selector":  func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a": "b"} },
		"a port":      func(s *corev1.PodSpec) { s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1}} },
		"pod's total": func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{} },
	} {
		if got := role(change); got == upstream {
			t.Errorf("%s does not change the role", name)
		}
	}
}

func TestDefaults(t *testing.T) {
	gates := func(names ...string) []corev1.PodSchedulingGate {
		var out []corev1.PodSchedulingGate
		for _, n := range names {
			out = append(out, corev1.PodSchedulingGate{Name: n})
		}
		return out
	}
	const admission, topology = "kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"
	tests := map[string]struct {
		annotations, labels map[string]string
		managed             bool
		cfg                 plan.Config
		want                corev1.Pod // metadata and gates
	}{
		"managed": {
			managed: true,
			want: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{kueue.ManagedLabel: "true"}, Annotations: map[string]string{kueue.RoleHashAnnotation: "b642cab1"},
					Finalizers: []string{kueue.ManagedFinalizer},
				},
				Spec: corev1.PodSpec{SchedulingGates: gates(admission)},
			},
		},
		"managed, with topologies and a role": {
			managed: true, cfg: plan.Config{Topology: true}, labels: map[string]string{"rank": "3"},
			annotations: map[string]string{kueue.RoleHashAnnotation: "mine", kueue.PodGroupPodIndexLabelAnnotation: "rank"},
			want: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      map[string]string{kueue.ManagedLabel: "true", "rank": "3", kueue.PodGroupPodIndexLabel: "3"},
					Annotations: map[string]string{kueue.RoleHashAnnotation: "mine", kueue.PodGroupPodIndexLabelAnnotation: "rank"},
					Finalizers:  []string{kueue.ManagedFinalizer},
				},
				Spec: corev1.PodSpec{SchedulingGates: gates(admission, topology)},
			},
		},
		"not managed": {},
		"of a parent": {
			annotations: map[string]string{kueue.PodSuspendingParentAnnotation: "acme"}, cfg: plan.Config{Topology: true, PodsOfParentsOnly: true},
			want: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.PodSuspendingParentAnnotation: "acme", kueue.RoleHashAnnotation: "b642cab1"}},
				Spec:       corev1.PodSpec{SchedulingGates: gates(admission, topology)},
			},
		},
		"plain, and only those of parents": {managed: true, cfg: plan.Config{PodsOfParentsOnly: true}},
	}
	for name, tc := range tests {
		pod := newPod()
		pod.Annotations, pod.Labels = tc.annotations, tc.labels
		for range 2 {
			setDefaults(pod, tc.managed, &plan.Setting{Config: &tc.cfg})
		}
		got := corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: corev1.PodSpec{SchedulingGates: pod.Spec.SchedulingGates}}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

func TestStartKeepsTheGateOfTopologies(t *testing.T) {
	for _, placed := range []bool{true, false} {
		pod := newPod()
		setDefaults(pod, true, &plan.Setting{Config: &plan.Config{Topology: true}})
		info := plan.PodSetInfo{NodeSelector: map[string]string{"pool": "h100"}, Labels: map[string]string{"l": "v"}}
		if placed {
			info.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
		}
		if err := start(pod, []plan.PodSetInfo{info}, nil); err != nil {
			t.Fatal(err)
		}
		if plan.PodIsGated(pod) || plan.PodHasGate(pod, kueue.TopologySchedulingGate) != placed || pod.Spec.NodeSelector["pool"] != "h100" || pod.Labels["l"] != "v" {
			t.Errorf("placed %v: %+v", placed, pod)
		}
	}
}

func TestStop(t *testing.T) {
	gated, over, runs, target := newPod(), newPod(), newPod(), newPod()
	addGate(gated, kueue.AdmissionSchedulingGate)
	over.Status.Phase = corev1.PodFailed
	target.Status.Conditions = []corev1.PodCondition{{Type: "TerminationTarget", Status: corev1.ConditionTrue}}
	tests := map[string]struct {
		pod  *corev1.Pod
		why  plan.StopReason
		want plan.Step
	}{
		"gated":                       {gated, plan.WorkloadEvicted, plan.Stopped},
		"gated, its workload goes":    {gated, plan.WorkloadDeleted, plan.ChangeStatus},
		"over":                        {over, plan.NotAdmitted, plan.Stopped},
		"runs":                        {runs, plan.NotAdmitted, plan.ChangeStatus},
		"told why":                    {target, plan.WorkloadEvicted, plan.Delete},
		"told why, its workload goes": {target, plan.WorkloadDeleted, plan.Delete},
	}
	for name, tc := range tests {
		step, next := stop(tc.pod, nil, tc.why)
		if step != tc.want {
			t.Errorf("%s: step %v, want %v", name, step, tc.want)
		}
		if step == plan.ChangeStatus && (!podgroup.IsTarget(next.(*corev1.Pod)) || podgroup.IsTarget(tc.pod)) {
			t.Errorf("%s: the condition is not on the copy alone", name)
		}
	}
}

// group are the labels of a pod of a group.
func group(name string) map[string]string {
	return map[string]string{kueue.ManagedLabel: "true", kueue.PodGroupNameLabel: name}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		labels, annotations map[string]string
		want                int
	}{
		"plain":                  {},
		"managed":                {labels: map[string]string{kueue.ManagedLabel: "true"}},
		"badly managed":          {labels: map[string]string{kueue.ManagedLabel: "yes"}, want: 1},
		"group":                  {labels: group("g"), annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "2"}},
		"group without a size":   {labels: group("g"), want: 1},
		"size without a group":   {annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "2"}, want: 1},
		"group of nothing":       {labels: group("g"), annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "0"}, want: 1},
		"group with a bad name":  {labels: group("G"), annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "2"}, want: 1},
		"group as an annotation": {annotations: map[string]string{kueue.PodGroupNameLabel: "g", kueue.PodGroupTotalCountAnnotation: "2"}},
		"group with another workload": {
			labels: group("g"), want: 1,
			annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "2", kueue.PrebuiltWorkloadLabel: "h"},
		},
		"group with its workload": {
			labels: group("g"), annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "2", kueue.PrebuiltWorkloadLabel: "g"},
		},
		"topology": {annotations: map[string]string{kueue.PodSetRequiredTopologyAnnotation: "A B"}, want: 1},
	}
	for name, tc := range tests {
		pod := newPod()
		pod.Labels, pod.Annotations = tc.labels, tc.annotations
		if errs := validate(pod, nil, &plan.Setting{Config: &plan.Config{Topology: true, AnnotationIdentifiers: true}}); len(errs) != tc.want {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

func TestValidateChange(t *testing.T) {
	pod := func(name, retriable string) *corev1.Pod {
		p := newPod()
		p.Labels = map[string]string{kueue.ManagedLabel: "true"}
		p.Annotations = map[string]string{kueue.RetriableInGroupAnnotation: retriable}
		if name != "" {
			p.Labels = group(name)
			p.Annotations[kueue.PodGroupTotalCountAnnotation] = "2"
		}
		return p
	}
	moved := pod("", "")
	moved.Annotations[kueue.PodGroupNameLabel], moved.Annotations[kueue.PodGroupTotalCountAnnotation] = "g", "2"
	tests := map[string]struct {
		old, new *corev1.Pod
		want     int
	}{
		"joins a group":                       {pod("", ""), pod("g", ""), 0},
		"changes it":                          {pod("g", ""), pod("h", ""), 1},
		"leaves it":                           {pod("g", ""), pod("", ""), 1},
		"says the same in another way":        {pod("g", ""), moved, 0},
		"gives up replacements":               {pod("g", ""), pod("g", "false"), 0},
		"takes that back":                     {pod("g", "false"), pod("g", "true"), 1},
		"takes that back, not being a member": {pod("", "false"), pod("", ""), 0},
	}
	for name, tc := range tests {
		if errs := validate(tc.new, tc.old, &plan.Setting{Config: &plan.Config{AnnotationIdentifiers: true}}); len(errs) != tc.want {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// TestUnmarked: a queued pod stays queued until it has ended.
func TestUnmarked(t *testing.T) {
	const label, annotation = "metadata.labels[kueue.x-k8s.io/managed]", "metadata.annotations[kueue.x-k8s.io/pod-suspending-parent]"
	all, ofParents := plan.Config{}, plan.Config{PodsOfParentsOnly: true}
	unlabel := func(p *corev1.Pod) { delete(p.Labels, kueue.ManagedLabel) }
	tests := map[string]struct {
		cfg    plan.Config
		old    map[string]string // annotations
		change func(*corev1.Pod)
		want   string
	}{
		"changed in another way": {all, nil, func(p *corev1.Pod) { p.Labels["a"] = "b" }, ""},
		"unmarked":               {all, nil, unlabel, label},
		"unmarked and ungated":   {all, nil, func(p *corev1.Pod) { unlabel(p); p.Spec.SchedulingGates = nil }, label},
		"marked otherwise":       {all, nil, func(p *corev1.Pod) { p.Labels[kueue.ManagedLabel] = "false" }, label},
		"ended":                  {all, nil, func(p *corev1.Pod) { unlabel(p); p.Status.Phase = corev1.PodFailed }, ""},
		"deleted before it ran":  {all, nil, func(p *corev1.Pod) { unlabel(p); p.DeletionTimestamp = &metav1.Time{} }, ""},
		"deleted on its node": {all, nil, func(p *corev1.Pod) {
			unlabel(p)
			p.DeletionTimestamp, p.Spec.NodeName = &metav1.Time{}, "n"
		}, label},
		"never queued":              {ofParents, nil, unlabel, ""},
		"of no parent any more":     {ofParents, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"}, func(p *corev1.Pod) { p.Annotations = nil }, annotation},
		"of a parent, and unmarked": {ofParents, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"}, unlabel, label},
	}
	for name, tc := range tests {
		old := newPod()
		old.Labels, old.Annotations = map[string]string{kueue.ManagedLabel: "true"}, tc.old
		pod := old.DeepCopy()
		tc.change(pod)
		errs := validate(pod, old, &plan.Setting{Config: &tc.cfg})
		if got := fields(errs); got != tc.want {
			t.Errorf("%s: refused %q, want %q: %v", name, got, tc.want, errs)
		}
	}
}

func fields(errs field.ErrorList) string {
	out := make([]string, len(errs))
	for i, err := range errs {
		out[i] = err.Field
	}
	return strings.Join(out, " ")
}

func TestWarn(t *testing.T) {
	cfg := &plan.Config{Kinds: plan.Kinds{appsv1.SchemeGroupVersion.WithKind("StatefulSet"): true}}
	owned := newPod()
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "s", Controller: new(true)}}
	if got := warn(owned, nil, cfg); len(got) > 0 {
		t.Errorf("a pod that is not queued: %v", got)
	}
	owned.Labels = map[string]string{kueue.ManagedLabel: "true"}
	if got := warn(owned, nil, cfg); len(got) != 1 {
		t.Errorf("a pod that is queued beside its owner: %v", got)
	}
	owned.Annotations = map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"}
	if got := warn(owned, owned, cfg); len(got) > 0 {
		t.Errorf("a pod that its parent has queued: %v", got)
	}
}
