// Package variants tries several flavors of one job at the same time.
//
//	Job ◄── parent (never queued) ◄─┬── variant of flavor spot     (pending)
//	            status.admission ◄──┴── variant of flavor ondemand (admitted)
//
// In a ClusterQueue with a concurrentAdmissionPolicy, the Workload of a job becomes a parent. It is not queued; for each flavor it has a
// variant, a Workload that may get only that flavor. Variants are queued, preempt, pass admission checks and hold quota like any
// Workload. One of them is admitted, and the parent shows its admission: that starts the job. To the engine, the parent holds nothing.
//
// At most one variant is admitted at a time. The engine admits one while no other holds quota; otherwise [Config.Next]
// does, which also evicts an admitted variant once a better one is ready. The job follows: the parent is evicted, the job stops, the
// quota of the evicted variant is released after that, and the parent is admitted with the other one.
//
// All of it follows from the objects, after any interruption (spec: 20 §4.13).
package variants

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Spacing is the least time between two openings of preemption gates of one job (spec: 20 §5.7).
const Spacing = 5 * time.Minute

// migrationTime is how long the engine has to admit the preferred variant, once the other one has left, before that one is queued again.
// Too short does no harm: the engine prefers the preferred one.
const migrationTime = 5 * time.Second

// Config is the configuration.
type Config struct {
	Machine lifecycle.Machine
	// On: feature gate ConcurrentAdmission. Without it, variants are removed.
	On bool
	// Gated: the annotation admission-gated-by counts, see lifecycle.KeptOut.
	Gated bool
}

// Observed is a Workload, with what decides about its variants.
type Observed struct {
	Parent   *kueue.Workload
	Variants []*kueue.Workload // all that it controls
	// Queue is the ClusterQueue to which its LocalQueue leads; nil if there is none, or with the feature gate off.
	Queue *kueue.ClusterQueue
	Now   metav1.Time
	// Failed are the flavors of the variants whose creation has just failed: it is not tried again, and the other steps are made.
	Failed []kueue.ResourceFlavorReference
}

// Verb is what a step does with its Workload.
type Verb int

// The verbs.
const (
	Nothing        Verb = iota
	Patch               // its labels, annotations and spec
	Create              // it
	Delete              // it
	WriteStatus         // its status, but for reclaimablePods
	WritePodsReady      // its condition PodsReady
	WriteReclaimable
)

// Step is the next write; after it, the Workload is observed again.
type Step struct {
	Verb     Verb
	Workload *kueue.Workload // as it is to be
	Was      *kueue.Workload // as it is
	// Guarded: it follows from several objects, of which the cache may show old versions. It is to be made only if it is also the step that
	// follows from live reads.
	Guarded bool
	Events  []Event
	Wake    time.Time // when to observe again without an event; zero is never
}

// Event is an event about a Workload.
type Event struct {
	About        *kueue.Workload
	Reason, Note string
}

// Apply makes o what a step leads to, given its Workload as stored.
func (o *Observed) Apply(step *Step, stored *kueue.Workload) {
	at := slices.IndexFunc(o.Variants, func(v *kueue.Workload) bool { return v.UID == step.Workload.UID })
	switch {
	case step.Verb == Create:
		o.Variants = append(o.Variants, stored)
	case at >= 0 && step.Verb == Delete:
		o.Variants = slices.Delete(o.Variants, at, at+1)
	case at >= 0:
		o.Variants[at] = stored
	default:
		o.Parent = stored
	}
}

// PolicyOf returns the policy of a ClusterQueue, nil without one or with the feature gate off.
func PolicyOf(cq *kueue.ClusterQueue, on bool) *kueue.ConcurrentAdmissionPolicy {
	if cq == nil || !on {
		return nil
	}
	return cq.Spec.ConcurrentAdmissionPolicy
}

// MigratesTo returns how many of the flavors of a ClusterQueue with a policy, the preferred ones first, a running job may move to.
func MigratesTo(cq *kueue.ClusterQueue) int32 {
	all, migration := flavors(cq), &cq.Spec.ConcurrentAdmissionPolicy.Migration
	if migration.Mode == kueue.RetainFirstAdmission {
		return 0
	}
	if c := migration.Constraints; c != nil {
		if at := slices.Index(all, c.LastAcceptableFlavorName); at >= 0 {
			return int32(at) + 1
		}
	}
	return int32(len(all))
}

// MayDivide reports whether a Workload may be tried as variants. Workloads of elastic jobs are queued themselves.
func MayDivide(w *kueue.Workload) bool {
	return lifecycle.VariantOf(w) == "" && !chain.IsElastic(w) && chain.Replaces(w) == ""
}

// Name returns the name of the variant of a flavor.
func Name(parent *kueue.Workload, flavor kueue.ResourceFlavorReference) string {
	const limit = 253 // of an object's name
	sum := sha256.Sum256([]byte(string(parent.UID) + "/" + string(flavor)))
	suffix := fmt.Sprintf("-variant-%s-%s", flavor, hex.EncodeToString(sum[:])[:5])
	if len(suffix) > limit/2 { // the flavor's name is long
		suffix = "-variant-" + hex.EncodeToString(sum[:])[:10]
	}
	base := parent.Name
	return strings.TrimRight(base[:min(len(base), limit-len(suffix))], "-.") + suffix
}

