package all_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/options"
)

// mayLack are the functions of capabilities that a kind with the capability may leave out. All of Remote may be.
var mayLack = []string{"Stops.Begun", "Once.Warn", "Elastic.NameExtra", "Elastic.Annotate", "ManagedChildren.Others", "Guard.GatedBy"}

// TestCapabilitiesAreComplete: a capability that is not nil has all its functions, also for pod groups.
func TestCapabilitiesAreComplete(t *testing.T) {
	for _, d := range descriptors(t) {
		complete(t, d.Framework, reflect.ValueOf(d).Elem())
		if d.Groups != nil {
			complete(t, d.Framework+" groups", reflect.ValueOf(d.Groups.Jobs).Elem())
		}
	}
}

func complete(t *testing.T, of string, v reflect.Value) {
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, v.Field(i)
		if name == "Remote" || field.Kind() != reflect.Pointer || field.IsNil() || name == "Jobs" {
			continue
		}
		capability := field.Elem()
		for j := range capability.NumField() {
			part := name + "." + capability.Type().Field(j).Name
			if f := capability.Field(j); f.Kind() == reflect.Func && f.IsNil() && !slices.Contains(mayLack, part) {
				t.Errorf("%s has no %s", of, part)
			}
		}
		complete(t, of, capability)
	}
}

// TestCatalogue: a configuration knows exactly the kinds of the list, and lists one that has a gate only where that is on.
func TestCatalogue(t *testing.T) {
	frameworks, list := options.Frameworks(), all.InOrder()
	if len(frameworks) != len(list) || frameworks[0].Name != "batch/job" {
		t.Fatalf("%d frameworks of %d kinds, first of all %s", len(frameworks), len(list), frameworks[0].Name)
	}
	for i, d := range list {
		if f := frameworks[i]; f.Name != d.Framework || f.GVK != d.GVK || f.MultiKueue != (d.Remote != nil) {
			t.Errorf("%s is in the catalogue as %+v", d.Framework, f)
		}
		for gate, want := range map[string]bool{"": d.Listing.Gate == "", d.Listing.Gate + "=true": true} {
			text := "{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration, integrations: {frameworks: [" + d.Framework + "]}}"
			if strings.HasPrefix(gate, "=") {
				continue
			}
			if _, err := options.Parse("c.yaml", []byte(text), gate); (err == nil) != want {
				t.Errorf("%s with the gate %q: %v", d.Framework, gate, err)
			}
		}
	}
}
