package multikueue

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/multikueue/frameworks"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

// Check tries an external framework on a job.
type Check struct {
	// Object is the job on the manager, Remote its copy on the worker, nil if there is none, both in YAML.
	Object, Remote []byte
	// Cluster is the name of the worker, Workload the Workload of the job in YAML; by default an empty one with the job's name.
	Cluster  string
	Workload []byte
}

// offline knows no kinds: Check sends no requests.
type offline struct{}

// ServerResourcesForGroupVersion finds nothing.
func (offline) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{}, "")
}

// Run prints the object that would be created on the worker and, with a copy, the writes to both (spec: 40 §4.13). An error has the text
// of the Workload's check.
func (c *Check) Run(out io.Writer, o *options.Options) error {
	local, err := parse(c.Object, "--object")
	if err != nil {
		return err
	}
	d, known, err := framework(o, local)
	if err != nil {
		return err
	}
	w, err := c.workload(local)
	if err != nil {
		return err
	}
	plan := &multikueueplan.Config{Origin: o.MultiKueue.Origin, Annotations: o.Gates.On(feature.WorkloadIdentifierAnnotations), External: known}
	scope, err := plan.ExternalScope(d, local, nil, w, nil)
	if err != nil {
		return err
	}
	if refused := known[d.GVK].Precondition(scope); refused != nil {
		return coded(refused)
	}
	cluster := map[string]any{"name": c.Cluster, "labels": map[string]any{}, "annotations": map[string]any{}}
	made, err := plan.NewJob(d, local, w, cluster)
	if err != nil {
		return coded(err)
	}
	if err := show(out, "created on "+c.Cluster, made.Object); err != nil || c.Remote == nil {
		return err
	}
	remote, err := parse(c.Remote, "--remote")
	if err != nil {
		return err
	}
	podset.Annotate(remote, kueue.PrebuiltWorkloadLabel, w.Name) // the copy counts as this job's, whatever created it
	return c.follow(out, plan, d, local, remote, w, cluster)
}

// coded returns an error with the text of the Workload's check.
func coded(err error) error {
	if e := external.As(err); e != nil {
		return fmt.Errorf("[%s] %s", e.Code, e.Text)
	}
	return err
}

// framework finds the configuration of a job's kind, and refuses a job that would not be dispatched.
func framework(o *options.Options, local *unstructured.Unstructured) (*job.Descriptor, map[schema.GroupVersionKind]*external.Framework, error) {
	gvk := local.GroupVersionKind()
	descriptors, known, err := frameworks.External(o.MultiKueue.ExternalFrameworks, nil, offline{}, time.Now, logr.Discard())
	if err != nil {
		return nil, nil, err
	}
	f, at := known[gvk], slices.IndexFunc(descriptors, func(d *job.Descriptor) bool { return d.GVK == gvk })
	switch {
	case f == nil || at < 0:
		return nil, nil, fmt.Errorf("multiKueue.externalFrameworks has no entry for %s", gvk)
	case f.NoJob:
		return nil, nil, fmt.Errorf("%s has controllerType External: its controller makes the copies", f.Name)
	}
	manager, err := f.Manager(local.Object)
	if err == nil && !f.Unchecked && manager != f.Value {
		err = fmt.Errorf("the owner is not managed by Kueue: the object has %q where %q is expected", manager, f.Value)
	}
	return descriptors[at], known, err
}

// follow prints the writes of one synchronization with the copy.
func (c *Check) follow(out io.Writer, plan *multikueueplan.Config, d *job.Descriptor, local, remote *unstructured.Unstructured, w *kueue.Workload, cluster map[string]any) error {
	step, err := plan.SyncJob(d, local, remote, w, cluster, false)
	if err == nil {
		err = step.SpecFault
	}
	if err != nil {
		return coded(err)
	}
	if step.Spec != nil {
		if err := show(out, "the copy's spec on "+c.Cluster, step.Spec.Object["spec"]); err != nil {
			return err
		}
	}
	switch {
	case step.Object != nil:
		return show(out, "the job here, with the status of its copy", step.Object.Object)
	case step.Deferred:
		fmt.Fprintln(out, "# the status is not copied yet: statusSync.when is false, or the copy is being deleted")
	case step.Spec == nil:
		fmt.Fprintln(out, "# nothing to write: the job and its copy agree")
	}
	return nil
}

func (c *Check) workload(local *unstructured.Unstructured) (*kueue.Workload, error) {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: local.GetNamespace(), Name: local.GetName()}}
	if c.Workload == nil {
		return w, nil
	}
	if err := yaml.UnmarshalStrict(c.Workload, w); err != nil {
		return nil, fmt.Errorf("--workload: %w", err)
	}
	return w, nil
}

// parse decodes an object as a manager does: 1 is an integer.
func parse(text []byte, flag string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	body, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = json.Unmarshal(body, &o.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
		return nil, fmt.Errorf("%s: an object with apiVersion, kind and metadata.name is expected", flag)
	}
	for _, at := range []string{"labels", "annotations"} {
		if _, _, err := unstructured.NestedStringMap(o.Object, "metadata", at); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
	}
	return o, nil
}

func show(out io.Writer, what string, tree any) error {
	text, err := yaml.Marshal(tree)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "# %s\n%s", what, text)
	return err
}
