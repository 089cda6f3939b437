package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// ReasonQueueLabelIgnored is the reason of the event on an object whose queue label has no effect.
const ReasonQueueLabelIgnored = "QueueLabelIgnored"

// Queues reports whether objects of the kind have Workloads of their own. Pods have none where they are integrated only for
// Deployments and the like.
func (c *Config) Queues(d *Descriptor) bool {
	return c.Kinds[d.GVK] && (d.Once == nil || !c.PodsOfParentsOnly)
}

// IgnoredQueue returns why the queue label of an object has no effect, in a sentence for its user; empty if it has an effect, or if
// there is no label. namespace holds the labels of the namespace. An object whose controller is of a known kind is never ignored:
// the label of the controller counts.
func IgnoredQueue(cfg *Config, d *Descriptor, namespace map[string]string, object metav1.Object) string {
	switch {
	case QueueName(object) == "" || object.GetDeletionTimestamp() != nil || cfg.hasKnownOwner(object):
		return ""
	case cfg.ManagedNamespaces != nil && !cfg.ManagedNamespaces.Matches(labels.Set(namespace)):
		return UnmanagedNote(object.GetNamespace())
	case !cfg.Queues(d):
		return UnlistedNote(d.Framework)
	}
	return ""
}

const ignoredNote = "the label " + kueue.QueueNameLabel + " is ignored, and the object is not queued: "

// UnmanagedNote is the sentence about a queue label in a namespace that Berth does not manage.
func UnmanagedNote(namespace string) string {
	return ignoredNote + "Berth does not manage the namespace " + namespace +
		"; its labels have to match managedJobsNamespaceSelector of the configuration"
}

// UnlistedNote is the sentence about a queue label on an object of a kind that the configuration does not list.
func UnlistedNote(framework string) string {
	return ignoredNote + "Berth is not configured to queue this kind; add " + framework + " to integrations.frameworks of the configuration"
}

// hasKnownOwner reports whether the controller of an object is of a known kind, queued or not.
func (c *Config) hasKnownOwner(object metav1.Object) bool {
	ref := metav1.GetControllerOf(object)
	if ref == nil {
		return false
	}
	_, known := c.Kinds[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)]
	return known
}
