// Package runtimes is the one store of training runtimes: the live ones, and the ones that TrainJobs began with. The controller
// of TrainJobs, their webhooks and the job kind read runtimes through it.
package runtimes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/training/plan"
)

// keepUnused is how long a snapshot stays in memory after its last use. It is far longer than any reconcile, so that a reconcile which
// has found a snapshot here finds it until its end.
const keepUnused = time.Hour

// Store reads runtimes. The content of snapshots, which never changes, is kept in memory by its hash: TrainJobs of one runtime share it,
// and a snapshot that the status of a TrainJob confirms is read from the API server once. Its runtimes are shared: they must not be changed.
type Store struct {
	cache, live client.Reader
	snapshots   *snapshots
}

type snapshots struct {
	mu     sync.Mutex
	byHash map[string]*snapshot
	now    func() time.Time
}

type snapshot struct {
	runtime *plan.Runtime
	used    time.Time
	bytes   int // as serialized
}

// maxBytes is how many bytes of snapshots are kept, as serialized, beside the ones in use: any user of a namespace can make them.
const (
	maxBytes = 32 << 20
	inUse    = time.Minute
)

// purge drops snapshots that were not used for long, and then the least recently used ones. The lock must be held.
func (s *snapshots) purge() {
	now, sum := s.now(), 0
	maps.DeleteFunc(s.byHash, func(_ string, kept *snapshot) bool {
		if now.Sub(kept.used) > keepUnused {
			return true
		}
		sum += kept.bytes
		return false
	})
	if sum <= maxBytes {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(s.byHash), func(a, b string) int { return s.byHash[a].used.Compare(s.byHash[b].used) })
	for _, hash := range oldest {
		kept := s.byHash[hash]
		if sum <= maxBytes || now.Sub(kept.used) < inUse {
			return
		}
		sum -= kept.bytes
		delete(s.byHash, hash)
	}
}

// New returns a store that reads runtimes and priority classes from the cache, and from the API server what the cache does not have.
func New(cache, live client.Reader) *Store {
	return &Store{cache, live, &snapshots{byHash: map[string]*snapshot{}, now: time.Now}}
}

// Through is the same store with another way to the API server.
func (s *Store) Through(live client.Reader) *Store { return &Store{s.cache, live, s.snapshots} }

// Recorded returns the runtime that the status of a TrainJob records, or nil if its snapshot has to be read.
func (s *Store) Recorded(job *trainerv1alpha1.TrainJob) *plan.Runtime {
	if job.Status.RuntimeSnapshot == nil {
		return nil
	}
	if r := s.Snapshot(job.Status.RuntimeSnapshot.Hash); r != nil && r.IsOf(job) {
		return r
	}
	return nil
}

// Snapshot returns the runtime in a snapshot with this hash (plan.SnapshotHash), or nil if it has to be read.
func (s *Store) Snapshot(hash string) *plan.Runtime {
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	found := s.snapshots.byHash[hash]
	if found == nil {
		return nil
	}
	found.used = s.snapshots.now()
	return found.runtime
}

// AddSnapshot keeps the runtime in a snapshot with this hash.
func (s *Store) AddSnapshot(hash string, r *plan.Runtime) {
	text, _ := json.Marshal(r) // it was read from such a text
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	s.snapshots.purge()
	s.snapshots.byHash[hash] = &snapshot{r, s.snapshots.now(), len(text)}
}

// Begun returns the runtime that a TrainJob began with, which its snapshot keeps; the live one if it has not begun; or nil if
// there is neither (spec: 50 §4.3).
func (s *Store) Begun(ctx context.Context, job *trainerv1alpha1.TrainJob) (*plan.Runtime, error) {
	if r := s.Recorded(job); r != nil {
		return r, nil
	}
	var snapshot corev1.ConfigMap
	key := client.ObjectKey{Namespace: job.Namespace, Name: job.Name + trainerv1alpha1.SuffixRuntimeSnapshot}
	err := s.live.Get(ctx, key, &snapshot)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	if err == nil {
		if r, err := plan.ReadSnapshot(job, &snapshot); err == nil {
			s.AddSnapshot(plan.SnapshotHash(&snapshot), r)
			return r, nil
		}
	}
	return s.Live(ctx, job)
}

// Live returns the runtime that a TrainJob names as it is now, or nil if there is none, as with a name that no object can have.
func (s *Store) Live(ctx context.Context, job *trainerv1alpha1.TrainJob) (*plan.Runtime, error) {
	_, kind := plan.RefKind(&job.Spec.RuntimeRef)
	name := job.Spec.RuntimeRef.Name
	if name == "" || len(content.IsPathSegmentName(name)) > 0 {
		return nil, nil
	}
	for _, reader := range []client.Reader{s.cache, s.live} {
		var found *plan.Runtime
		var err error
		if kind == trainerv1alpha1.KindTrainingRuntime {
			var o trainerv1alpha1.TrainingRuntime
			err = reader.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: name}, &o)
			found = plan.NamespacedRuntime(&o)
		} else {
			var o trainerv1alpha1.ClusterTrainingRuntime
			err = reader.Get(ctx, client.ObjectKey{Name: name}, &o)
			found = plan.ClusterRuntime(&o)
		}
		if err == nil {
			return found, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading %s %s: %w", kind, name, err)
		}
	}
	return nil, nil
}

// PriorityClasses returns which of the priority classes exist that decide about a TrainJob of the runtime.
func (s *Store) PriorityClasses(ctx context.Context, runtime *plan.Runtime) (map[string]bool, error) {
	found := map[string]bool{}
	for _, name := range plan.PriorityClassNames(runtime) {
		err := s.cache.Get(ctx, client.ObjectKey{Name: name}, &schedulingv1.PriorityClass{})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading PriorityClass %s: %w", name, err)
		}
		found[name] = err == nil
	}
	return found, nil
}
