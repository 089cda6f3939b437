package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// valuesSchema derives the schema of the chart's values from values.yaml, so that unknown keys are refused. Empty maps and lists accept any
// content.
func valuesSchema(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "charts/berth/values.yaml"))
	if err != nil {
		return "", err
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return "", err
	}
	out := schemaOf("", values)
	out["$schema"] = "http://json-schema.org/draft-07/schema#"
	properties, _ := out["properties"].(map[string]any)
	properties["global"] = map[string]any{"type": "object"} // Helm adds it for subcharts
	formatted, err := json.MarshalIndent(out, "", "  ")
	return string(formatted) + "\n", err
}

// open are maps with defaults that accept any keys.
var open = []string{
	".controllerManager.manager.resources", ".controllerManager.manager.podSecurityContext",
	".controllerManager.manager.containerSecurityContext", ".controllerManager.livenessProbe", ".controllerManager.readinessProbe",
}

func schemaOf(path string, value any) map[string]any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{"type": []string{"object", "null"}}
		if len(v) == 0 || slices.Contains(open, path) {
			return out
		}
		properties := map[string]any{}
		for name, below := range v {
			properties[name] = schemaOf(path+"."+name, below)
		}
		out["properties"], out["additionalProperties"] = properties, false
		return out
	case []any:
		return map[string]any{"type": []string{"array", "null"}}
	case bool:
		return map[string]any{"type": "boolean"}
	case float64:
		return map[string]any{"type": []string{"integer", "string"}}
	case string:
		return map[string]any{"type": []string{"string", "number", "null"}}
	}
	panic(fmt.Sprintf("values.yaml: %s is a %T", path, value))
}
