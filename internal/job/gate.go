package job

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Config is the configuration of jobs. The feature gates of spec 30 §5.6 are plain values, resolved at the start.
type Config struct {
	// ManagedNamespaces selects the managed namespaces. Nil selects all.
	ManagedNamespaces labels.Selector
	// ManageAll also queues jobs without a queue name.
	ManageAll bool
	// Kinds are the kinds that the walk up the owners follows.
	Kinds Kinds
	// VerifyOwners lets an object follow its controller owner only if the owner's controller can have made it; see [Ownership].
	// ExternalOwns are the external kinds with the kinds that they own; nil is any.
	VerifyOwners bool
	ExternalOwns map[schema.GroupVersionKind][]schema.GroupVersionKind
	// PodsOfParentsOnly ignores pods without an integrated owner: pods are integrated only for Deployments and the like.
	PodsOfParentsOnly bool
	// LabelKeysToCopy are labels that a Workload copies from its new job.
	LabelKeysToCopy []string
	// SeriesLabels and SeriesAnnotations are copied to the Workload as well, for the custom labels of metrics.
	SeriesLabels, SeriesAnnotations []string
	// WaitForPodsReady maintains the PodsReady condition.
	WaitForPodsReady bool
	// DeleteDeactivatedAfter is how long a job is kept after Berth deactivated it. Nil: for ever.
	DeleteDeactivatedAfter *time.Duration

	// MaxChildren is the maximum number of objects that may be made for a new job; 0 is DefaultMaxChildren.
	MaxChildren int32

	// MaxMinRunTime is the longest time that a job may ask to run before it is preempted; 0 ignores what jobs ask for.
	MaxMinRunTime time.Duration

	// Lifecycle makes the transitions of Workloads.
	Lifecycle lifecycle.Machine

	AdmissionGatedBy         bool // copy the annotation of gates
	AssignQueueLabels        bool // label pods with their queues
	AnnotationIdentifiers    bool // names are written to annotations: gate WorkloadIdentifierAnnotations
	DefaultPriorityClass     bool // gate WorkloadPriorityClassDefaulting
	ElasticJobs              bool // gate ElasticJobsViaWorkloadSlices
	FinishOrphans            bool // gate FinishOrphanedWorkloads
	MultiKueue               bool
	PartialAdmission         bool
	ReclaimablePods          bool
	ShortNames               bool // gate ShortWorkloadNames
	HonourUserSuspend        bool // integrations.honourUserSuspend
	SkipOwnersWhenDeleting   bool // gate SkipAncestorCheckForDeletedWorkloads
	Topology                 bool // gate TopologyAwareScheduling
	TopologySliceConstraints bool // gate TASMultiLayerTopology
}

// IsQueued reports whether a job in a managed namespace has a Workload, if no ancestor has one for it.
func (c *Config) IsQueued(o metav1.Object) bool { return c.ManageAll || QueueName(o) != "" }

// Kinds maps each known kind of owners to whether its jobs are managed: its integration is enabled or external. Other kinds end the
// walk (spec: 30 §4.2.1).
type Kinds map[schema.GroupVersionKind]bool

// AreOff reports whether owners are all of known kinds that are not enabled; false without owners.
func (k Kinds) AreOff(owners []metav1.OwnerReference) bool {
	for i := range owners {
		if enabled, known := k[schema.FromAPIVersionAndKind(owners[i].APIVersion, owners[i].Kind)]; enabled || !known {
			return false
		}
	}
	return len(owners) > 0
}

var (
	jobs      = batchv1.SchemeGroupVersion.WithKind("Job")
	jobSets   = jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet)
	trainJobs = trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob)
)

// resumers are the kinds of owners whose controllers resume suspended objects of a kind, whatever their labels are: they would resume each
// one that Berth suspends (spec: 60 §4.13).
var resumers = map[schema.GroupKind]schema.GroupKind{jobs.GroupKind(): jobSets.GroupKind(), jobSets.GroupKind(): trainJobs.GroupKind()}

// maxOwners is the maximum length of an owner chain.
const maxOwners = 10

// Mode is the management mode of one object.
type Mode int

