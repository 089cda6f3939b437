package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"pgregory.net/rapid"
	kjson "sigs.k8s.io/json"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, kueuev1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// allKinds are all kinds of the group, including those without conversion.
func allKinds(scheme *runtime.Scheme) []string {
	var out []string
	for name, t := range scheme.KnownTypes(kueue.GroupVersion) {
		if t.PkgPath() == "github.com/berth-project/berth/api/kueue/v1beta2" && !strings.HasSuffix(name, "List") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// random makes an object of the kind and version with random content in every field, within the schema where a conversion reads it.
func random(t *rapid.T, scheme *runtime.Scheme, gvk schema.GroupVersionKind) object {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	typed, err := scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	fuzzer.FuzzerFor(metafuzzer.Funcs, embeddedtest.Source{Rand: r}, serializer.NewCodecFactory(scheme)).Fill(typed)
	typed.GetObjectKind().SetGroupVersionKind(gvk)
	switch o := typed.(type) {
	case *kueue.ClusterQueue:
		legalClusterQueue(r, o)
	case *kueue.MultiKueueCluster:
		legalSource(r, &o.Spec.ClusterSource)
	case *kueue.MultiKueueConfig:
		o.Spec.QuotaManagement = maybe(r, kueue.QuotaManagementManual, kueue.QuotaManagementAutomated)
	case *kueue.Workload:
		legalWorkload(r, o)
	case *kueuev1beta1.Workload:
		legalOldWorkload(r, o)
	}
	return decoded(t, typed)
}

func maybe[T any](r *rand.Rand, choices ...T) *T {
	if i := r.IntN(len(choices) + 1); i < len(choices) {
		return &choices[i]
	}
	return nil
}

func legalClusterQueue(r *rand.Rand, o *kueue.ClusterQueue) {
	if f := o.Spec.FlavorFungibility; f != nil {
		f.WhenCanBorrow, f.WhenCanPreempt = kueue.MayStopSearch, kueue.TryNextFlavor
	}
	if s := o.Spec.AdmissionChecksStrategy; s != nil && len(s.AdmissionChecks) == 0 {
		o.Spec.AdmissionChecksStrategy = nil
	}
	if p := o.Spec.ConcurrentAdmissionPolicy; p != nil {
		p.Migration.Mode = kueue.TryPreferredFlavors
		if p.Migration.Constraints != nil {
			p.Migration.Constraints.LastAcceptableFlavorName = kueue.ResourceFlavorReference([]string{"", "spot"}[r.IntN(2)])
		}
	}
}

func legalSource(r *rand.Rand, s *kueue.ClusterSource) {
	*s = kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: "secret", LocationType: kueue.LocationTypeSecret}}
	if r.IntN(2) == 0 {
		*s = kueue.ClusterSource{ClusterProfileRef: &kueue.ClusterProfileReference{Name: "profile"}}
	}
}

func legalWorkload(r *rand.Rand, o *kueue.Workload) {
	if ref := o.Spec.PriorityClassRef; ref != nil {
		ref.Group, ref.Kind = kueue.WorkloadPriorityClassGroup, kueue.WorkloadPriorityClassKind
		if r.IntN(2) == 0 {
			ref.Group, ref.Kind = kueue.PodPriorityClassGroup, kueue.PodPriorityClassKind
		}
		ref.Name = "class"
	}
	for i := range o.Spec.PreemptionGates {
		o.Spec.PreemptionGates[i].Name = fmt.Sprint("gate-", i)
	}
	for i := range o.Status.PreemptionGates {
		g := &o.Status.PreemptionGates[i]
		g.Name, g.Position = fmt.Sprint("gate-", i), kueue.PreemptionGateOpen
	}
	for i := range o.Spec.PodSets {
		p := &o.Spec.PodSets[i]
		p.Name = kueue.PodSetReference(fmt.Sprint("set-", i))
		if p.TopologyRequest == nil {
			continue
		}
		c := p.TopologyRequest.PodSetSliceRequiredTopologyConstraints
		p.TopologyRequest.PodSetSliceRequiredTopologyConstraints = c[:min(len(c), 3)]
		for j := range c {
			c[j] = kueue.PodSetSliceTopologyConstraint{Topology: "rack", Size: int32(j + 1)}
		}
	}
	if o.Status.Admission == nil {
		return
	}
	for i := range o.Status.Admission.PodSetAssignments {
		a := &o.Status.Admission.PodSetAssignments[i]
		a.Name = kueue.PodSetReference(fmt.Sprint("set-", i))
		if a.TopologyAssignment != nil {
			a.TopologyAssignment = legalAssignment(r)
		}
	}
}

