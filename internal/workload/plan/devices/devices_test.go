package devices

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
)

// cluster is a world of devices. Its expressions are names of models: a device matches if it is of each, "broken" is no expression, and
// "fails" cannot be evaluated.
type cluster struct {
	templates map[string]*resourcev1.ResourceClaimTemplate
	classes   []*resourcev1.DeviceClass
	slices    []*resourcev1.ResourceSlice
	looked    int
}

func (c *cluster) Claim(_, name string) (*Claim, *Problem) {
	if name == "unread" {
		return nil, &Problem{Text: "reading", Reading: true}
	}
	t := c.templates[name]
	if t == nil {
		return nil, nil
	}
	rules := rules()
	return rules.Charge(t, c), nil
}

func (c *cluster) Class(name string) (*resourcev1.DeviceClass, *Problem) {
	for _, class := range c.classes {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, nil
}

func (c *cluster) Backing(name corev1.ResourceName) (*resourcev1.DeviceClass, *Problem) {
	return Newest(slices.DeleteFunc(slices.Clone(c.classes), func(class *resourcev1.DeviceClass) bool {
		return !Backs(class, name)
	})), nil
}

func (c *cluster) Compiles(expression string) string {
	if expression == "broken" {
		return "no expression"
	}
	return ""
}

func (c *cluster) Select(s Selection) (*Selected, *Problem) {
	c.looked++
	var matches []Match
	for _, slice := range Current(slices.Clone(c.slices)) {
		if s.Driver != "" && s.Driver != slice.Spec.Driver {
			continue
		}
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			is := true
			for _, e := range s.Expressions {
				if e == "fails" {
					return &Selected{Problem: "device " + d.Name + ": no such key"}, nil
				}
				is = is && (e == "true" || strings.Contains(*d.Attributes["models"].StringValue, e))
			}
			if is {
				matches = append(matches, Match{slice.Spec.Driver, slice.Spec.Pool.Name, d, slice.Complete})
			}
		}
	}
	return &Selected{Matches: slices.Values(matches)}, nil
}

func quantity(s string) apiresource.Quantity { return apiresource.MustParse(s) }

func pointer(s string) *apiresource.Quantity { return new(quantity(s)) }

// dev is a device with the models that it is of.
func dev(name, models string, set ...func(*resourcev1.Device)) resourcev1.Device {
	d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"models": {StringValue: &models}}}
	for _, f := range set {
		f(&d)
	}
	return d
}

// uses is what a device consumes of the counter memory of some sets.
func uses(amounts ...string) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		for i, a := range amounts {
			d.ConsumesCounters = append(d.ConsumesCounters, resourcev1.DeviceCounterConsumption{
				CounterSet: fmt.Sprint(i), Counters: map[string]resourcev1.Counter{"memory": {Value: quantity(a)}},
			})
		}
	}
}

// has is a capacity, with a policy or nil.
func has(name resourcev1.QualifiedName, value string, p *resourcev1.CapacityRequestPolicy) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{name: {Value: quantity(value), RequestPolicy: p}}
	}
}

// pool is a pool of one slice, of the driver d unless named otherwise.
func pool(name string, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}, Devices: devices,
	}}
}

func want(class string, n int64, models ...string) *resourcev1.ExactDeviceRequest {
	e := &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: n}
	for _, m := range models {
		e.Selectors = append(e.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: m}})
	}
	return e
}

func asking(e *resourcev1.ExactDeviceRequest, name resourcev1.QualifiedName, amount string) *resourcev1.ExactDeviceRequest {
	e.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]apiresource.Quantity{name: quantity(amount)}}
	return e
}

func mapping(name string, classes []corev1.ResourceName, sources ...configv1beta2.DeviceClassSource) configv1beta2.DeviceClassMapping {
	return configv1beta2.DeviceClassMapping{Name: corev1.ResourceName(name), DeviceClassNames: classes, Sources: sources}
}

func measure(name, selector string) *configv1beta2.DeviceMeasure {
	m := &configv1beta2.DeviceMeasure{Name: name, Driver: "d"}
	m.DeviceSelector.CEL = &configv1beta2.CELDeviceSelector{Expression: selector}
	return m
}