const (
	// Undecided means that an owner must be looked up first.
	Undecided Mode = iota
	// Unmanaged means that the namespace is not managed: the object, its owners and its descendants are never touched.
	Unmanaged
	// Ignored means that the object is not queued.
	Ignored
	// Managed means that the object has a Workload of its own.
	Managed
	// Follows means that the object runs while the Workload of an ancestor is admitted.
	Follows
)

// Owner is one link of the chain of controller owners. A nil Object means that it does not exist.
type Owner struct {
	GVK    schema.GroupVersionKind
	Object metav1.Object
	// Objects are the objects that it refers to; nil if they were not read.
	Objects map[Reference]Object
	// Held are the pod sets of its Workload that holds quota; nil if they were not read.
	Held []kueue.PodSet
}

// Verdict is the answer of Judge.
type Verdict struct {
	Mode Mode
	// Ancestor is the topmost managed owner, with Follows.
	Ancestor *Owner
	// IsPart reports that the controller owner is of a managed kind, whatever its labels are, and has made the object.
	IsPart bool
	// Resumed reports that the controller owner starts the object while it runs itself, and has made it: without an ancestor it is Ignored.
	// Nothing below the object follows the object either.
	Resumed bool
	// NotMade is why the walk up the owners ended: the next owner cannot have made its dependent, or makes no pods now.
	NotMade error
	// Need is the owner to read and append to the chain, with Undecided. It is in the namespace of the object.
	Need *metav1.OwnerReference
	// Err, with Undecided and no Need, is why there is no answer: an owner is missing, or owns itself. TooDeep reports a chain that
	// is too long.
	Err     error
	TooDeep bool
}

// Judge is the hard gate: it alone decides whether Berth may touch an object. The webhook, the reconciler and every writer ask it.
// The namespace is checked first: in an unmanaged one no owner is read. chain holds the owners that were read so far, nearest
// first; the verdict may ask for the next one (spec: 30 §4.2.5, 4.2.1, 4.2.2). An owner that cannot have made its dependent ends
// the chain. A pod follows no owner while a queued job above it does not run.
func Judge(cfg *Config, rules Ownership, namespace map[string]string, of Owner, chain []Owner) Verdict {
	object := of.Object
	if cfg.ManagedNamespaces != nil && !cfg.ManagedNamespaces.Matches(labels.Set(namespace)) {
		return Verdict{Mode: Unmanaged}
	}
	v := climb(cfg, rules, of, chain)
	switch {
	case v.Need != nil || v.Err != nil:
	case v.Ancestor != nil:
		v.Mode = Follows
	case v.Resumed:
		v.Mode = Ignored
	case cfg.ManageAll || QueueName(object) != "":
		v.Mode = Managed
	default:
		v.Mode = Ignored
	}
	return v
}

// JudgeMarked is the hard gate for an object that was judged and marked at creation: its owners are not read again.
func JudgeMarked(cfg *Config, namespace map[string]string, marked bool) Verdict {
	switch {
	case cfg.ManagedNamespaces != nil && !cfg.ManagedNamespaces.Matches(labels.Set(namespace)):
		return Verdict{Mode: Unmanaged}
	case marked:
		return Verdict{Mode: Managed}
	default:
		return Verdict{Mode: Ignored}
	}
}

