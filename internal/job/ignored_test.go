package job

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

func TestIgnoredQueue(t *testing.T) {
	jobs := batchv1.SchemeGroupVersion.WithKind("Job")
	jobSets := schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}
	pods := corev1.SchemeGroupVersion.WithKind("Pod")
	cfg := &Config{
		ManagedNamespaces: labels.SelectorFromSet(labels.Set{"managed": "yes"}), PodsOfParentsOnly: true,
		Kinds: Kinds{jobs: true, jobSets: false, pods: true, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"): false},
	}
	managed, other := map[string]string{"managed": "yes"}, map[string]string{"managed": "no"}
	aJob, aJobSet := &Descriptor{GVK: jobs, Framework: "batch/job"}, &Descriptor{GVK: jobSets, Framework: "jobset.x-k8s.io/jobset"}
	aPod := &Descriptor{GVK: pods, Framework: "pod", Once: &Once{Marked: func(Object, *Config) bool { return false }}}
	owned := func(apiVersion, kind string) func(*metav1.ObjectMeta) {
		return func(m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "o", UID: "o", Controller: new(true)}}
		}
	}
	for name, tc := range map[string]struct {
		d         *Descriptor
		namespace map[string]string
		change    func(*metav1.ObjectMeta)
		want      string
	}{
		"listed and managed":               {aJob, managed, nil, ""},
		"listed, not managed":              {aJob, other, nil, UnmanagedNote("ns")},
		"not listed":                       {aJobSet, managed, nil, UnlistedNote("jobset.x-k8s.io/jobset")},
		"neither":                          {aJobSet, other, nil, UnmanagedNote("ns")},
		"no label":                         {aJobSet, other, func(m *metav1.ObjectMeta) { m.Labels = nil }, ""},
		"an empty label":                   {aJobSet, other, func(m *metav1.ObjectMeta) { m.Labels[kueue.QueueNameLabel] = "" }, ""},
		"being deleted":                    {aJobSet, other, func(m *metav1.ObjectMeta) { m.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }, ""},
		"a child of a kind that is queued": {aJobSet, managed, owned("batch/v1", "Job"), ""},
		"a child of a kind that is not":    {aJob, other, owned("jobset.x-k8s.io/v1alpha2", "JobSet"), ""},
		"a child of a ReplicaSet":          {aPod, managed, owned("apps/v1", "ReplicaSet"), ""},
		"a child of an unknown kind":       {aJobSet, managed, owned("batch/v1", "CronJob"), UnlistedNote("jobset.x-k8s.io/jobset")},
		"a pod, where only those of others are queued": {aPod, managed, nil, UnlistedNote("pod")},
	} {
		t.Run(name, func(t *testing.T) {
			meta := &metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "x", Labels: map[string]string{kueue.QueueNameLabel: "lq"}}
			if tc.change != nil {
				tc.change(meta)
			}
			if got := IgnoredQueue(cfg, tc.d, tc.namespace, meta); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
