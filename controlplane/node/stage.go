package node

import (
	"bytes"
	_ "embed" // stages.yaml
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/yaml"
)

//go:embed stages.yaml
var stagesYAML []byte

// stages reads the embedded stages, by the kind of their objects.
func stages() (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	byKind := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(stagesYAML)))
	defer func() { _ = documents.Close() }()
	buffer := make([]byte, len(stagesYAML))
	for {
		size, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return byKind, nil
		}
		if err != nil {
			return nil, fmt.Errorf("stages.yaml: %w", err)
		}
		var wire v1alpha1.Stage
		if err := yaml.UnmarshalStrict(buffer[:size], &wire); err != nil {
			return nil, fmt.Errorf("stages.yaml: %w", err)
		}
		stage, err := internalversion.ConvertToInternalStage(&wire)
		if err != nil {
			return nil, fmt.Errorf("stages.yaml: stage %s: %w", wire.Name, err)
		}
		byKind[stage.Spec.ResourceRef] = append(byKind[stage.Spec.ResourceRef], stage)
	}
}

// functions are the functions of the templates in stages.yaml. KWOK passes the object as decoded JSON and reads the output as YAML. A pod
// whose node is not managed is not changed: KWOK plays a stage that it has scheduled even if the node fails meanwhile, and schedules it
// again when the node recovers.
func functions(nodes fleet, isManaged func(node string) bool, now func() time.Time) gotpl.FuncMap {
	podPatch := func(object any, status func(*corev1.Pod) corev1.PodStatus) (string, error) {
		var pod corev1.Pod
		if err := recode(object, &pod); err != nil {
			return "", err
		}
		if !isManaged(pod.Spec.NodeName) {
			return encode(map[string]any{})
		}
		// The API server refuses it if the pod was replaced by another of the same name.
		return encode(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status(&pod)})
	}
	return gotpl.FuncMap{
		"NodeStatus": func(object any) (string, error) {
			var node corev1.Node
			if err := recode(object, &node); err != nil {
				return "", err
			}
			return encode(nodes.status(&node, now()))
		},
		"PodStarted": func(object any, hostIP, podIP string) (string, error) {
			return podPatch(object, func(pod *corev1.Pod) corev1.PodStatus { return started(pod, hostIP, podIP, now()) })
		},
		"PodFinished": func(object any) (string, error) {
			return podPatch(object, func(pod *corev1.Pod) corev1.PodStatus { return finished(pod, now()) })
		},
		"PodTerminated": func(object any) (string, error) {
			return podPatch(object, func(pod *corev1.Pod) corev1.PodStatus { return terminated(pod, now()) })
		},
	}
}

func recode(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

func encode(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}
