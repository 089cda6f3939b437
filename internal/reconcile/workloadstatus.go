package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	fastjson "github.com/go-json-experiment/json"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Field managers of a Workload's status. Tools built for the API apply with the same names and delete by omission, so
// they are part of the contract (spec: 10 §4.9, 30 §5.3).
const (
	admissionManager   = "kueue-admission"
	reclaimableManager = "kueue-reclaimable-pods"
	podsReadyManager   = "kueue-job-controller-PodsReady"
)

// ownedConditions are the conditions that belong to the admission manager.
var ownedConditions = []string{
	kueue.WorkloadQuotaReserved, kueue.WorkloadBlockedOnPreemptionGates, kueue.WorkloadEvicted, kueue.WorkloadAdmitted,
	kueue.WorkloadPreempted, kueue.WorkloadRequeued, kueue.WorkloadDeactivationTarget, kueue.WorkloadFinished, kueue.WorkloadPodsReady,
	lifecycle.RunsRemotelyCondition,
}

// WorkloadStatus writes the status of Workloads. Safe for concurrent use.
type WorkloadStatus struct{ client client.Client }

// NewWorkloadStatus writes through the given client.
func NewWorkloadStatus(c client.Client) *WorkloadStatus { return &WorkloadStatus{client: c} }

// Strict writes the status of w: another write since the version that it was made from makes it fail with a conflict,
// and the caller observes and decides again. It returns the Workload as stored.
//
// Apply removes only fields without another owner. A status that came by an Update or a patch, from a script or a restore,
// would keep its fields, so Strict removes the remaining ones by a second write. When the last entry of a list with several
// owners is removed, apply leaves null behind, which the API server refuses: such a status is updated at once.
func (s *WorkloadStatus) Strict(ctx context.Context, w *kueue.Workload) (*kueue.Workload, error) {
	wanted := owned(w)
	stored, err := s.apply(ctx, admissionManager, w, wanted)
	switch {
	case len(wanted.NominatedClusterNames) > 0:
	case apierrors.IsInvalid(err):
		stored, err = s.apply(ctx, admissionManager, w, notNominated{wanted, []string{}})
	case err == nil && len(stored.Status.NominatedClusterNames) > 0:
		stored, err = s.apply(ctx, admissionManager, stored, notNominated{wanted, []string{}})
		err = partly(err)
	}
	if apierrors.IsInvalid(err) {
		stored = w.DeepCopy()
		return stored, s.update(ctx, stored)
	}
	if err != nil {
		return nil, err
	}
	same, err := sameJSON(owned(stored), wanted)
	if err != nil || same {
		return stored, err
	}
	overwrite(stored, w)
	return stored, partly(s.update(ctx, stored))
}

// partly makes the error of a write after another one that succeeded: its answer does not mean that nothing was written. A conflict
// stays one, since the caller then reads the Workload again.
func partly(err error) error {
	if err == nil || apierrors.IsConflict(err) {
		return err
	}
	return errors.New("after a first write: " + err.Error())
}

