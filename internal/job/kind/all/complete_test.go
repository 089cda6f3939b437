package all_test

import (
	"maps"
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

// ofOneKind are the fields of capabilities of several kinds that exactly one kind sets, and why each is a field all the same. The list
// only shrinks.
var ofOneKind = map[string]string{
	"Elastic.Annotate":       "RayJob: autoscaling counts the workers of its cluster, whose generation is a part of the names of slices",
	"Elastic.NameExtra":      "see Elastic.Annotate",
	"Guard.GatedBy":          "RayCluster: its own Guard holds for clusters that a RayService makes",
	"ManagedChildren.Others": "RayJob: the submitter pod is controlled by a Job, not by the cluster",
	"Remote.Final":           "Pod: the kubelet reports the end of a pod that is being deleted",
	"Remote.Follow":          "RayService: the only kind whose jobs change while they run on a worker",
	"Remote.Scale":           "LeaderWorkerSet: the only kind with several Workloads that is copied as one object",
	"Remote.Workloads":       "see Remote.Scale",
	"Sets.Frees":             "LeaderWorkerSet: its StatefulSets may be deleted without it",
	"Sets.Index":             "StatefulSet: its pods come one after the other",
}

// TestNoFieldOfOneKind: what exactly one kind needs is a capability of its own, so that the core and the capabilities that kinds share
// stay small (docs/adr/0004).
func TestNoFieldOfOneKind(t *testing.T) {
	setBy := map[string]map[string]bool{} // the kinds that set a field, by FIELD or CAPABILITY.FIELD
	for _, d := range descriptors(t) {
		noteFields(setBy, "", d.Framework, reflect.ValueOf(d).Elem())
		if d.Groups != nil {
			noteFields(setBy, "", d.Framework, reflect.ValueOf(d.Groups.Jobs).Elem())
		}
	}
	if len(setBy["PodSets"]) < 2 || len(setBy["Remote.Gated"]) < 2 {
		t.Fatal("the fields of descriptors are not found")
	}
	for name, kinds := range setBy {
		if strings.HasSuffix(name, ".") {
			continue // a capability, which one kind may be the first to have
		}
		of := name[:strings.LastIndex(name, ".")+1]
		alone := len(kinds) == 1 && (of == "" || len(setBy[of]) > 1)
		switch why := ofOneKind[name]; {
		case alone && why == "":
			t.Errorf("only %v sets %s: make it a capability, or do without it", slices.Collect(maps.Keys(kinds)), name)
		case !alone && why != "":
			t.Errorf("%d kinds set %s: remove it from the list", len(kinds), name)
		}
	}
	for name := range ofOneKind {
		if setBy[name] == nil {
			t.Errorf("no kind sets %s: remove it from the list", name)
		}
	}
}

// noteFields adds a kind to the fields that it sets. A capability is no field itself: what counts is in it.
func noteFields(setBy map[string]map[string]bool, of, kind string, v reflect.Value) {
	for i := range v.NumField() {
		name, field := of+v.Type().Field(i).Name, v.Field(i)
		if field.IsZero() {
			continue
		}
		if field.Kind() == reflect.Pointer && name != "Groups.Jobs" {
			name += "." // a capability
			noteFields(setBy, name, kind, field.Elem())
		}
		if setBy[name] == nil {
			setBy[name] = map[string]bool{}
		}
		setBy[name][kind] = true
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
