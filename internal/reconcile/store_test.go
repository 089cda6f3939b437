package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/reconcile"
)

// An index of a cache of everything finds the objects of a namespace as they are stored, without copies; one of a cache of some namespaces
// lists them.
func TestIndex(t *testing.T) {
	embeddedtest.Quiet()
	const red, blue = "red", "blue"
	c := embeddedtest.Client(t, "")
	for _, name := range []string{red, blue} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		options cache.Options
		all     bool
	}{
		"of everything":    {cache.Options{}, true},
		"of one namespace": {embeddedtest.Only(red), false},
	} {
		t.Run(name, func(t *testing.T) {
			cached, err := cache.New(embeddedtest.Config(t), tc.options)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = cached.Start(t.Context()) }()
			teams := func(o client.Object) []string { return strings.Fields(o.GetAnnotations()["teams"]) }
			list := func() client.ObjectList { return &corev1.ConfigMapList{} }
			index, err := reconcile.NewIndex(t.Context(), cached, &corev1.ConfigMap{}, list, "team", teams)
			if err != nil {
				t.Fatal(err)
			}
			find := func(namespace, team string) []string {
				var names []string
				for _, o := range index.Find(t.Context(), namespace, team) {
					names = append(names, o.GetName())
				}
				slices.Sort(names)
				return names
			}
			check := func(namespace, team string, want ...string) {
				t.Helper()
				wait.Until(t, "the objects are found", func() error {
					if got := find(namespace, team); !slices.Equal(got, want) {
						return fmt.Errorf("%s in %s: %v, not %v", team, namespace, got, want)
					}
					return nil
				})
			}
			made := func(namespace, name, teams string) *corev1.ConfigMap {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"teams": teams}}}
				if err := c.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), o) })
				return o
			}
			check(red, "a")
			one := made(red, "one", "a c")
			two := made(red, "two", "b c")
			made(red, "none", "")
			made(blue, "three", "a")
			check(red, "c", "one", "two")
			check(red, "a", "one")
			if tc.all {
				check(blue, "a", "three")
				if first, second := index.Find(t.Context(), red, "a"), index.Find(t.Context(), red, "a"); first[0] != second[0] {
					t.Error("it is a copy")
				}
			}
			check("green", "a")
			embeddedtest.Edit(t, c, two, func(o *corev1.ConfigMap) { o.Annotations["teams"] = "a" })
			check(red, "b")
			check(red, "a", "one", "two")
			if err := c.Delete(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			check(red, "a", "two")

			if _, err := reconcile.NewIndex(t.Context(), cached, &corev1.ConfigMap{}, list, "team", teams); err == nil || !strings.Contains(err.Error(), "by team") {
				t.Errorf("the same name again: %v", err)
			}
		})
	}
}
