package local

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/simnode"
)

// TopologyName is the file with the objects for nodes in levels, one of embedded.Entries.
const TopologyName = "topology.yaml"

const topologyHead = `# The levels of the simulated nodes, and a flavor whose jobs are placed by them:
#
#   kubectl apply -f %s
#
# berth up --topology writes this file at each start. Copy it before you edit it.
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata:
  name: simulated
spec:
  levels:
`

const topologyFlavor = `---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata:
  name: simulated
spec:
  nodeLabels:
    %s: "true"
  topologyName: simulated
`

// topologyManifest returns the objects for nodes in levels.
func topologyManifest(path string, levels simnode.Topology) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, topologyHead, path)
	for _, label := range levels.Labels() {
		fmt.Fprintf(&b, "  - nodeLabel: %s\n", label)
	}
	fmt.Fprintf(&b, topologyFlavor, simnode.Label)
	return b.Bytes()
}

// writeTopology writes the file with the objects for the levels of the nodes, and removes that of an earlier start if there are no levels.
func writeTopology(plane embedded.Config) error {
	path := filepath.Join(plane.Dir, TopologyName)
	if plane.Topology == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--dir: %w", err)
		}
		return nil
	}
	levels, err := simnode.ParseTopology(plane.Topology)
	if err != nil {
		return fmt.Errorf("--topology: %w", err)
	}
	file, err := embedded.OpenOwned(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	_, err = file.Write(topologyManifest(path, levels))
	return errors.Join(err, file.Close())
}