// legalAssignment is any legal encoding, including ones that no scheduler writes.
func legalAssignment(r *rand.Rand) *kueue.TopologyAssignment {
	word := func() string { return []string{"", "a", "n-1", "n-11", "node-7"}[r.IntN(5)] }
	out := &kueue.TopologyAssignment{Slices: []kueue.TopologyAssignmentSlice{}}
	for range 1 + r.IntN(3) {
		out.Levels = append(out.Levels, word())
	}
	for range r.IntN(4) {
		n := 1 + r.IntN(4)
		s := kueue.TopologyAssignmentSlice{DomainCount: int32(n)}
		for range out.Levels {
			v := kueue.TopologyAssignmentSliceLevelValues{Universal: new(word())}
			if r.IntN(2) == 0 {
				v = kueue.TopologyAssignmentSliceLevelValues{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{
					Prefix: maybe(r, word(), word()), Suffix: maybe(r, word(), word()),
				}}
				for range n {
					v.Individual.Roots = append(v.Individual.Roots, word())
				}
			}
			s.ValuesPerLevel = append(s.ValuesPerLevel, v)
		}
		s.PodCounts.Universal = new(1 + r.Int32N(3))
		if r.IntN(2) == 0 {
			s.PodCounts.Universal = nil
			for range n {
				s.PodCounts.Individual = append(s.PodCounts.Individual, 1+r.Int32N(3))
			}
		}
		out.Slices = append(out.Slices, s)
	}
	return out
}

func legalOldWorkload(r *rand.Rand, o *kueuev1beta1.Workload) {
	o.Spec.PriorityClassSource = []string{"", "kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"}[r.IntN(3)]
	for i := range o.Spec.PodSets {
		o.Spec.PodSets[i].Name = kueue.PodSetReference(fmt.Sprint("set-", i))
	}
	if o.Status.Admission == nil {
		return
	}
	for i := range o.Status.Admission.PodSetAssignments {
		a := &o.Status.Admission.PodSetAssignments[i]
		a.Name = kueue.PodSetReference(fmt.Sprint("set-", i))
		if a.TopologyAssignment == nil {
			continue
		}
		a.TopologyAssignment = &kueuev1beta1.TopologyAssignment{Levels: []string{"rack", "host"}, Domains: []kueuev1beta1.TopologyDomainAssignment{}}
		for range r.IntN(5) {
			a.TopologyAssignment.Domains = append(a.TopologyAssignment.Domains, kueuev1beta1.TopologyDomainAssignment{
				Values: []string{fmt.Sprint("r", r.IntN(3)), fmt.Sprint("h-", r.IntN(30))}, Count: 1 + r.Int32N(2),
			})
		}
	}
}

// normal is the form in which v1beta1 is read back: without fields that have no effect, and with one of two equivalent forms (spec: 10
// §2.7, 70 §4.8).
func normal(o object) object {
	spec, status := at(o, "spec"), at(o, "status")
	switch o["kind"] {
	case "ClusterQueue":
		checksUp(spec)
		if f := at(spec, "flavorFungibility"); f["whenCanBorrow"] == "Borrow" {
			f["whenCanBorrow"] = "MayStopSearch"
		} else if f["whenCanPreempt"] == "Preempt" {
			f["whenCanPreempt"] = "MayStopSearch"
		}
		delete(status, "pendingWorkloadsStatus")
		delete(at(status, "fairSharing"), "admissionFairSharingStatus")
	case "Cohort":
		delete(at(status, "fairSharing"), "admissionFairSharingStatus")
	case "LocalQueue":
		delete(status, "flavors")
	case "MultiKueueCluster":
		if config := at(spec, "kubeConfig"); config["location"] == "" {
			config["locationType"] = "Secret"
		}
	case "Workload":
		if spec["priorityClassName"] == nil || spec["priorityClassSource"] == nil {
			delete(spec, "priorityClassName")
			delete(spec, "priorityClassSource")
		}
	}
	return o
}

