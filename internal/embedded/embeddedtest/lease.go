package embeddedtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded"
)

const cleanLimit = time.Minute

// Keep reports whether an object of the cluster scope, such as a CRD, stays for the next test.
type Keep func(kind schema.GroupResource, name string) bool

// leased is a whole cluster that tests have one after the other.
type leased struct {
	plane  *embedded.ControlPlane
	dir    string
	nodes  []corev1.Node
	before map[object]bool
}

// object is an object of the cluster scope, or of a namespace that is not the cluster's own.
type object struct {
	schema.GroupResource
	namespace, name string
}

// Lease gives a test a whole cluster with two nodes for itself, and returns its directory and its kubeconfig: what Start(t, Full) gives, but
// without the half a minute of processor time that a start takes. When the test ends everything that it made is deleted, but for objects of
// the cluster scope for which keep is true, and another test gets the cluster. It needs Main.
func Lease(t testing.TB, keep Keep) (dir, kubeconfig string) {
	t.Helper()
	l, err := lease()
	if err != nil {
		t.Fatalf("control plane: %v", err)
	}
	t.Cleanup(func() {
		if err := l.plane.Err(); err != nil {
			t.Errorf("control plane: %v", err)
			return
		}
		failed := l.clean(context.Background(), keep)
		shared.Lock()
		defer shared.Unlock()
		if failed == nil {
			shared.idleLeases = append(shared.idleLeases, l)
			return
		}
		t.Logf("no other test gets this cluster: %v", failed)
		shared.exclusive = slices.DeleteFunc(shared.exclusive, func(p *embedded.ControlPlane) bool { return p == l.plane })
		if err := stop(l.plane); err != nil {
			t.Errorf("control plane: %v", err)
		}
	})
	return l.dir, l.plane.Kubeconfig()
}

func lease() (*leased, error) {
	shared.Lock()
	if n := len(shared.idleLeases); n > 0 {
		defer shared.Unlock()
		l := shared.idleLeases[n-1]
		shared.idleLeases = shared.idleLeases[:n-1]
		return l, nil
	}
	if shared.dir == "" {
		shared.Unlock()
		return nil, errors.New("Lease needs embeddedtest.Main")
	}
	shared.leases++
	l := &leased{dir: filepath.Join(shared.dir, fmt.Sprintf("leased%d", shared.leases))}
	shared.Unlock() // others need not wait for the start
	plane, err := start(l.dir, Full, func(cfg *embedded.Config) { cfg.Nodes = 2 })
	if err != nil {
		return nil, err
	}
	l.plane = plane
	shared.Lock()
	shared.exclusive = append(shared.exclusive, plane)
	shared.Unlock()
	c, err := l.clients()
	if err != nil {
		return nil, err
	}
	if l.nodes, err = c.nodes(context.Background()); err != nil {
		return nil, err
	}
	l.before, err = c.objects(context.Background())
	return l, err
}

// clients act as the administrator.
type clients struct {
	typed    kubernetes.Interface
	metadata metadata.Interface
	kinds    discovery.DiscoveryInterface
}

func (l *leased) clients() (*clients, error) {
	config, err := configFrom(l.plane.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NoWarnings{}
	c := &clients{}
	if c.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	c.kinds, err = discovery.NewDiscoveryClientForConfig(config)
	return c, err
}

// nodes returns what a test may change of the nodes, and controllers of the cluster do not.
func (c *clients) nodes(ctx context.Context) (out []corev1.Node, err error) {
	list, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		n := &list.Items[i]
		ofCluster := func(key, _ string) bool { return strings.Contains(key, "kubernetes.io/") }
		maps.DeleteFunc(n.Labels, ofCluster)
		maps.DeleteFunc(n.Annotations, ofCluster)
		taints := slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return ofCluster(t.Key, "") })
		out = append(out, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations},
			Spec:       corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: taints},
		})
	}
	return out, nil
}

// objects returns what each finds.
func (c *clients) objects(ctx context.Context) (map[object]bool, error) {
	out := map[object]bool{}
	err := c.each(ctx, func(r schema.GroupVersionResource, o *metav1.PartialObjectMetadata) error {
		out[object{r.GroupResource(), o.Namespace, o.Name}] = true
		return nil
	})
	return out, err
}

// foreign are kinds of which the cluster itself makes objects.
var foreign = []string{"nodes", "csinodes", "componentstatuses", "flowschemas", "prioritylevelconfigurations", "ipaddresses", "servicecidrs"}

// each visits the objects that a test may make, in all namespaces but the cluster's own.
func (c *clients) each(ctx context.Context, do func(schema.GroupVersionResource, *metav1.PartialObjectMetadata) error) error {
	lists, err := c.kinds.ServerPreferredResources()
	if err != nil {
		return err
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for i := range list.APIResources {
			kind := &list.APIResources[i]
			if slices.Contains(foreign, kind.Name) {
				continue
			}
			r := version.WithResource(kind.Name)
			all, err := c.metadata.Resource(r).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // its CRD was deleted a moment ago
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.GroupResource(), err)
			}
			for i := range all.Items {
				if o := &all.Items[i]; !strings.HasPrefix(o.Namespace, "kube-") {
					if err := do(r, o); err != nil {
						return fmt.Errorf("%s %s: %w", r.GroupResource(), o.Name, err)
					}
				}
			}
		}
	}
	return nil
}

// clean deletes the objects of the test.
func (l *leased) clean(ctx context.Context, keep Keep) error {
	c, err := l.clients()
	if err != nil {
		return err
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(nodes, l.nodes) {
		return errors.New("the test changed its nodes")
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, cleanLimit, true, func(ctx context.Context) (bool, error) {
		last = c.silence(ctx)
		left := 0
		if last == nil {
			left, last = c.sweep(ctx, l.before, keep)
		}
		return last == nil && left == 0, nil
	})
	return errors.Join(last, err)
}

// silence deletes the webhooks and the APIs of a manager, which has ended.
func (c *clients) silence(ctx context.Context) error {
	for _, r := range []schema.GroupVersionResource{
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	} {
		if err := c.metadata.Resource(r).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return err
		}
	}
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	return c.metadata.Resource(services).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!" + automanaged})
}

// automanaged is the label of the APIServices that the API server makes for its own kinds and for CRDs.
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// sweep asks for the deletion of the objects that are not in before, and returns how many there are.
func (c *clients) sweep(ctx context.Context, before map[object]bool, keep Keep) (left int, err error) {
	background := metav1.DeletePropagationBackground
	err = c.each(ctx, func(r schema.GroupVersionResource, o *metav1.PartialObjectMetadata) error {
		_, own := o.Labels[automanaged]
		if own || before[object{r.GroupResource(), o.Namespace, o.Name}] || o.Namespace == "" && keep(r.GroupResource(), o.Name) {
			return nil
		}
		left++
		in := c.metadata.Resource(r).Namespace(o.Namespace)
		if len(o.Finalizers) > 0 {
			_, err := in.Patch(ctx, o.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if o.DeletionTimestamp != nil || !slices.Contains([]string{"", metav1.NamespaceDefault}, o.Namespace) {
			return nil // it goes, or its namespace does
		}
		err := in.Delete(ctx, o.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), PropagationPolicy: &background})
		return client.IgnoreNotFound(err)
	})
	return left, err
}
