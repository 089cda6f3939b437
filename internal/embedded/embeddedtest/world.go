package embeddedtest

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// World is a namespace on the API server of a package, for a test with a manager of its own.
type World struct {
	*testing.T
	Client    client.Client
	Rest      *rest.Config
	Namespace string
	// Stop stops the manager of the test, which sets it.
	Stop func()
	// Revive, unless nil, runs before each check of Until: it replaces a manager that was killed.
	Revive func()
}

// NewWorld makes a namespace, with the label managed. crds is as for [Client].
func NewWorld(t *testing.T, prefix, managed, crds string, add ...func(*runtime.Scheme) error) *World {
	t.Helper()
	w := &World{T: t, Client: Client(t, crds, add...), Rest: Config(t)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: map[string]string{"managed": managed}}}
	w.Create(ns)
	w.Namespace = ns.Name
	return w
}

// Create creates an object, again if that fails.
func (w *World) Create(o client.Object) {
	w.Helper()
	w.Until(fmt.Sprintf("%T is created", o), func() error { return w.Client.Create(w.Context(), o) })
}

// Must ends the test if there is an error.
func (w *World) Must(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

// Until waits until check succeeds.
func (w *World) Until(what string, check func() error) {
	w.Helper()
	wait.Until(w.T, what, func() error {
		if w.Revive != nil {
			w.Revive()
		}
		return check()
	})
}