// decoded is the JSON form of an object.
func decoded(t failer, o any) object {
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var out object
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &out); err != nil {
		t.Fatalf("%v", err)
	}
	return out
}

type failer interface{ Fatalf(string, ...any) }

func convert(t failer, o object, to schema.GroupVersion) {
	if err := Convert(o, to); err != nil {
		t.Fatalf("converting to %s: %v", to, err)
	}
}

// strict fails if the object has a field that its version does not know.
func strict(t *rapid.T, scheme *runtime.Scheme, o object, version schema.GroupVersion) {
	kind, _ := o["kind"].(string)
	typed, err := scheme.New(version.WithKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := kjson.UnmarshalStrict(raw, typed)
	if err := errors.Join(append(unknown, err)...); err != nil {
		t.Fatalf("not an object of %s: %v", version, err)
	}
}

// forEachKind checks a property of random objects of every kind.
func forEachKind(t *testing.T, property func(t *rapid.T, scheme *runtime.Scheme, kind string)) {
	scheme := newScheme(t)
	names := allKinds(scheme)
	if len(names) != 11 {
		t.Fatalf("%d kinds: %v", len(names), names)
	}
	for _, kind := range names {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { property(t, scheme, kind) })
		})
	}
}

// A stored object that is read as v1beta1 is written back unchanged.
func TestStoredObjectSurvivesV1beta1(t *testing.T) {
	forEachKind(t, func(t *rapid.T, scheme *runtime.Scheme, kind string) {
		o := random(t, scheme, kueue.GroupVersion.WithKind(kind))
		want := runtime.DeepCopyJSON(o)
		convert(t, o, kueuev1beta1.GroupVersion)
		strict(t, scheme, o, kueuev1beta1.GroupVersion)
		convert(t, o, kueue.GroupVersion)
		if diff := cmp.Diff(want, o); diff != "" {
			t.Fatalf("(-stored +written back):\n%s", diff)
		}
	})
}

// An object that is written as v1beta1 is read back in its normal form.
func TestV1beta1IsReadBack(t *testing.T) {
	forEachKind(t, func(t *rapid.T, scheme *runtime.Scheme, kind string) {
		o := random(t, scheme, kueuev1beta1.GroupVersion.WithKind(kind))
		if kind == "AdmissionCheck" { // the API server drops it
			delete(at(o, "spec"), "retryDelayMinutes")
		}
		want := normal(runtime.DeepCopyJSON(o))
		convert(t, o, kueue.GroupVersion)
		strict(t, scheme, o, kueue.GroupVersion)
		convert(t, o, kueuev1beta1.GroupVersion)
		if diff := cmp.Diff(want, o); diff != "" {
			t.Fatalf("(-written +read back):\n%s", diff)
		}
	})
}

// Kept fields never change the fields that v1beta1 has.
func TestChangeInV1beta1Wins(t *testing.T) {
	forEachKind(t, func(t *rapid.T, scheme *runtime.Scheme, kind string) {
		old := random(t, scheme, kueue.GroupVersion.WithKind(kind))
		convert(t, old, kueuev1beta1.GroupVersion)
		o := normal(random(t, scheme, kueuev1beta1.GroupVersion.WithKind(kind)))
		delete(at(o, "spec"), "retryDelayMinutes")
		kept := at(old, "metadata", "annotations")[KeptAnnotation]
		want := runtime.DeepCopyJSON(o)
		if kept != nil {
			if err := putKept(o, object{"placeholder": true}); err != nil {
				t.Fatal(err)
			}
			at(o, "metadata", "annotations")[KeptAnnotation] = kept
		}
		convert(t, o, kueue.GroupVersion)
		if _, left := at(o, "metadata", "annotations")[KeptAnnotation]; left {
			t.Fatal("the annotation is stored")
		}
		convert(t, o, kueuev1beta1.GroupVersion)
		dropKept(o)
		if diff := cmp.Diff(want, o); diff != "" {
			t.Fatalf("(-written +read back):\n%s", diff)
		}
	})
}
