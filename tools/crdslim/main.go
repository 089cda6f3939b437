// Command crdslim removes the descriptions of embedded Kubernetes types from generated CustomResourceDefinitions.
//
//	crdslim FILE...
//
// A pod template brings half a megabyte of text that every user can read with "kubectl explain pod", and that would have
// to be stored, sent and parsed with every version of every kind that contains one. Our own descriptions stay. Files are
// rewritten in place; a second run changes nothing.
package main

import (
	"bytes"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: crdslim FILE...")
		os.Exit(2)
	}
	for _, file := range os.Args[1:] {
		if err := slimFile(file); err != nil {
			fmt.Fprintf(os.Stderr, "crdslim: %v\n", err)
			os.Exit(1)
		}
	}
}

func slimFile(file string) error {
	in, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out, err := slim(in)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if bytes.Equal(in, out) {
		return nil
	}
	return os.WriteFile(file, out, 0o644) //nolint:gosec // a manifest in the source tree, readable like its neighbours
}

// slim returns the manifest without the descriptions inside embedded Kubernetes types.
func slim(manifest []byte) ([]byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(manifest, &crd); err != nil {
		return nil, err
	}
	if crd["kind"] != "CustomResourceDefinition" {
		return nil, fmt.Errorf("kind is %v, not CustomResourceDefinition", crd["kind"])
	}
	walk(crd, false)
	out, err := yaml.Marshal(crd)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), out...), nil
}

// walk visits everything below v; drop says that v lies inside an embedded type.
func walk(v any, drop bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			walk(item, drop)
		}
	case map[string]any:
		// A property may itself be named description; it is an object, the text is a string.
		if _, text := v["description"].(string); text && drop {
			delete(v, "description")
		}
		properties, _ := v["properties"].(map[string]any)
		inside := drop || embedded(properties)
		for _, child := range v {
			walk(child, inside)
		}
	}
}

// embedded reports whether an object with these properties is one of the large Kubernetes types: a pod spec, a job spec,
// a persistent volume claim spec or a standard set of label requirements.
func embedded(properties map[string]any) bool {
	has := func(names ...string) bool {
		for _, name := range names {
			if _, ok := properties[name]; !ok {
				return false
			}
		}
		return true
	}
	return has("containers", "nodeSelector", "tolerations") ||
		has("backoffLimit", "completions", "parallelism", "template") ||
		has("accessModes", "storageClassName", "volumeName") ||
		has("matchExpressions", "matchLabels")
}
