package dash

import (
	"context"
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