func rules() Rules {
	return Rules{Integrated: true, Reject: true, Extended: true, Mappings: []configv1beta2.DeviceClassMapping{
		mapping("gpus", []corev1.ResourceName{"big", "small", "a100"}),
		mapping("memory", []corev1.ResourceName{"parts"}, configv1beta2.DeviceClassSource{Counter: measure("memory", "true")}),
		mapping("cores", []corev1.ResourceName{"parts"}, configv1beta2.DeviceClassSource{Counter: measure("cores", "true")}),
		mapping("one", []corev1.ResourceName{"single"}, configv1beta2.DeviceClassSource{Counter: measure("memory", "p")}),
		mapping("shares", []corev1.ResourceName{"shared"}, configv1beta2.DeviceClassSource{Capacity: measure("mem", "true")}),
	}}
}

func classes(names ...string) (out []*resourcev1.DeviceClass) {
	for _, n := range names {
		out = append(out, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	return out
}

// counted is the result of one pod set, as a text: amounts by name, or the problem.
func counted(c Charges) string {
	if c.Problem != nil {
		return c.Problem.Text
	}
	if c.PodSets == nil {
		return ""
	}
	return fmt.Sprint(c.PodSets[0].Charged, c.PodSets[0].Replaced)
}

// TestClaims has a case for each row of the table in spec 20 §4.12 about claims, and for the examples of §7.59.
func TestClaims(t *testing.T) {
	const at = "spec.podSets[main].template.spec.resourceClaims[c0]"
	const r0 = at + ": request r0 of ResourceClaimTemplate t "
	valid := &resourcev1.CapacityRequestPolicy{Default: pointer("10"), ValidValues: []apiresource.Quantity{quantity("10"), quantity("20"), quantity("40")}}
	ranged := &resourcev1.CapacityRequestPolicy{Default: pointer("10"), ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: pointer("10"), Max: pointer("40"), Step: pointer("8")}}
	open := &resourcev1.CapacityRequestPolicy{ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: pointer("10")}}
	old := pool("p", dev("old", "a"), dev("older", "a"))
	young := pool("p", dev("new", "a"))
	young.Spec.Pool.Generation, young.Name = 2, "p2"
	part := pool("p", dev("d", "a", uses("9")), dev("e", "a", uses("9")))
	part.Spec.Pool.ResourceSliceCount = 2
	cases := map[string]struct {
		requests []*resourcev1.ExactDeviceRequest
		slices   []*resourcev1.ResourceSlice
		twice    bool // two claims by the template
		edit     func(*resourcev1.DeviceRequest)
		want     string
		looked   int
	}{
		"#59 two devices of a class": {requests: []*resourcev1.ExactDeviceRequest{want("big", 2)}, want: "map[gpus:2] []"},
		"no count is one":            {requests: []*resourcev1.ExactDeviceRequest{want("big", 0)}, want: "map[gpus:1] []"},
		"requests and claims add up": {requests: []*resourcev1.ExactDeviceRequest{want("big", 2), want("small", 1)}, twice: true, want: "map[gpus:6] []"},
		"all devices":                {requests: []*resourcev1.ExactDeviceRequest{want("big", 0)}, edit: func(r *resourcev1.DeviceRequest) { r.Exactly.AllocationMode = "All" }, want: r0 + "has the allocation mode All, which cannot be charged; use ExactCount"},
		"alternatives": {requests: []*resourcev1.ExactDeviceRequest{want("big", 0)}, edit: func(r *resourcev1.DeviceRequest) {
			r.Exactly, r.FirstAvailable = nil, make([]resourcev1.DeviceSubRequest, 1)
		}, want: r0 + "has alternatives (firstAvailable), which cannot be charged; use exactly"},
		"a selector that does not compile":    {requests: []*resourcev1.ExactDeviceRequest{want("big", 1, "broken")}, want: r0 + "has a selector that does not compile: no expression"},
		"a selector of another language":      {requests: []*resourcev1.ExactDeviceRequest{want("big", 1, "a")}, edit: func(r *resourcev1.DeviceRequest) { r.Exactly.Selectors[0].CEL = nil }, want: r0 + "has a selector that is not CEL"},
		"administrators are charged nothing":  {requests: []*resourcev1.ExactDeviceRequest{want("other", 4)}, edit: func(r *resourcev1.DeviceRequest) { r.Exactly.AdminAccess = new(true) }, want: ""},
		"an unmapped class":                   {requests: []*resourcev1.ExactDeviceRequest{want("other", 1)}, want: r0 + "names the DeviceClass other, which is in no mapping of the configuration (resources.deviceClassMappings)"},
		"without selectors, nothing is read":  {requests: []*resourcev1.ExactDeviceRequest{want("a100", 7)}, want: "map[gpus:7] []"}, // of no existing class
		"selectors of a missing class":        {requests: []*resourcev1.ExactDeviceRequest{want("a100", 1, "a")}, want: r0 + "names the DeviceClass a100, which does not exist"},
		"selected devices exist":              {requests: []*resourcev1.ExactDeviceRequest{want("big", 2, "a")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "a"), dev("2", "b")), pool("q", dev("1", "a"))}, want: "map[gpus:2] []", looked: 1},
		"too few selected devices":            {requests: []*resourcev1.ExactDeviceRequest{want("big", 2, "a")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "a"), dev("2", "b"))}, want: r0 + "selects 2 devices of DeviceClass big, and 1 of the known ones match and serve no other request", looked: 1},
		"a device serves one request":         {requests: []*resourcev1.ExactDeviceRequest{want("big", 1, "a"), want("small", 1, "a")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "a"))}, want: at + ": request r1 of ResourceClaimTemplate t selects 1 devices of DeviceClass small, and 0 of the known ones match and serve no other request", looked: 2},
		"in the order of requests":            {requests: []*resourcev1.ExactDeviceRequest{want("big", 1, "a"), want("small", 1, "b")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "a b"), dev("2", "a b"))}, want: "map[gpus:2] []", looked: 2},
		"devices of an older generation":      {requests: []*resourcev1.ExactDeviceRequest{want("big", 2, "a")}, slices: []*resourcev1.ResourceSlice{old, young}, want: r0 + "selects 2 devices of DeviceClass big, and 1 of the known ones match and serve no other request", looked: 1},
		"an evaluation that fails":            {requests: []*resourcev1.ExactDeviceRequest{want("big", 1, "fails")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "a"))}, want: r0 + "cannot be matched: device 1: no such key", looked: 1},
		"counters: the largest, for each":     {requests: []*resourcev1.ExactDeviceRequest{want("single", 2)}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "p", uses("5")), dev("2", "p", uses("10")), dev("3", "", uses("90")))}, want: "map[one:20] []", looked: 1},
		"counters of several sets, rounded":   {requests: []*resourcev1.ExactDeviceRequest{want("single", 1)}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "p", uses("5500m", "-3", "2")))}, want: "map[one:8] []", looked: 1},
		"fewer devices with counters":         {requests: []*resourcev1.ExactDeviceRequest{want("single", 2)}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "p", uses("5")))}, want: r0 + "needs 2 devices, and 1 of the devices of driver d in complete pools match", looked: 1},
		"an incomplete pool":                  {requests: []*resourcev1.ExactDeviceRequest{want("parts", 1)}, slices: []*resourcev1.ResourceSlice{part}, want: r0 + "needs 1 devices, and 0 of the devices of driver d in complete pools match", looked: 2},
		"two mappings with distinct counters": {requests: []*resourcev1.ExactDeviceRequest{want("parts", 1)}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", uses("5")))}, want: r0 + "cannot be served: no matching device of driver d has the counter cores", looked: 2},
		"capacity: the whole without policy":  {requests: []*resourcev1.ExactDeviceRequest{want("shared", 2)}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", has("mem", "40", nil)), dev("2", "", has("d/mem", "30", nil)))}, want: "map[shares:80] []", looked: 1},
		"capacity: the default":               {requests: []*resourcev1.ExactDeviceRequest{want("shared", 1)}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", has("mem", "40", valid)))}, want: "map[shares:10] []", looked: 1},
		"capacity: the next valid value":      {requests: []*resourcev1.ExactDeviceRequest{asking(want("shared", 3), "d/mem", "11")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", has("mem", "40", valid)), dev("2", "", has("mem", "40", valid)), dev("3", "", has("mem", "40", valid)))}, want: "map[shares:60] []", looked: 1},
		"capacity: a step from the minimum":   {requests: []*resourcev1.ExactDeviceRequest{asking(want("shared", 1), "mem", "19")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", has("mem", "40", ranged)))}, want: "map[shares:26] []", looked: 1},
		"capacity: at least the minimum":      {requests: []*resourcev1.ExactDeviceRequest{asking(want("shared", 1), "mem", "1")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", has("mem", "40", open)))}, want: "map[shares:10] []", looked: 1},
		"capacity: all policies refuse":       {requests: []*resourcev1.ExactDeviceRequest{asking(want("shared", 1), "mem", "39")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", has("mem", "40", ranged)))}, want: r0 + "cannot be served: the request policies of all matching devices of driver d refuse the requested amount of the capacity mem", looked: 1},
		"capacity: one policy refuses":        {requests: []*resourcev1.ExactDeviceRequest{asking(want("shared", 1), "mem", "39")}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", has("mem", "40", ranged)), dev("2", "", has("mem", "40", valid)))}, want: "map[shares:40] []", looked: 1},
		"capacity: another dimension":         {requests: []*resourcev1.ExactDeviceRequest{want("shared", 1)}, slices: []*resourcev1.ResourceSlice{pool("p", dev("1", "", has("disk", "40", nil)))}, want: r0 + "cannot be served: no matching device of driver d has the capacity mem", looked: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
			for i, e := range tc.requests {
				r := resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", i), Exactly: e.DeepCopy()}
				if tc.edit != nil {
					tc.edit(&r)
				}
				template.Spec.Spec.Devices.Requests = append(template.Spec.Spec.Devices.Requests, r)
			}
			c := &cluster{
				templates: map[string]*resourcev1.ResourceClaimTemplate{"t": template}, slices: tc.slices,
				classes: classes("big", "small", "parts", "single", "shared"),
			}
			names := []string{"t"}
			if tc.twice {
				names = append(names, "t")
			}
			rules := rules()
			w, pods := workload(names...)
			if diff := cmp.Diff(tc.want, counted(rules.Count(w, pods, c))); diff != "" {
				t.Errorf("counted -want +got:\n%s", diff)
			}
			if c.looked != tc.looked {
				t.Errorf("%d selections, want %d", c.looked, tc.looked)
			}
		})
	}
}

// workload has one pod set with a claim for each template; "=name" is a claim by its own name.
func workload(templates ...string) (*kueue.Workload, []corev1.PodSpec) {
	w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 3}}}}
	spec := &w.Spec.PodSets[0].Template.Spec
	for i, name := range templates {
		c := corev1.PodResourceClaim{Name: fmt.Sprintf("c%d", i)}
		if own, is := strings.CutPrefix(name, "="); is {
			c.ResourceClaimName = &own
		} else if name != "" {
			c.ResourceClaimTemplateName = &name
		}
		spec.ResourceClaims = append(spec.ResourceClaims, c)
	}
	return w, make([]corev1.PodSpec, 1)
}

// TestReferences: references of pods to claims, and the feature gates. spec: 20 §4.12, #59.
func TestReferences(t *testing.T) {
	const at = "spec.podSets[main].template.spec.resourceClaims"
	cases := map[string]struct {
		claim string
		edit  func(*Rules)
		want  string
	}{
		"#59 by its own name": {claim: "=mine", want: at + "[c0].resourceClaimName: the ResourceClaim mine may be shared, so it is charged to no workload; set resourceClaimTemplateName"},
		"by no name":          {claim: "", want: at + "[c0]: it names no ResourceClaimTemplate"},
		"a missing template":  {claim: "none", want: at + "[c0]: there is no ResourceClaimTemplate none in the namespace"},
		"not read yet":        {claim: "unread", want: "reading"},
		"gate off": {claim: "t", edit: func(r *Rules) { r.Integrated = false }, want: "spec.podSets[].template.spec.resourceClaims: devices are not charged while " +
			"the feature gate KueueDRAIntegration is off; with KueueDRARejectWorkloadsWhenDRADisabled off, workloads are admitted as if they claimed none"},
		"gate off, ignored": {claim: "=mine", edit: func(r *Rules) { r.Integrated, r.Reject = false, false }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rules := rules()
			if tc.edit != nil {
				tc.edit(&rules)
			}
			w, pods := workload(tc.claim)
			if diff := cmp.Diff(tc.want, counted(rules.Count(w, pods, &cluster{}))); diff != "" {
				t.Errorf("counted -want +got:\n%s", diff)
			}
		})
	}
}

// TestExtended: extended resources that a class backs. spec: 20 §4.12.
func TestExtended(t *testing.T) {
	backing := func(class, name string, age time.Duration) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: class, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec:       resourcev1.DeviceClassSpec{ExtendedResourceName: &name},
		}
	}
	pod := func(first string, amounts ...string) corev1.PodSpec {
		container := func(amount string) corev1.Container {
			return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"x.y/gpu": quantity(amount), "cpu": quantity("1")}}}
		}
		out := corev1.PodSpec{InitContainers: []corev1.Container{container(first)}}
		for _, a := range amounts {
			out.Containers = append(out.Containers, container(a))
		}
		return out
	}
	const implicit = resourcev1.ResourceDeviceClassPrefix
	named := func(name string, pod corev1.PodSpec) corev1.PodSpec { // requests it instead
		for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
			c.Resources.Requests[corev1.ResourceName(name)] = c.Resources.Requests["x.y/gpu"]
			delete(c.Resources.Requests, "x.y/gpu")
		}
		return pod
	}
	both := func(a, b corev1.PodSpec) corev1.PodSpec {
		a.Containers = append(a.Containers, b.Containers...)
		return a
	}
	cases := map[string]struct {
		classes []*resourcev1.DeviceClass
		pod     corev1.PodSpec
		off     bool
		want    string
	}{
		"no class":                     {pod: pod("0", "2")},
		"a class of another":           {pod: pod("0", "2"), classes: []*resourcev1.DeviceClass{backing("big", "x.y/tpu", 0)}},
		"a mapped class":               {pod: pod("0", "2", "1"), classes: []*resourcev1.DeviceClass{backing("big", "x.y/gpu", 0)}, want: "map[gpus:3] [x.y/gpu]"},
		"an unmapped class":            {pod: pod("0", "2"), classes: []*resourcev1.DeviceClass{backing("other", "x.y/gpu", 0)}, want: "map[x.y/gpu:2] [x.y/gpu]"},
		"the newest class":             {pod: pod("0", "2"), classes: []*resourcev1.DeviceClass{backing("big", "x.y/gpu", time.Hour), backing("other", "x.y/gpu", 0)}, want: "map[x.y/gpu:2] [x.y/gpu]"},
		"of several, the first":        {pod: pod("0", "2"), classes: []*resourcev1.DeviceClass{backing("other", "x.y/gpu", 0), backing("big", "x.y/gpu", 0)}, want: "map[gpus:2] [x.y/gpu]"},
		"a large init container":       {pod: pod("4", "2", "1"), classes: []*resourcev1.DeviceClass{backing("big", "x.y/gpu", 0)}, want: "map[gpus:4] [x.y/gpu]"},
		"none requested":               {pod: pod("0", "0"), classes: []*resourcev1.DeviceClass{backing("parts", "x.y/gpu", 0)}},
		"named after a mapped class":   {pod: named(implicit+"big", pod("0", "2", "1")), classes: classes("big"), want: "map[gpus:3] [" + implicit + "big]"},
		"named after an unmapped one":  {pod: named(implicit+"other", pod("0", "2")), classes: classes("other"), want: "map[" + implicit + "other:2] [" + implicit + "other]"},
		"named after no class":         {pod: named(implicit+"none", pod("0", "2")), classes: classes("big")},
		"named after a class, half":    {pod: named(implicit+"big", pod("0", "500m")), classes: classes("big"), want: "spec.podSets[main].template.spec: " + implicit + "big is backed by the DeviceClass big, and devices are whole"},
		"named after one with memory":  {pod: named(implicit+"parts", pod("0", "1")), classes: classes("parts"), want: "spec.podSets[main].template.spec: " + implicit + "parts is backed by the DeviceClass parts, whose devices are charged by counters or capacities (memory), not by number; claim them with a ResourceClaimTemplate"},
		"both names of a class":        {pod: both(pod("0", "2"), named(implicit+"big", pod("0", "1"))), classes: []*resourcev1.DeviceClass{backing("big", "x.y/gpu", 0)}, want: "map[gpus:3] [" + implicit + "big x.y/gpu]"},
		"half a device":                {pod: pod("0", "500m"), classes: []*resourcev1.DeviceClass{backing("big", "x.y/gpu", 0)}, want: "spec.podSets[main].template.spec: x.y/gpu is backed by the DeviceClass big, and devices are whole"},
		"a class that counts memory":   {pod: pod("0", "1"), classes: []*resourcev1.DeviceClass{backing("parts", "x.y/gpu", 0)}, want: "spec.podSets[main].template.spec: x.y/gpu is backed by the DeviceClass parts, whose devices are charged by counters or capacities (memory), not by number; claim them with a ResourceClaimTemplate"},
		"the feature gate is off":      {pod: pod("0", "2"), off: true, classes: []*resourcev1.DeviceClass{backing("big", "x.y/gpu", 0)}},
		"beside a plain resource only": {pod: corev1.PodSpec{}, classes: []*resourcev1.DeviceClass{backing("big", "cpu", 0)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rules := rules()
			rules.Extended = !tc.off
			w, _ := workload()
			if diff := cmp.Diff(tc.want, counted(rules.Count(w, []corev1.PodSpec{tc.pod}, &cluster{classes: tc.classes}))); diff != "" {
				t.Errorf("counted -want +got:\n%s", diff)
			}
		})
	}
}