func (s *WorkloadStatus) update(ctx context.Context, w *kueue.Workload) error {
	if err := s.client.Status().Update(ctx, w, client.FieldOwner(admissionManager)); err != nil {
		return fmt.Errorf("updating the status of workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// CopyStatus returns a copy of w with a status of its own. It shares the slices and maps of everything else with w.
func CopyStatus(w *kueue.Workload) *kueue.Workload {
	out := *w
	w.Status.DeepCopyInto(&out.Status)
	return &out
}

// Transition applies change, which modifies nothing but the status, to a copy of w and writes the result strictly. If change returns false
// it writes nothing; the second result reports whether it wrote.
func (s *WorkloadStatus) Transition(ctx context.Context, w *kueue.Workload, change func(*kueue.Workload) bool) (*kueue.Workload, bool, error) {
	next := CopyStatus(w)
	if !change(next) {
		return w, false, nil
	}
	stored, err := s.Strict(ctx, next)
	if err != nil {
		return nil, false, err
	}
	return stored, true, nil
}

// ReclaimablePods writes status.reclaimablePods of w, and nothing else.
func (s *WorkloadStatus) ReclaimablePods(ctx context.Context, w *kueue.Workload) error {
	_, err := s.apply(ctx, reclaimableManager, w, kueue.WorkloadStatus{ReclaimablePods: w.Status.ReclaimablePods})
	return err
}

// PodsReady writes the PodsReady condition of w, and nothing else.
func (s *WorkloadStatus) PodsReady(ctx context.Context, w *kueue.Workload) error {
	_, err := s.apply(ctx, podsReadyManager, w, kueue.WorkloadStatus{Conditions: conditionsIn(w, []string{kueue.WorkloadPodsReady})})
	return err
}

// Replacements writes the WaitingForReplacementPods condition of w, and nothing else, in the name of the given field
// manager.
func (s *WorkloadStatus) Replacements(ctx context.Context, w *kueue.Workload, manager string) error {
	_, err := s.apply(ctx, manager, w, kueue.WorkloadStatus{Conditions: conditionsIn(w, []string{kueue.WorkloadWaitingForReplacementPods})})
	return err
}

// Checks writes the entries of admission checks in which next differs from w, in the name of the given field manager, which then owns
// these changes and nothing else. Another write since w fails with a conflict. It returns the Workload as stored.
func (s *WorkloadStatus) Checks(ctx context.Context, w, next *kueue.Workload, manager string) (*kueue.Workload, error) {
	stored := next.DeepCopy()
	pinned := client.MergeFromWithOptions(w, client.MergeFromWithOptimisticLock{})
	if err := s.client.Status().Patch(ctx, stored, pinned, client.FieldOwner(manager)); err != nil {
		return nil, fmt.Errorf("writing the admission checks of workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return stored, nil
}

// Check applies one admission check of w, and nothing else, in the name of the given field manager. Another write since w fails with a
// conflict. It returns the Workload as stored.
func (s *WorkloadStatus) Check(ctx context.Context, w *kueue.Workload, check kueue.AdmissionCheckState, manager string) (*kueue.Workload, error) {
	return s.apply(ctx, manager, w, kueue.WorkloadStatus{AdmissionChecks: []kueue.AdmissionCheckState{check}})
}

// sameJSON compares as the API server does: times in whole seconds, nil and empty alike.
func sameJSON(a, b kueue.WorkloadStatus) (bool, error) {
	x, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b)
	return bytes.Equal(x, y), err
}

// owned returns the part of the status that belongs to the admission manager. Apply drops every owned field that is left out.
func owned(w *kueue.Workload) kueue.WorkloadStatus {
	status := w.Status
	status.ReclaimablePods = nil
	status.Conditions = conditionsIn(w, ownedConditions)
	return status
}

// overwrite sets the owned part of stored's status to that of w.
func overwrite(stored, w *kueue.Workload) {
	reclaimable := stored.Status.ReclaimablePods
	conditions := conditionsIn(w, ownedConditions)
	for _, c := range stored.Status.Conditions {
		if !slices.Contains(ownedConditions, c.Type) {
			conditions = append(conditions, c)
		}
	}
	w.Status.DeepCopyInto(&stored.Status)
	stored.Status.ReclaimablePods, stored.Status.Conditions = reclaimable, conditions
}

// conditionsIn returns the conditions of w of the given types, in the order of the types.
func conditionsIn(w *kueue.Workload, conditionTypes []string) []metav1.Condition {
	var out []metav1.Condition
	for _, t := range conditionTypes {
		for _, c := range w.Status.Conditions {
			if c.Type == t {
				c.LastTransitionTime = *c.LastTransitionTime.DeepCopy()
				out = append(out, c)
			}
		}
	}
	return out
}

// notNominated is a status with an explicitly empty list of nominations: an apply that only omits nominations keeps the nominations of another field
// manager. This one takes them over, and leaves clusterName as this manager applies it (spec: 40 §4.5).
type notNominated struct {
	kueue.WorkloadStatus `json:",inline"`
	Nominated            []string `json:"nominatedClusterNames"`
}

// apply writes a part of the status: a WorkloadStatus or a notNominated.
func (s *WorkloadStatus) apply(ctx context.Context, manager string, w *kueue.Workload, status any) (*kueue.Workload, error) {
	request := &statusApply{key: client.ObjectKeyFromObject(w), uid: w.UID, resourceVersion: w.ResourceVersion, status: status}
	if err := s.client.Status().Apply(ctx, request, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("writing the status of workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return &request.stored, nil
}

// statusApply is a server-side apply of a Workload's status, and afterwards the Workload of the server's answer.
type statusApply struct {
	key             client.ObjectKey
	uid             types.UID
	resourceVersion string
	status          any
	stored          kueue.Workload
}

func (*statusApply) IsApplyConfiguration() {}

func (a *statusApply) GetName() *string { return &a.key.Name }

func (a *statusApply) GetNamespace() *string { return &a.key.Namespace }

func (*statusApply) GetKind() *string { return new("Workload") }

func (*statusApply) GetAPIVersion() *string { return new(kueue.GroupVersion.String()) }

// MarshalJSON returns the body of the request: only the fields to own, and the preconditions.
func (a *statusApply) MarshalJSON() ([]byte, error) {
	type metadata struct {
		Name            string    `json:"name"`
		Namespace       string    `json:"namespace"`
		UID             types.UID `json:"uid,omitempty"`
		ResourceVersion string    `json:"resourceVersion,omitempty"`
	}
	return json.Marshal(struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
		Status     any      `json:"status"`
	}{
		*a.GetAPIVersion(), *a.GetKind(),
		metadata{a.key.Name, a.key.Namespace, a.uid, a.resourceVersion},
		a.status,
	})
}

// UnmarshalJSON takes the Workload as stored from the response.
func (a *statusApply) UnmarshalJSON(body []byte) error {
	a.stored = kueue.Workload{}
	return fastjson.Unmarshal(body, &a.stored, lenient)
}
