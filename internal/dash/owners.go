package dash

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
)

const (
	parentsKept = 1 << 16
	maxSteps    = 8  // from a pod to the job at the top
	maxRetries  = 10 // of one owner, in 14 minutes: the API server may be away for a while
)

// owners finds the Workload of a pod of any job kind: by the name that pods of elastic jobs carry, or by the pod's owner, its owner
// and so on, up to an owner of the Workload. Owners in between are read once each, in the background.
type owners struct {
	live  client.Reader
	learn func(namespace string) // called for new links
	queue workqueue.TypedRateLimitingInterface[link]
	// parents are owners, as link, by the link to the owned object; the zero link for none.
	parents *lru.Cache
}

// link is an owner of an object.
type link struct {
	namespace, name string
	gvk             schema.GroupVersionKind
	uid             types.UID
}

func newOwners(live client.Reader, learn func(namespace string)) *owners {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[link](time.Second, 5*time.Minute)
	return &owners{live: live, learn: learn, queue: workqueue.NewTypedRateLimitingQueue(limit), parents: lru.New(parentsKept)}
}

// ownerOf returns the owner that an object follows, one alone: the owners of all owners may multiply at each step. It is the zero link for
// none. Pods of a JobSet name it beside the Job in between; a user may write these labels.
func ownerOf(o metav1.Object) link {
	labels := o.GetLabels()
	if uid, name := labels[jobsetv1alpha2.JobSetUIDKey], labels[jobsetv1alpha2.JobSetNameKey]; uid != "" && name != "" {
		return link{o.GetNamespace(), name, jobsetv1alpha2.GroupVersion.WithKind("JobSet"), types.UID(uid)}
	}
	if ref := reconcile.MainOwner(o.GetOwnerReferences()); ref != nil {
		return link{o.GetNamespace(), ref.Name, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), ref.UID}
	}
	return link{}
}

// owned is an owner and the namespace of the owned object: labels of pods name owners unchecked.
type owned struct {
	namespace string
	by        types.UID
}

// match finds the pods of Workloads, by the UIDs of these.
func (k *owners) match(among []*kueue.Workload, of []*corev1.Pod) map[types.UID][]*corev1.Pod {
	byOwner, byName := map[owned][]types.UID{}, map[types.NamespacedName]types.UID{}
	for _, w := range among {
		byName[client.ObjectKeyFromObject(w)] = w.UID
		for _, ref := range w.OwnerReferences {
			by := owned{w.Namespace, ref.UID}
			byOwner[by] = append(byOwner[by], w.UID)
		}
	}
	out := map[types.UID][]*corev1.Pod{}
	for _, pod := range of {
		if name := pod.Annotations[kueue.WorkloadAnnotation]; name != "" {
			if uid, ok := byName[types.NamespacedName{Namespace: pod.Namespace, Name: name}]; ok {
				out[uid] = append(out[uid], pod)
			}
			continue
		}
		for _, uid := range k.climb(pod, byOwner) {
			out[uid] = append(out[uid], pod)
		}
	}
	return out
}

// climb follows the known owners of a pod up to the first owner of a Workload, and queues unknown ones for run.
func (k *owners) climb(pod *corev1.Pod, byOwner map[owned][]types.UID) []types.UID {
	if found := byOwner[owned{pod.Namespace, pod.UID}]; found != nil {
		return found
	}
	owner := ownerOf(pod)
	for range maxSteps {
		if owner == (link{}) {
			return nil
		}
		if found := byOwner[owned{pod.Namespace, owner.uid}]; found != nil {
			return found
		}
		parent, known := k.parents.Get(owner)
		if !known {
			if k.queue.NumRequeues(owner) == 0 { // otherwise it is retried after a pause
				k.queue.Add(owner)
			}
			return nil
		}
		owner, _ = parent.(link)
	}
	return nil
}

// run reads owners of owners until ctx ends.
func (k *owners) run(ctx context.Context) {
	defer context.AfterFunc(ctx, k.queue.ShutDown)()
	for {
		owner, end := k.queue.Get()
		if end {
			return
		}
		k.handle(ctx, owner)
	}
}

// handle finds an owner. One that cannot be read again and again counts as one without owners.
func (k *owners) handle(ctx context.Context, owner link) {
	defer k.queue.Done(owner)
	if !k.find(ctx, owner) {
		if k.queue.NumRequeues(owner) < maxRetries {
			k.queue.AddRateLimited(owner)
			return
		}
		k.parents.Add(owner, link{})
	}
	k.queue.Forget(owner)
	k.learn(owner.namespace)
}

// find reads the owner of an owner, unless it is known. It returns false if it has to be retried.
func (k *owners) find(ctx context.Context, owner link) bool {
	if _, known := k.parents.Get(owner); known {
		return true
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(owner.gvk)
	var above link
	err := k.live.Get(ctx, client.ObjectKey{Namespace: owner.namespace, Name: owner.name}, o)
	switch {
	case err == nil:
		if o.GetUID() == owner.uid { // else it is another object of the same name
			above = ownerOf(o)
		}
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !apimeta.IsNoMatchError(err):
		return false
	}
	k.parents.Add(owner, above)
	return true
}