// TestSaturation: amounts beyond int64 do not wrap around.
func TestSaturation(t *testing.T) {
	c := &tally{}
	c.charge("r", 1<<62, 4)
	c.charge("r", -5, 1)
	if got := c.charged["r"]; got != resource.Unlimited {
		t.Errorf("charged %d", got)
	}
	p := &resourcev1.CapacityRequestPolicy{ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: pointer("1"), Step: pointer("9000000000000000000")}}
	if amount, allowed := policed(9100000000000000000, p); !allowed || amount < 9100000000000000000 {
		t.Errorf("rounded to %d, %v", amount, allowed)
	}
}

func TestKey(t *testing.T) {
	keys := map[string]bool{}
	for _, s := range []Selection{{}, {Driver: "a"}, {Expressions: []string{"a"}}, {Expressions: []string{"a", "b"}}, {Expressions: []string{"a\x001\x00b"}}, {Driver: "a", Expressions: []string{"a"}}} {
		keys[s.Key()] = true
	}
	if len(keys) != 6 {
		t.Errorf("%d different keys of 6 selections", len(keys))
	}
}

// TestChanged: a change of a template affects the workloads of its namespace that name it, and no others.
func TestChanged(t *testing.T) {
	w := func(namespace string, templates ...string) *kueue.Workload {
		out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		var claims []corev1.PodResourceClaim
		for _, name := range templates {
			claims = append(claims, corev1.PodResourceClaim{ResourceClaimTemplateName: &name})
		}
		if namespace == "named" {
			claims = append(claims, corev1.PodResourceClaim{ResourceClaimName: new("c")})
		}
		out.Spec.PodSets = []kueue.PodSet{{}, {Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{ResourceClaims: claims}}}}
		return out
	}
	of := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: name} }
	all := []*kueue.Workload{w("n"), w("n", "a"), w("n", "b", "a"), w("n", "b"), w("m", "a"), w("named")}
	for name, tc := range map[string]struct {
		changed    Changed
		want       []bool
		namespaces []string
	}{
		"nothing":       {Changed{}, []bool{false, false, false, false, false, false}, nil},
		"all":           {Changed{All: true}, []bool{true, true, true, true, true, true}, []string{""}},
		"all claims":    {Changed{Claiming: true}, []bool{false, true, true, true, true, true}, []string{""}},
		"a template":    {Changed{Templates: sets.New(of("a"))}, []bool{false, true, true, false, false, false}, []string{"n"}},
		"two of them":   {Changed{Templates: sets.New(of("a"), of("b"))}, []bool{false, true, true, true, false, false}, []string{"n"}},
		"more than one": {Changed{Claiming: true, Templates: sets.New(of("a"))}, []bool{false, true, true, true, true, true}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []bool
			for _, w := range all {
				got = append(got, tc.changed.Has(w))
			}
			if !slices.Equal(got, tc.want) || !slices.Equal(tc.changed.Namespaces(), tc.namespaces) || tc.changed.Any() != (name != "nothing") {
				t.Errorf("%v in %v", got, tc.changed.Namespaces())
			}
		})
	}
}
