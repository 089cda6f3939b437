package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
)

// queue returns a ClusterQueue with flavors, each written as "cpu=1 memory=2Gi".
func queue(name string, flavors ...string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{{}}}}
	g := &cq.Spec.ResourceGroups[0]
	for i, flavor := range flavors {
		f := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(fmt.Sprint("f", i))}
		for word := range strings.FieldsSeq(flavor) {
			name, value, _ := strings.Cut(word, "=")
			f.Resources = append(f.Resources, kueue.ResourceQuota{Name: corev1.ResourceName(name), NominalQuota: resource.MustParse(value)})
			if i == 0 {
				g.CoveredResources = append(g.CoveredResources, corev1.ResourceName(name))
			}
		}
		g.Flavors = append(g.Flavors, f)
	}
	return cq
}

func entrance(namespace, name, cq string) *kueue.LocalQueue {
	return &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(cq)}}
}

// spec: 40 §4.11.
func TestQuotaOfWorkers(t *testing.T) {
	related := []types.NamespacedName{{Namespace: "a", Name: "main"}, {Namespace: "b", Name: "main"}}
	cases := map[string]struct {
		hub    *kueue.ClusterQueue
		locals []*kueue.LocalQueue
		queues [][]*kueue.ClusterQueue // by worker
		want   string
	}{
		"the sum of all flavors and workers": {
			queue("hub", "cpu=1"),
			[]*kueue.LocalQueue{entrance("a", "main", "q")},
			[][]*kueue.ClusterQueue{{queue("q", "cpu=6", "cpu=7")}, {queue("q", "cpu=8")}},
			"cpu=21",
		},
		"a queue with two entrances counts once, two queues are added up": {
			queue("hub", "cpu=1"),
			[]*kueue.LocalQueue{entrance("a", "main", "q"), entrance("b", "main", "q"), entrance("b", "main", "r")},
			[][]*kueue.ClusterQueue{{queue("q", "cpu=6"), queue("r", "cpu=1"), queue("unrelated", "cpu=100")}},
			"cpu=7",
		},
		"other entrances do not count": {
			queue("hub", "cpu=1"),
			[]*kueue.LocalQueue{entrance("a", "other", "q"), entrance("c", "main", "q")},
			[][]*kueue.ClusterQueue{{queue("q", "cpu=6")}},
			"cpu=0",
		},
		"the notation of the first": {
			queue("hub", "cpu=1 memory=1"),
			[]*kueue.LocalQueue{entrance("a", "main", "q")},
			[][]*kueue.ClusterQueue{{queue("q", "cpu=2 memory=1G")}, {queue("q", "cpu=1200m memory=4G")}},
			"cpu=3200m memory=5G",
		},
		"what no worker has": {
			queue("hub", "gpu=5 cpu=1"),
			[]*kueue.LocalQueue{entrance("a", "main", "q")},
			[][]*kueue.ClusterQueue{{queue("q", "cpu=2")}},
			"gpu=0 cpu=2",
		},
		"no change": {
			queue("hub", "cpu=2000m"), []*kueue.LocalQueue{entrance("a", "main", "q")}, [][]*kueue.ClusterQueue{{queue("q", "cpu=2")}}, "as it is",
		},
		"all are down": {queue("hub", "cpu=2"), nil, nil, "cpu=0"},
		"two flavors": {
			queue("hub", "cpu=2", "cpu=3"), nil,
			[][]*kueue.ClusterQueue{{queue("q", "cpu=2")}},
			"there must be one resource group with one flavor, and there are 1 with 2",
		},
		"a resource that is not covered": {
			queue("hub", "cpu=2"),
			[]*kueue.LocalQueue{entrance("a", "main", "q")},
			[][]*kueue.ClusterQueue{{queue("q", "cpu=2 gpu=1 z=1")}},
			"worker clusters have quota of resources that are not in coveredResources: gpu, z",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var parts []plan.Contribution
			for _, queues := range tc.queues {
				parts = append(parts, plan.Contribute(related, tc.locals, queues))
			}
			before := tc.hub.DeepCopy()
			changed, got := plan.Automate(tc.hub, parts)
			switch {
			case changed:
				var words []string
				for _, r := range tc.hub.Spec.ResourceGroups[0].Flavors[0].Resources {
					words = append(words, string(r.Name)+"="+r.NominalQuota.String())
				}
				got = strings.Join(words, " ")
			case cmp.Diff(before.Spec, tc.hub.Spec) != "":
				t.Error("it says that nothing changed, and something did")
			case got == "":
				got = "as it is"
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The limits of the ClusterQueue stay.
func TestQuotaKeepsLimits(t *testing.T) {
	hub := queue("hub", "cpu=1")
	hub.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = new(resource.MustParse("3"))
	hub.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = new(resource.MustParse("1"))
	if changed, why := plan.Automate(hub, []plan.Contribution{{"cpu": {resource.MustParse("4")}}}); !changed || why != "" {
		t.Fatalf("changed %v, %q", changed, why)
	}
	r := hub.Spec.ResourceGroups[0].Flavors[0].Resources[0]
	if r.NominalQuota.String() != "4" || r.BorrowingLimit == nil || r.BorrowingLimit.String() != "3" || r.LendingLimit == nil || r.LendingLimit.String() != "1" {
		t.Errorf("got %+v", r)
	}
}
