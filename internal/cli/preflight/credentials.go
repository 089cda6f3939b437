package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/install/upstream"
)

// kubeconfigOf is where the credentials for a worker cluster are.
type kubeconfigOf struct{ cluster, field, kind, location string }

// credentialsOf reads a MultiKueueCluster of any version. spec: 40 §2.1.
func credentialsOf(o *unstructured.Unstructured) kubeconfigOf {
	out := kubeconfigOf{cluster: o.GetName()}
	for _, path := range [][]string{{"spec", "clusterSource", "kubeConfig"}, {"spec", "kubeConfig"}} {
		location, _, _ := unstructured.NestedString(o.Object, append(slices.Clone(path), "location")...)
		if location == "" {
			continue
		}
		kind, _, _ := unstructured.NestedString(o.Object, append(slices.Clone(path), "locationType")...)
		out.kind, out.location = cmp.Or(kind, string(kueue.LocationTypeSecret)), location
		for _, part := range append(slices.Clone(path), "location") {
			out.field += "." + part
		}
		out.field = out.field[1:]
	}
	return out
}

// credentials finds worker clusters to which Berth could not connect: it reads Secrets in its own namespace, and files in its own pod. Jobs
// on a cluster that is lost for longer than multiKueue.workerLostTimeout are evicted.
func (l *looker) credentials(ctx context.Context, clusters []kubeconfigOf) error {
	own := l.ownNamespace()
	from := "NAMESPACE"
	if at := slices.IndexFunc(l.deployments, func(d upstream.Deployment) bool { return d.Group == kueue.GroupVersion.Group && !d.Berth }); at >= 0 {
		from = l.deployments[at].Namespace
	}
	for _, c := range clusters {
		object := "MultiKueueCluster/" + c.cluster
		switch c.kind {
		case string(kueue.LocationTypePath):
			l.add(Differs, object, c.field, "mount it in the pod of Berth as well", "Berth reads the file %s in its own pod", c.location)
		case string(kueue.LocationTypeSecret):
			secret := &metav1.PartialObjectMetadata{}
			secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			err := l.Get(ctx, client.ObjectKey{Namespace: own, Name: c.location}, secret)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if apierrors.IsNotFound(err) {
				l.add(Blocks, object, c.field, fmt.Sprintf(
					"kubectl get secret -n %s %s -o jsonpath='{.data.kubeconfig}' | base64 -d | kubectl create secret generic -n %s %s --from-file=kubeconfig=/dev/stdin",
					from, c.location, own, c.location,
				), "Berth reads the Secret in its own namespace, %s, where it is not: jobs on that cluster would be evicted once it is lost for too long", own)
			}
		}
	}
	return nil
}
