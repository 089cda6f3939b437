package rewrite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/time/rate"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// world has a CRD, things, in a group of its own, whose first storage version was v1beta1.
type world struct {
	*testing.T
	c     client.WithWatch
	group string
}

func (w *world) crd() string { return "things." + w.group }

func newWorld(t *testing.T, group string) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(embeddedtest.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, c, group}
	version := func(name string) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: name == "v1beta1",
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: new(true),
			}},
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: w.crd()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Kind: "Thing", ListKind: "ThingList", Plural: "things", Singular: "thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1beta1"), version("v1beta2")},
		},
	}
	if err := c.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	w.make(probe)
	return w
}

// probe is a thing that shows the storage version.
const probe = "probe"

// make makes a thing in the present storage version.
func (w *world) make(name string) {
	w.Helper()
	wait.Until(w.T, "the CRD is served", func() error {
		err := w.c.Create(w.Context(), w.thing(name))
		return client.IgnoreAlreadyExists(err)
	})
}

func (w *world) thing(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"name": name}}}
	u.SetAPIVersion(w.group + "/v1beta2")
	u.SetKind("Thing")
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

// version is the resource version of a thing: it changes only with the stored bytes.
func (w *world) version(name string) string {
	w.Helper()
	u := w.thing(name)
	if err := w.c.Get(w.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		w.Fatal(err)
	}
	return u.GetResourceVersion()
}

// store changes the storage version, and waits until it is in effect.
func (w *world) store(version string) {
	w.Helper()
	wait.Until(w.T, version+" is stored", func() error {
		crd := w.read()
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			v.Storage = v.Name == version
		}
		return w.c.Update(w.Context(), crd)
	})
	// The API server uses the older version for a moment. A stored object is rewritten by a write without changes only after that.
	wait.Until(w.T, "the API server stores "+version, func() error {
		before := w.version(probe)
		if err := w.c.Patch(w.Context(), w.thing(probe), client.RawPatch(types.MergePatchType, []byte("{}"))); err != nil {
			return err
		}
		if w.version(probe) == before {
			return errors.New("not yet")
		}
		return nil
	})
}

func (w *world) read() *apiextensionsv1.CustomResourceDefinition {
	w.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := w.c.Get(w.Context(), client.ObjectKey{Name: w.crd()}, &crd); err != nil {
		w.Fatal(err)
	}
	return &crd
}

func (w *world) stored(want ...string) {
	w.Helper()
	if got := w.read().Status.StoredVersions; !slices.Equal(got, want) {
		w.Errorf("stored versions %v, want %v", got, want)
	}
}

// rewriter has pages of two, and no rate limit.
func (w *world) rewriter(funcs interceptor.Funcs, log logr.Logger) *Rewriter {
	c := interceptor.NewClient(w.c, funcs)
	r := New(c, c, []string{"absent." + w.group, w.crd()}, log)
	r.page, r.limit = 2, rate.NewLimiter(rate.Inf, 1)
	return r
}

// Things that were stored as v1beta1 are stored as v1beta2, page by page, and others are not written.
func TestRewrite(t *testing.T) {
	w := newWorld(t, "rewrite.example.org")
	old := []string{"a", "b", "c", "d", "e"}
	for _, name := range old {
		w.make(name)
	}
	w.stored("v1beta1")
	w.store("v1beta2")
	w.make("new")
	w.stored("v1beta1", "v1beta2")
	before := map[string]string{}
	for _, name := range append(old, "new") {
		before[name] = w.version(name)
	}
	var said []string
	log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
	if err := w.rewriter(interceptor.Funcs{}, log).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.stored("v1beta2")
	for _, name := range old {
		if w.version(name) == before[name] {
			t.Errorf("%s is stored as before", name)
		}
	}
	if w.version("new") != before["new"] {
		t.Error("what was stored as v1beta2 was written once more")
	}
	if all := strings.Join(said, "\n"); len(said) != 2 || !strings.Contains(all, `"older"="v1beta1"`) || !strings.Contains(all, `"objects"=7`) {
		t.Errorf("logged:\n%s", all)
	}
	// The older version can be removed without loss.
	wait.Until(t, "v1beta1 is gone", func() error {
		crd := w.read()
		crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == "v1beta1" })
		return w.c.Update(t.Context(), crd)
	})
	wait.Until(t, "all are read", func() error {
		var list unstructured.UnstructuredList
		list.SetAPIVersion(w.group + "/v1beta2")
		list.SetKind("ThingList")
		if err := w.c.List(t.Context(), &list); err != nil {
			return err
		}
		if len(list.Items) != 7 {
			return fmt.Errorf("%d things", len(list.Items))
		}
		return nil
	})
	// No work is left, so nothing is listed or written.
	refuse := errors.New("not now")
	idle := interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return refuse },
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return refuse
		},
	}
	if err := w.rewriter(idle, logr.Discard()).Pass(t.Context()); err != nil {
		t.Errorf("a second pass: %v", err)
	}
}