// climb walks up the controller owners as far as their kinds are known, and returns the topmost managed one.
func climb(cfg *Config, rules Ownership, of Owner, chain []Owner) Verdict { //nolint:gocyclo // one walk: each way in which it ends is a case
	var v Verdict
	object := of.Object
	seen := map[types.UID]bool{object.GetUID(): true}
	var below []metav1.Object
	relayed := false
	for i, at := 0, of; ; i++ {
		ref := metav1.GetControllerOf(at.Object)
		if ref == nil {
			return v
		}
		gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
		managed, known := cfg.Kinds[gvk]
		if !known {
			return v
		}
		name := fmt.Sprintf("%s %s/%s", ref.Kind, object.GetNamespace(), ref.Name)
		child, may := rules.child(gvk, at.GVK)
		v.IsPart = v.IsPart || (i == 0 && managed && rules == nil)
		if !may {
			v.NotMade = fmt.Errorf("a %s makes no %s", ref.Kind, at.GVK.Kind)
			return v
		}
		switch {
		case i >= maxOwners:
			return Verdict{TooDeep: true, Err: fmt.Errorf("more than %d owners above %s: queue the outermost one instead", maxOwners, object.GetName())}
		case seen[ref.UID]:
			return Verdict{Err: fmt.Errorf("%s owns itself: break the cycle of owner references", name)}
		case i >= len(chain):
			return Verdict{Need: ref}
		case chain[i].Object == nil:
			return Verdict{Err: fmt.Errorf("owner %s of %s does not exist: delete the object or remove the owner reference", name, object.GetName())}
		case chain[i].Object.GetUID() != ref.UID:
			return v // another object of that name: the reference is stale or forged
		}
		if v.NotMade = rules.made(cfg, &child, &chain[i], &at, below); v.NotMade != nil {
			return v
		}
		if resumed := resumers[at.GVK.GroupKind()] == gvk.GroupKind(); resumed && i == 0 {
			v.Resumed = true
		} else if resumed && v.Ancestor != nil && v.Ancestor.Object == at.Object {
			v.Ancestor = nil
		}
		below = append(below, at.Object)
		at = chain[i]
		seen[ref.UID] = true
		v.IsPart = v.IsPart || (i == 0 && managed)
		relayed = child.Relay || (relayed && !child.Relayed)
		if managed && !relayed && cfg.IsQueued(at.Object) {
			if err := rules.idle(of.GVK, &at, i == 0); err != nil {
				return Verdict{NotMade: err}
			}
			v.Ancestor = &Owner{GVK: gvk, Object: at.Object}
		}
	}
}

// HasManagedOwner reports whether the controller owner is of a managed kind, whatever its labels are.
func (c *Config) HasManagedOwner(object metav1.Object) bool {
	ref := metav1.GetControllerOf(object)
	return ref != nil && c.Kinds[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)]
}

// QueueName is the LocalQueue that a job names, or empty.
func QueueName(object metav1.Object) string { return object.GetLabels()[kueue.QueueNameLabel] }

// MaxLabel is the maximum length of a label value, and of a part of a host name. Longer names can only be annotations.
const MaxLabel = 63

// PrebuiltName is the existing Workload that a job names, or empty.
func (c *Config) PrebuiltName(object metav1.Object) string {
	return c.identifier(object, kueue.PrebuiltWorkloadLabel)
}

// GroupName is the pod group that a pod names, or empty (spec: 30 §3.2). Without the gate an annotation is read as well where there is no
// label: a pod whose group was written with the gate stays in it.
func (c *Config) GroupName(object metav1.Object) string {
	label, annotation := object.GetLabels()[kueue.PodGroupNameLabel], object.GetAnnotations()[kueue.PodGroupNameLabel]
	if annotation != "" && (c.AnnotationIdentifiers || label == "") {
		return annotation
	}
	return label
}

// identifier reads a name from the label or the annotation of a key (spec: 30 §3.2), as GroupName does.
func (c *Config) identifier(object metav1.Object, key string) string {
	label, annotation := object.GetLabels()[key], object.GetAnnotations()[key]
	if annotation != "" && (c.AnnotationIdentifiers || label == "" || len(annotation) > MaxLabel) {
		return annotation
	}
	return label
}

// WriteIdentifier writes a name to the label or the annotation of a key; both maps must exist (spec: 30 §3.2).
func (c *Config) WriteIdentifier(object metav1.Object, key, name string) {
	if c.AnnotationIdentifiers || len(name) > MaxLabel {
		object.GetAnnotations()[key] = name
		return
	}
	object.GetLabels()[key] = name
}

// IsElastic reports whether an object is to be resized while it runs.
func IsElastic(object metav1.Object) bool {
	return object.GetAnnotations()[kueue.ElasticJobAnnotation] == "true"
}

// UserStopAnnotation marks a job that a user stopped while it was admitted (spec: 30 §6, u1).
const UserStopAnnotation = "berth.dev/user-stop"

// IsUserStopped reports whether a user stopped the job, and the configuration honours that.
func (c *Config) IsUserStopped(job metav1.Object) bool {
	return c.HonourUserSuspend && job.GetAnnotations()[UserStopAnnotation] == "true"
}

// IsRemote reports whether the manager of another cluster made an object.
func IsRemote(o metav1.Object) bool { return o.GetLabels()[kueue.MultiKueueOriginLabel] != "" }
