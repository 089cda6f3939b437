package dash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// mute is a reader that never answers.
type mute struct {
	client.Reader
	reads int
}

func (m *mute) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	m.reads++
	return errors.New("no answer")
}

// TestOwnersThatCannotBeRead: the reads of an owner end after some failures. A pod that has only one of the labels of a JobSet has the owners of its
// metadata.
func TestOwnersThatCannotBeRead(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "p", UID: "p", Labels: map[string]string{jobsetv1alpha2.JobSetUIDKey: "made-up"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
			&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "j"}}, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}}
	reader, learned := &mute{}, 0
	k := newOwners(reader, func(string) { learned++ })
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[link](time.Nanosecond, time.Nanosecond))
	defer k.queue.ShutDown()
	for range 100 {
		k.match([]*kueue.Workload{{}}, []*corev1.Pod{pod})
		if learned > 0 {
			break
		}
		owner, _ := k.queue.Get()
		if owner.name != "j" {
			t.Fatalf("it reads %+v", owner)
		}
		k.handle(t.Context(), owner)
	}
	if reader.reads != maxRetries+1 || learned != 1 || k.queue.Len() != 0 {
		t.Errorf("%d reads, learned %d times, %d are queued", reader.reads, learned, k.queue.Len())
	}
}

// written is a reader of the owners that objects have by name.
type written struct {
	client.Reader
	owners map[string][]metav1.OwnerReference
}

func (w written) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetUID(types.UID(key.Name))
	o.SetOwnerReferences(w.owners[key.Name])
	return nil
}

// TestOwnersThatMultiply: pods that all own each other have one owner at each step. The controller counts, wherever it is in the list, else the
// first one. An owner that is read in another namespace, by a label, has no effect in this one.
func TestOwnersThatMultiply(t *testing.T) {
	ref := func(name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(name)}
	}
	controller := ref("job")
	controller.Controller = new(true)
	reader := written{owners: map[string][]metav1.OwnerReference{}}
	var all []metav1.OwnerReference
	for i := range 60 {
		all = append(all, ref(fmt.Sprint("p", i)))
	}
	var pods []*corev1.Pod
	add := func(namespace, name string, owners ...metav1.OwnerReference) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), OwnerReferences: owners}}
		reader.owners[name] = owners
		pods = append(pods, pod)
		return pod
	}
	for _, o := range all {
		add("ns", o.Name, all...)
	}
	thief := add("other", "thief")
	thief.Labels = map[string]string{jobsetv1alpha2.JobSetNameKey: "elsewhere", jobsetv1alpha2.JobSetUIDKey: "set"}
	set := controller
	set.APIVersion, set.Kind, set.Name, set.UID = jobsetv1alpha2.GroupVersion.String(), "JobSet", "set", "set"
	add("ns", "of-job", append(slices.Clone(all), controller)...)
	add("ns", "of-set", set)
	reader.owners["set"] = []metav1.OwnerReference{ref("train")}
	add("ns", "of-first", ref("first"), ref("job"))
	workload := func(name, owner string) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{ref(owner)}}}
	}
	workloads := []*kueue.Workload{workload("a", "job"), workload("b", "first"), workload("c", "train")}

	k := newOwners(reader, func(string) {})
	defer k.queue.ShutDown()
	var got map[types.UID][]*corev1.Pod
	for range maxSteps {
		got = k.match(workloads, pods)
		for k.queue.Len() > 0 {
			owner, _ := k.queue.Get()
			k.handle(t.Context(), owner)
		}
	}
	names := map[types.UID]string{}
	for uid, of := range got {
		for _, pod := range of {
			names[uid] += pod.Name
		}
	}
	if want := map[types.UID]string{"a": "of-job", "b": "of-first", "c": "of-set"}; !maps.Equal(names, want) {
		t.Errorf("pods %v, want %v", names, want)
	}
}
