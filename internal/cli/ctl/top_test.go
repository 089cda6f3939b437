package ctl

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/placement/plan/nodequota"
)

// TestQuotaOfNodes: top marks the quotas that follow nodes, and no others.
func TestQuotaOfNodes(t *testing.T) {
	following := func(name, share string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: map[string]string{nodequota.Annotation: share}}
	}
	in := kueue.ClusterQueueSpec{CohortName: "all"}
	f := grow([]kueue.Cohort{{ObjectMeta: following("all", "50%")}}, []kueue.ClusterQueue{
		{ObjectMeta: following("gpus", "90%"), Spec: in}, {ObjectMeta: following("bad", "lots"), Spec: in}, {ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: in},
	})
	out := &table{columns: columns("NAME", "FLAVOR", "RESOURCE", "USE", "", "RESERVED", "ADMITTED", "QUOTA", "BORROWED", "WORKLOADS")}
	(&top{}).tree(f, out)
	var b bytes.Buffer
	if err := out.write(&b, false, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"all (50% of nodes) ", "gpus (not active) (90% of nodes) "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), "of nodes"); n != 2 {
		t.Errorf("%d marks in\n%s", n, b.String())
	}
}
