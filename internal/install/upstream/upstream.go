// Package upstream finds the controllers whose place Berth takes where they still run: by their Deployments, their Leases, and the webhook
// configurations that they leave. `berth preflight` reports them, and Berth does not start beside them. spec: 70 §6 #20, #21.
package upstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/install"
)

// LeaderLabel is on the Leases of Berth's own leaders: the holder of such a Lease is no other controller. Another controller that acquires
// the Lease later does not remove the label.
const LeaderLabel = "berth.dev/leader"

// system is a controller whose place Berth takes.
type system struct {
	group string // of its API
	// lease is the name of the Lease of its leader. spec: 70 §2.
	lease string
	// deployments are the usual names of its Deployment, to which a release of Helm may add its own as a prefix.
	deployments []string
	// part is the one part of Berth that does the same, "" for all parts that are no other system's.
	part install.Group
}

var systems = []system{
	{kueue.GroupVersion.Group, "c1f6bfd2.kueue.x-k8s.io", []string{"kueue-controller-manager"}, ""},
	{jobsetv1alpha2.GroupVersion.Group, "6d4f6a47.jobset.x-k8s.io", []string{"jobset-controller-manager"}, install.JobSet},
	{
		trainerv1alpha1.GroupVersion.Group, "trainer.kubeflow.org",
		[]string{"kubeflow-trainer-controller-manager", "trainer-controller-manager"},
		install.Training,
	},
}

// partOf returns the one part of Berth that takes the place of the controller of an API group, "" if several do.
func partOf(group string) install.Group {
	for i := range systems {
		if systems[i].group == group {
			return systems[i].part
		}
	}
	return ""
}

// Groups returns the API groups that Berth serves in the place of other controllers.
func Groups() []string {
	out := make([]string, 0, len(systems))
	for i := range systems {
		out = append(out, systems[i].group)
	}
	return out
}

// Deployment is the Deployment of a controller of one of the APIs.
type Deployment struct {
	*appsv1.Deployment
	Group string // of the API
	// Berth is true of Berth's own, which has the names of upstream.
	Berth bool
}

// String returns the object as Kind/namespace/name.
func (d *Deployment) String() string { return "Deployment/" + d.Namespace + "/" + d.Name }

// Wants reports whether pods of the Deployment run, or are to run.
func (d *Deployment) Wants() bool {
	return d.Spec.Replicas == nil || *d.Spec.Replicas > 0 || d.Runs()
}

// Runs reports whether pods of the Deployment are ready. One without any may be a manifest that no cluster ever ran.
func (d *Deployment) Runs() bool { return d.Status.ReadyReplicas > 0 }

// owns reports whether a pod, zero for none, is one of the Deployment.
func (d *Deployment) owns(pod client.ObjectKey) bool {
	return d.Namespace == pod.Namespace && strings.HasPrefix(pod.Name, d.Name+"-")
}

// Stop returns the command that stops the controller.
func (d *Deployment) Stop() string {
	return fmt.Sprintf("kubectl scale -n %s deployment/%s --replicas=0", d.Namespace, d.Name)
}

// Start returns the command that starts the controller again with as many replicas as it has now, 1 if it is stopped.
func (d *Deployment) Start() string {
	n := int32(1)
	if d.Spec.Replicas != nil {
		n = max(n, *d.Spec.Replicas)
	}
	return fmt.Sprintf("kubectl scale -n %s deployment/%s --replicas=%d", d.Namespace, d.Name, n)
}

// page is the number of objects in one answer of the API server.
const page = 500

// Deployments returns the Deployments of controllers of the APIs, Berth's own among them. It reads whole only those whose names are usual ones.
func Deployments(ctx context.Context, c client.Reader) ([]Deployment, error) {
	var out []Deployment
	for next := ""; ; {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
		if err := c.List(ctx, list, client.Limit(page), client.Continue(next)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			of := &list.Items[i]
			group := serves(of.Name)
			if group == "" {
				continue
			}
			d := &appsv1.Deployment{}
			switch err := c.Get(ctx, client.ObjectKeyFromObject(of), d); {
			case err == nil:
				out = append(out, Deployment{d, group, isBerth(d)})
			case !apierrors.IsNotFound(err): // it may be deleted meanwhile
				return nil, err
			}
		}
		if next = list.Continue; next == "" {
			return out, nil
		}
	}
}

// serves returns the API group of the controller whose Deployment has the name, "" for any other.
func serves(name string) string {
	for _, s := range systems {
		if slices.ContainsFunc(s.deployments, func(usual string) bool { return name == usual || strings.HasSuffix(name, "-"+usual) }) {
			return s.group
		}
	}
	return ""
}

// isBerth reports whether a Deployment runs `berth manager`, as in config/manager.
func isBerth(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return len(c.Args) > 0 && c.Args[0] == "manager" })
}

// Lease is the Lease of a controller of one of the APIs.
type Lease struct {
	*coordinationv1.Lease
	Group string // of the API
}

// String returns the object as Kind/namespace/name.
func (l *Lease) String() string { return "Lease/" + l.Namespace + "/" + l.Name }

// Holder returns the identity of the controller that runs.
func (l *Lease) Holder() string { return *l.Spec.HolderIdentity }

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=list,resourceNames=c1f6bfd2.kueue.x-k8s.io;6d4f6a47.jobset.x-k8s.io;trainer.kubeflow.org

// Leases returns the Leases, in any namespace, that controllers other than Berth have renewed: these controllers run, whatever their
// Deployments are called. A controller without leader election has none.
func Leases(ctx context.Context, c client.Reader, now time.Time) ([]Lease, error) {
	var out []Lease
	for i := range systems {
		var list coordinationv1.LeaseList
		if err := c.List(ctx, &list, client.MatchingFields{"metadata.name": systems[i].lease}); err != nil {
			return nil, err
		}
		for j := range list.Items {
			if lease := &list.Items[j]; heldByOther(lease, now) {
				out = append(out, Lease{lease, systems[i].group})
			}
		}
	}
	return out, nil
}

func heldByOther(lease *coordinationv1.Lease, now time.Time) bool {
	s := &lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	if lease.Labels[LeaderLabel] != "" || strings.HasPrefix(*s.HolderIdentity, "berth/") { // see internal/jobset/lease
		return false
	}
	return now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second))
}
