package leaderworkerset

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	plan "github.com/berth-project/berth/internal/job"
)

// TestGroupsAreBounded: the groups of a LeaderWorkerSet that was scaled past the webhook, or whose status claims so many, are refused and not
// listed. What the operator allows counts, and what is allowed unless he says otherwise.
func TestGroupsAreBounded(t *testing.T) {
	const template = "leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{name: c, image: i}]}}}"
	for name, tc := range map[string]struct {
		text string
		most int32
		want int // -1 is an error
	}{
		"allowed":         {"spec: {replicas: 100000, " + template + "}", 10, 100_000},
		"one more":        {"spec: {replicas: 100001, " + template + "}", 0, -1},
		"allowed here":    {"spec: {replicas: 100001, " + template + "}", 100_001, 100_001},
		"the most":        {"spec: {replicas: 2147483647, " + template + "}", 0, -1},
		"negative":        {"spec: {replicas: -1, " + template + "}", 0, 0},
		"by its status":   {"{spec: {replicas: 1, rolloutStrategy: {rollingUpdateConfiguration: {maxSurge: 1}}, " + template + "}, status: {replicas: 2147483647}}", 0, -1},
		"beyond 32 bits":  {"spec: {replicas: 4294967297, " + template + "}", 0, -1},
		"most of 32 bits": {"spec: {replicas: 0, " + template + "}", math.MaxInt32, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.text), &o.Object); err != nil {
				t.Fatal(err)
			}
			got, err := parts(o, &plan.Setting{Config: &plan.Config{MaxChildren: tc.most}})
			switch {
			case tc.want < 0 && (err == nil || !strings.Contains(err.Error(), "spec.replicas: ") || !strings.Contains(err.Error(), "integrations.maxChildren")):
				t.Errorf("%d groups, error %v", len(got), err)
			case tc.want >= 0 && (err != nil || len(got) != tc.want):
				t.Errorf("%d groups, want %d; error %v", len(got), tc.want, err)
			}
		})
	}
}