// FlavorOf returns the flavor of a variant.
func FlavorOf(w *kueue.Workload) kueue.ResourceFlavorReference {
	return kueue.ResourceFlavorReference(w.Annotations[kueue.AllowedResourceFlavorsAnnotation])
}

// RunsOn returns the variant whose admission a parent shows, nil for none.
func RunsOn(parent *kueue.Workload, variants []*kueue.Workload) *kueue.Workload {
	if !lifecycle.IsReserved(parent) || parent.Status.Admission == nil {
		return nil
	}
	assigned := map[kueue.ResourceFlavorReference]bool{}
	for _, a := range parent.Status.Admission.PodSetAssignments {
		for _, f := range a.Flavors { //berth:unordered a set
			assigned[f] = true
		}
	}
	var without *kueue.Workload // of pods without requests, which need no flavor: any that is admitted
	for _, v := range variants {
		if assigned[FlavorOf(v)] {
			return v
		}
		if len(assigned) == 0 && lifecycle.IsAdmitted(v) && without == nil {
			without = v
		}
	}
	return without
}

// AsStarted returns a Workload as its pods are started: a parent with the admission checks that the variant it runs on has passed, whose
// updates of pods are for the pods of the parent. It is to be read only. Nil: that variant is not admitted, as far as is known.
func AsStarted(w *kueue.Workload, variants []*kueue.Workload) *kueue.Workload {
	if !lifecycle.IsParent(w) || !lifecycle.IsReserved(w) {
		return w
	}
	v := RunsOn(w, variants)
	if v == nil || !isAdmitted(v) {
		return nil
	}
	out := *w
	out.Status.AdmissionChecks = v.Status.AdmissionChecks
	return &out
}

// flavors returns the flavors of a ClusterQueue in their order.
func flavors(cq *kueue.ClusterQueue) []kueue.ResourceFlavorReference {
	var out []kueue.ResourceFlavorReference
	for _, g := range cq.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			if !slices.Contains(out, f.Name) {
				out = append(out, f.Name)
			}
		}
	}
	return out
}

// compose returns the variant of a flavor. Its labels and annotations are copies, but for the ones that make a parent, keep it out of
// its queue, make it what a manager of MultiKueue has sent here, or are the state of tools.
func compose(parent *kueue.Workload, flavor kueue.ResourceFlavorReference, rank int) *kueue.Workload {
	v := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: parent.Namespace, Name: Name(parent, flavor), Labels: maps.Clone(parent.Labels), Annotations: maps.Clone(parent.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, kueue.GroupVersion.WithKind("Workload"))},
		},
		Spec: *parent.Spec.DeepCopy(),
	}
	delete(v.Labels, kueue.ConcurrentAdmissionParentLabel)
	delete(v.Labels, kueue.MultiKueueOriginLabel) // the manager deletes what has it, and is no Workload of its own
	maps.DeleteFunc(v.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, lifecycle.MultiKueuePrefix) })
	for _, key := range []string{kueue.AdmissionGatedByAnnotation, "kubectl.kubernetes.io/last-applied-configuration"} {
		delete(v.Annotations, key)
	}
	metav1.SetMetaDataAnnotation(&v.ObjectMeta, kueue.AllowedResourceFlavorsAnnotation, string(flavor))
	metav1.SetMetaDataAnnotation(&v.ObjectMeta, lifecycle.VariantRankAnnotation, strconv.Itoa(rank))
	v.Spec.Active = nil
	copyGates(v, parent)
	for i := range v.Spec.PodSets {
		v.Spec.PodSets[i].MinCount = nil // no partial admission (spec: 20 §4.10)
	}
	return v
}

// copyGates gives a variant the preemption gates of its parent and its own, and reports whether it had others.
func copyGates(v, parent *kueue.Workload) (changed bool) {
	want := slices.Clone(parent.Spec.PreemptionGates)
	if own := (kueue.PreemptionGate{Name: kueue.ConcurrentAdmissionPreemptionGate}); !slices.Contains(want, own) {
		want = append(want, own)
	}
	changed = !slices.Equal(v.Spec.PreemptionGates, want)
	v.Spec.PreemptionGates = want
	return changed
}

// isCurrent reports whether a variant is for the same pods in the same queue as one made now.
func isCurrent(v, fresh *kueue.Workload) bool {
	return v.Name == fresh.Name && v.Spec.QueueName == fresh.Spec.QueueName && equality.Semantic.DeepEqual(v.Spec.PodSets, fresh.Spec.PodSets)
}

// compareRanks is the order of flavors.
func compareRanks(a, b *kueue.Workload) int {
	return cmp.Or(cmp.Compare(lifecycle.VariantRank(a), lifecycle.VariantRank(b)), cmp.Compare(a.Name, b.Name))
}