// After any failure both versions stay on the list, and the next pass does the rest.
func TestTrouble(t *testing.T) {
	w := newWorld(t, "trouble.example.org")
	for _, name := range []string{"a", "b", "c"} {
		w.make(name)
	}
	w.store("v1beta2")
	back := sync.OnceFunc(func() { w.store("v1beta1") })
	patched := 0
	patch := func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		patched++
		return c.Patch(ctx, o, p, opts...)
	}
	for name, tc := range map[string]struct {
		funcs interceptor.Funcs
		want  string
	}{
		"one cannot be written": {
			interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if o.GetName() == "b" {
					return errors.New("refused")
				}
				return c.Patch(ctx, o, p, opts...)
			}}, "1 objects cannot be written, 3 were",
		},
		"they cannot be listed": {
			interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("no")
			}}, "listing: no",
		},
		"the CRD changes meanwhile": {
			interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				back()
				return c.List(ctx, l, opts...)
			}}, "what it stores was changed meanwhile",
		},
		"another writes the CRD": {
			interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				crd := w.read()
				crd.Labels = map[string]string{"changed": "yes"}
				if err := c.Update(ctx, crd); err != nil {
					return err
				}
				return c.SubResource(sub).Update(ctx, o, opts...)
			}}, "shortening status.storedVersions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&world{t, w.c, w.group}).rewriter(tc.funcs, logr.Discard()).Pass(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if name == "the CRD changes meanwhile" {
				w.store("v1beta2")
			}
		})
		w.stored("v1beta1", "v1beta2")
	}
	// A list that outlives the history of the API server continues where it was.
	lists := 0
	expire := interceptor.Funcs{Patch: patch, List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		lists++
		o := (&client.ListOptions{}).ApplyOptions(opts)
		if lists == 2 {
			expired := apierrors.NewResourceExpired("too old")
			expired.ErrStatus.Continue = o.Continue
			return expired
		}
		return c.List(ctx, l, opts...)
	}}
	if err := w.rewriter(expire, logr.Discard()).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lists != 3 || patched != 4 {
		t.Errorf("%d lists, %d patches", lists, patched)
	}
	w.stored("v1beta2")
}

// Two at once, one of which is stopped half-way, do no harm.
func TestTwoAtOnce(t *testing.T) {
	w := newWorld(t, "twice.example.org")
	for _, name := range []string{"a", "b", "c", "d"} {
		w.make(name)
	}
	w.store("v1beta2")
	stopped, stop := context.WithCancel(t.Context())
	first := w.rewriter(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "c" {
			stop()
		}
		return c.Patch(ctx, o, p, opts...)
	}}, logr.Discard())
	if err := first.Pass(stopped); err == nil {
		t.Error("it was stopped, and says that all is done")
	}
	w.stored("v1beta1", "v1beta2")
	ended := make(chan error)
	for range 2 {
		go func() { ended <- w.rewriter(interceptor.Funcs{}, logr.Discard()).Pass(t.Context()) }()
	}
	done := 0
	for range 2 {
		err := <-ended
		if err == nil {
			done++
		} else if !strings.Contains(err.Error(), w.crd()) {
			t.Error(err)
		}
	}
	if done == 0 {
		t.Error("neither has ended well")
	}
	w.stored("v1beta2")
}
