package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/simnode"
)

// The file of a start describes the nodes of that start: its levels, and a flavor for all of them.
func TestWriteTopology(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, TopologyName)
	if !slices.Contains(embedded.Entries, TopologyName) {
		t.Errorf("%s is not removed by --purge", TopologyName)
	}
	for _, text := range []string{"", "example.com/hall=2,rack=4,host=8", "zone=2,host=1"} {
		if err := writeTopology(embedded.Config{Dir: dir, Topology: text}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if text == "" {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("without a topology: %q (error %v)", data, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var topology kueue.Topology
		var flavor kueue.ResourceFlavor
		first, second, _ := strings.Cut(string(data), "---\n")
		if err := errors.Join(yaml.UnmarshalStrict([]byte(first), &topology), yaml.UnmarshalStrict([]byte(second), &flavor)); err != nil {
			t.Fatalf("%v:\n%s", err, data)
		}
		var labels []string
		for _, level := range topology.Spec.Levels {
			labels = append(labels, level.NodeLabel)
		}
		levels, err := simnode.ParseTopology(text)
		if diff := cmp.Diff(levels.Labels(), labels); diff != "" || err != nil {
			t.Errorf("%s: levels (-want +got, error %v):\n%s", text, err, diff)
		}
		if string(flavor.Spec.TopologyName) != topology.Name || flavor.Spec.NodeLabels[simnode.Label] != "true" {
			t.Errorf("%s: flavor %+v of topology %s", text, flavor, topology.Name)
		}
	}
	if err := writeTopology(embedded.Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of an earlier start stays: %v", err)
	}
}

// A link in the place of the file is not followed.
func TestWriteTopologyFollowsNoLink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(other, filepath.Join(dir, TopologyName)); err != nil {
		t.Fatal(err)
	}
	if err := writeTopology(embedded.Config{Dir: dir, Topology: "host=1"}); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it wrote to the link's target: %v", err)
	}
}
