package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// host is a node of a small world: its rack, and how many GPUs it has.
type host struct {
	name, rack string
	gpus       int
}

// world is hosts in racks of one block, and the flavor f over them.
func world(gates Gates, hosts ...host) *Space {
	s := New(newTable(), gates)
	for _, h := range hosts {
		s.SetNode(h.node())
	}
	s.SetTree("f", Tree{Topology: "default", Levels: []string{"block", "rack", Hostname}})
	return s
}

func (h host) node() Node {
	return Node{
		Name: h.name, Ready: true, Schedulable: true,
		Labels:      map[string]string{"block": "b1", "rack": h.rack, Hostname: h.name},
		Allocatable: requests(gpu, h.gpus, pods, 100),
	}
}

// requests makes requests of resources and amounts.
func requests(pairs ...any) (out []workload.Request) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, workload.Request{Resource: pairs[i].(resource.ID), Amount: resource.Amount(pairs[i+1].(int))})
	}
	return out
}

// gang is a pod set of pods of one GPU.
func gang(count int32, edits ...func(*PodSet)) PodSet {
	p := PodSet{Name: "main", Flavor: "f", Count: count, Requests: requests(gpu, 1, pods, 1)}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

func required(level string) func(*PodSet)  { return func(p *PodSet) { p.Required = level } }
func preferred(level string) func(*PodSet) { return func(p *PodSet) { p.Preferred = level } }
func sliced(layers ...Layer) func(*PodSet) { return func(p *PodSet) { p.Layers = layers } }

func earlier(domains ...any) func(*PodSet) {
	return func(p *PodSet) {
		p.Earlier = &Placement{PodSet: p.Name, Flavor: "f", Levels: []string{Hostname}}
		for i := 0; i < len(domains); i += 2 {
			p.Earlier.Domains = append(p.Earlier.Domains, Domain{[]string{domains[i].(string)}, int32(domains[i+1].(int))})
		}
	}
}

// text is placements as "h1:2 h2:1", one pod set after the other.
func text(all []*Placement) string {
	var out []string
	for _, p := range all {
		var domains []string
		if p != nil {
			for _, d := range p.Domains {
				domains = append(domains, fmt.Sprintf("%s:%d", strings.Join(d.Values, "/"), d.Count))
			}
		}
		out = append(out, strings.Join(domains, " "))
	}
	return strings.Join(out, " | ")
}

// TestExamples are the acceptance examples 19 to 27 of spec 20 §7.
func TestExamples(t *testing.T) {
	two := []host{{"h1", "r1", 3}, {"h2", "r1", 3}, {"h3", "r2", 5}}
	slim := []host{{"h1", "r1", 7}, {"h2", "r2", 9}}
	rows := []host{{"h1", "r1", 1}, {"h2", "r1", 2}, {"h3", "r1", 9}}
	tests := map[string]struct {
		hosts []host
		ask   []PodSet
		want  string
		fails string
	}{
		"19 the smallest sufficient rack":           {two, []PodSet{gang(5, required("rack"))}, "h3:5", ""},
		"20 no rack holds all":                      {two, []PodSet{gang(7, required("rack"))}, "", "allows to fit only 6 out of 7 pod(s)"},
		"20 no rack holds any":                      {two, []PodSet{gang(7, required("rack"), sliced(Layer{"rack", 7}))}, "", "doesn't allow to fit any of 1 slice(s)"},
		"21 a block of both racks":                  {two, []PodSet{gang(7, preferred("rack"))}, "h1:2 h3:5", ""},
		"22 the node that is nearly full":           {rows, []PodSet{gang(2)}, "h2:2", ""},
		"23 ascending":                              {[]host{{"h1", "r1", 1}, {"h2", "r1", 2}, {"h3", "r1", 3}}, []PodSet{gang(4)}, "h1:1 h2:2 h3:1", ""},
		"24 slices of 4 in racks of 7 and 9":        {slim, []PodSet{gang(12, sliced(Layer{"rack", 4}))}, "h1:4 h2:8", ""},
		"25 six of seven pods in slices of 3":       {slim, []PodSet{gang(7, sliced(Layer{"rack", 3}))}, "h1:6", ""},
		"26 layers of 8 and 4":                      {[]host{{"h1", "r1", 7}, {"h2", "r2", 7}}, []PodSet{gang(8, sliced(Layer{"block", 8}, Layer{"rack", 4}))}, "h1:4 h2:4", ""},
		"27 leader and workers need more than 13":   {[]host{{"h1", "r1", 13}, {"h2", "r2", 13}}, leaderAndWorkers(), "", "allows to fit only 2 out of 3 pod(s)"},
		"27 leader and workers of one rack with 14": {[]host{{"h1", "r1", 13}, {"h2", "r2", 14}}, leaderAndWorkers(), "h2:1 | h2:3", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			placed, f := world(DefaultGates(), tc.hosts...).Place(tc.ask, Options{Explain: true})
			switch {
			case f == nil && (text(placed) != tc.want || tc.fails != ""):
				t.Errorf("placed on %s, want %s%s", text(placed), tc.want, tc.fails)
			case f != nil && (tc.fails == "" || !strings.Contains(f.String(), tc.fails)):
				t.Errorf("failed with %q, want %s%q", f, tc.want, tc.fails)
			}
		})
	}
}

// leaderAndWorkers is a leader of 2 GPUs and three workers of 4.
func leaderAndWorkers() []PodSet {
	leader, workers := gang(1, required("rack")), gang(3, required("rack"))
	leader.Name, leader.Group, leader.Requests = "leader", "g", requests(gpu, 2, pods, 1)
	workers.Name, workers.Group, workers.Requests = "workers", "g", requests(gpu, 4, pods, 1)
	return []PodSet{leader, workers}
}

// TestWorkedExample is the one at the end of spec 20 §4.6, phase 2b.
func TestWorkedExample(t *testing.T) {
	s := world(DefaultGates(), host{"m1", "r1", 2}, host{"m2", "r1", 4}, host{"m3", "r1", 3})
	leader, workers := gang(1, required("rack")), gang(4, required("rack"))
	leader.Group, workers.Group, workers.Requests = "g", "g", requests(gpu, 2, pods, 1)
	placed, f := s.Place([]PodSet{leader, workers}, Options{})
	if f != nil || text(placed) != "m3:1 | m1:1 m2:2 m3:1" {
		t.Errorf("placed on %s, %v", text(placed), f)
	}
}

// TestTies fixes the choices between equals.
func TestTies(t *testing.T) {
	plain := DefaultGates()
	mixed := plain
	mixed.Mixed = false
	affine := plain
	affine.Affinity = true
	even := plain
	even.Balanced = true
	likes := func(rack string) func(*PodSet) {
		return func(p *PodSet) {
			p.Prefers = append(p.Prefers, Preference{5, workload.Term{{Key: "rack", Op: workload.In, Values: []string{rack}}}})
		}
	}
	tests := map[string]struct {
		gates Gates
		hosts []host
		ask   PodSet
		want  string
	}{
		"equal racks: by value":                       {plain, []host{{"a", "r2", 4}, {"b", "r1", 4}}, gang(3, required("rack")), "b:3"},
		"equal slices: the rack with fewer pods":      {plain, []host{{"a", "r1", 5}, {"b", "r2", 4}}, gang(4, required("rack"), sliced(Layer{"rack", 4})), "b:4"},
		"best fit starts with the largest":            {mixed, []host{{"a", "r1", 1}, {"b", "r1", 2}, {"c", "r1", 5}}, gang(6), "a:1 c:5"},
		"best fit ends with the smallest sufficient":  {mixed, []host{{"a", "r1", 5}, {"b", "r1", 4}, {"c", "r1", 2}, {"d", "r1", 2}}, gang(7), "a:5 c:2"},
		"least free: equals by value":                 {plain, []host{{"b", "r1", 2}, {"a", "r1", 2}}, gang(2), "a:2"},
		"values by component, not joined":             {plain, []host{{"z", "r", 2}, {"a", "r-1", 2}}, gang(2, required("rack")), "z:2"},
		"below slices children ascend":                {plain, []host{{"a", "r1", 3}, {"b", "r1", 1}, {"c", "r1", 2}}, gang(4, required("rack"), sliced(Layer{"rack", 4})), "a:1 b:1 c:2"},
		"a preferred level climbs":                    {plain, []host{{"a", "r1", 3}, {"b", "r2", 3}}, gang(6, preferred(Hostname)), "a:3 b:3"},
		"affinity before fit":                         {affine, []host{{"a", "r1", 3}, {"b", "r2", 9}}, gang(3, required("rack"), likes("r2")), "b:3"},
		"required: a lower tier, if it fits there":    {affine, []host{{"a", "r1", 5}, {"b", "r2", 2}}, gang(3, required("rack"), likes("r2")), "a:3"},
		"preferred: the top tier does not fit, climb": {affine, []host{{"a", "r1", 5}, {"b", "r2", 2}}, gang(3, preferred("rack"), likes("r2")), "a:1 b:2"},
		"without the gate affinity does not count":    {plain, []host{{"a", "r1", 3}, {"b", "r2", 9}}, gang(3, required("rack"), likes("r2")), "a:3"},
		"best fit fills":                              {plain, []host{{"a", "r1", 4}, {"b", "r2", 4}, {"c", "r3", 3}}, gang(6, preferred("rack")), "a:4 c:2"},
		"balanced spreads":                            {even, []host{{"a", "r1", 4}, {"b", "r2", 4}, {"c", "r3", 3}}, gang(6, preferred("rack")), "a:3 c:3"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			placed, f := world(tc.gates, tc.hosts...).Place([]PodSet{tc.ask}, Options{})
			if f != nil || text(placed) != tc.want {
				t.Errorf("placed on %s, want %s (%v)", text(placed), tc.want, f)
			}
		})
	}
}

// TestReplace are the examples 34 to 36 of spec 20 §7, and the steps of §4.9.
func TestReplace(t *testing.T) {
	hosts := []host{{"n1", "r1", 2}, {"n2", "r1", 2}, {"n8", "r2", 9}, {"n9", "r1", 2}}
	tests := map[string]struct {
		ask   []PodSet
		fails []string
		want  string
		cause Cause
	}{
		"34 a spare in the same rack":          {[]PodSet{gang(4, required("rack"), earlier("n1", 2, "n2", 2))}, []string{"n1"}, "n2:2 n9:2", 0},
		"35 no spare in the rack":              {[]PodSet{gang(6, required("rack"), earlier("n1", 2, "n2", 2, "n9", 2))}, []string{"n1"}, "", TooFew},
		"preferred goes elsewhere":             {[]PodSet{gang(6, preferred("rack"), earlier("n1", 2, "n2", 2, "n9", 2))}, []string{"n1"}, "n2:2 n9:2 n8:2", 0},
		"all pods were there":                  {[]PodSet{gang(2, required("rack"), earlier("n1", 2))}, []string{"n1"}, "n2:2", 0},
		"36 several at once":                   {[]PodSet{gang(2, required("rack"), earlier("n1", 1, "n2", 1))}, []string{"n1", "n2"}, "n9:2", 0},
		"a slice is completed in its rack":     {[]PodSet{gang(4, sliced(Layer{"rack", 4}), earlier("n1", 2, "n2", 2))}, []string{"n1"}, "n2:2 n9:2", 0},
		"nothing there":                        {[]PodSet{gang(2, earlier("n2", 2))}, []string{"n1"}, "n2:2", 0},
		"the other host is gone":               {[]PodSet{gang(3, earlier("n1", 2, "gone", 1))}, []string{"n1"}, "", StaleDomain},
		"no rack has the rest of the slice":    {[]PodSet{gang(4, sliced(Layer{"rack", 3}), earlier("n1", 2, "n8", 3))}, []string{"n1"}, "", BrokenSlice},
		"a leader stays with its workers":      {replacedGroup(), []string{"n1"}, "n9:1 | n2:2", 0},
		"a level that does not exist any more": {[]PodSet{gang(2, required("row"), earlier("n1", 2))}, []string{"n1"}, "", UnknownLevel},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := world(DefaultGates(), hosts...)
			var charges []Charge
			for _, p := range tc.ask {
				charges = append(charges, Charge{p.Earlier, p.Requests})
			}
			s.apply(s.Part(charges).(*part), 1, nil)
			for _, n := range tc.fails {
				s.RemoveNode(n)
			}
			placed, f := s.Replace(tc.ask, tc.fails, Options{Explain: true})
			switch {
			case tc.want == "" && (f == nil || f.Cause != tc.cause):
				t.Errorf("placed on %s, failed with %v, want the cause %d", text(placed), f, tc.cause)
			case tc.want != "" && (f != nil || text(placed) != tc.want):
				t.Errorf("placed on %s (%v), want %s", text(placed), f, tc.want)
			}
		})
	}
}

func replacedGroup() []PodSet {
	leader, workers := gang(1, required("rack"), earlier("n1", 1)), gang(2, required("rack"), earlier("n2", 2))
	leader.Group, workers.Group = "g", "g"
	return []PodSet{leader, workers}
}

// TestResize is the example 40 of spec 20 §7, and the rules of §4.11. The usage of the earlier slice is not charged, but that of others.
func TestResize(t *testing.T) {
	one, first, all := earlier("n2", 1), earlier("n1", 1), earlier("n1", 2, "n2", 2)
	tests := map[string]struct {
		ask    []PodSet
		others func(*PodSet)
		want   string
		empty  bool
	}{
		"one more":                            {ask: []PodSet{gang(4, earlier("n1", 2, "n2", 1))}, others: one, want: "n1:2 n2:1 n3:1"},
		"one more, without usage but its own": {ask: []PodSet{gang(4, earlier("n1", 2, "n2", 1))}, others: one, want: "n1:2 n2:2", empty: true},
		"the same with a leader":              {ask: resizedGroup(3, true), others: first, want: "n1:1 | n1:1 n2:2", empty: true},
		"40 three stay and two come":          {ask: []PodSet{gang(5, earlier("n1", 2, "n2", 1))}, others: one, want: "n1:2 n2:1 n3:2"},
		"fewer: cut from the end":             {ask: []PodSet{gang(1, earlier("n1", 2, "n2", 1))}, others: one, want: "n1:1"},
		"equal":                               {ask: []PodSet{gang(3, earlier("n1", 2, "n2", 1))}, others: one, want: "n1:2 n2:1"},
		"a domain is gone: anew":              {ask: []PodSet{gang(2, earlier("n1", 1, "gone", 1))}, others: all, want: "n3:2"},
		"anew, also where it was":             {ask: []PodSet{gang(2, earlier("n1", 1, "gone", 1))}, others: earlier("n2", 1), want: "n1:2"},
		"another flavor: anew":                {ask: []PodSet{gang(2, earlier("n3", 2), onFlavor("g"))}, others: one, want: "n1:2"},
		"the leader stays, a worker comes":    {ask: resizedGroup(3, true), others: first, want: "n1:1 | n2:2 n3:1"},
		"a leader comes with a worker":        {ask: resizedGroup(3, false), others: earlier("n1", 2), want: "n3:1 | n2:2 n3:1"},
		"a leader comes alone":                {ask: resizedGroup(2, false), others: earlier("n1", 2), want: "n3:1 | n2:2"},
		"the leader stays, a worker goes":     {ask: resizedGroup(1, true), others: first, want: "n1:1 | n2:1"},
		"a second pod set counts the new one": {ask: []PodSet{gang(5, earlier("n1", 2, "n2", 1)), gang(2)}, others: one, want: "n1:2 n2:1 n3:2 | n3:2"},
		"an earlier one leaves what is kept":  {ask: []PodSet{gang(2), gang(3, earlier("n1", 2, "n2", 1))}, others: one, want: "n3:2 | n1:2 n2:1"},
		"slices are added whole":              {ask: []PodSet{gang(7, sliced(Layer{Hostname, 2}), earlier("n1", 2))}, others: one, want: "n1:2 n3:4"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := world(DefaultGates(), host{"n1", "r1", 2}, host{"n2", "r1", 2}, host{"n3", "r1", 4})
			s.SetTree("g", s.trees["f"].def)
			s.apply(s.Part([]Charge{{earlierOf(tc.others), requests(gpu, 1, pods, 1)}}).(*part), 1, nil)
			for i := range tc.ask {
				if e := tc.ask[i].Earlier; e != nil {
					e.Flavor = "f"
				}
			}
			placed, f := s.Place(tc.ask, Options{Empty: tc.empty})
			if f != nil || text(placed) != tc.want {
				t.Errorf("placed on %s (%v), want %s", text(placed), f, tc.want)
			}
		})
	}
	for name, edit := range map[string]func(*PodSet){"required": required("rack"), "preferred": preferred("rack")} {
		p := gang(5, edit)
		p.Elastic = true
		if _, f := world(DefaultGates(), host{"n1", "r1", 9}).Place([]PodSet{p}, Options{}); f == nil ||
			f.Cause != ElasticLevel || !strings.Contains(f.String(), "elastic") {
			t.Errorf("an elastic job with a %s level: %v", name, f)
		}
	}
}

func onFlavor(name string) func(*PodSet) { return func(p *PodSet) { p.Flavor = name } }

func earlierOf(edit func(*PodSet)) *Placement {
	p := gang(1, edit)
	return p.Earlier
}

func resizedGroup(workers int32, leader bool) []PodSet {
	l, w := gang(1), gang(workers, earlier("n2", 2))
	if leader {
		earlier("n1", 1)(&l)
	}
	l.Group, w.Group = "g", "g"
	return []PodSet{l, w}
}

// TestFailure checks what a failure counts.
func TestFailure(t *testing.T) {
	s := world(DefaultGates(), host{"h1", "r1", 3}, host{"h2", "r1", 0}, host{"h3", "r2", 2}, host{"h4", "r2", 9}, host{"h5", "r2", 9})
	tainted := host{"h4", "r2", 9}.node()
	tainted.Taints = []workload.Taint{{Key: "maintenance", Effect: "NoSchedule"}}
	s.SetNode(tainted)
	other := host{"h5", "r2", 9}.node()
	other.Labels["disk"] = "slow"
	s.SetNode(other)
	p := gang(8, required("rack"), sliced(Layer{"rack", 2}, Layer{Hostname, 1}))
	p.Constraints = &workload.Constraints{Affinity: []workload.Term{{{Key: "disk", Op: workload.NotIn, Values: []string{"slow"}}}}}
	_, f := s.Place([]PodSet{p}, Options{Explain: true})
	want := `topology "default" allows to fit only 1 out of 4 slice(s) of pod set main in flavor f at level rack; most fit in b1/r1: ` +
		`1 of 4 slice(s) of 2 at level rack, 3 of 8 slice(s) of 1 at level kubernetes.io/hostname` +
		`. Total nodes: 5; excluded: affinity: 1, taint "maintenance:NoSchedule": 1, resource "example.com/gpu": 1`
	if d := cmp.Diff(want, f.String()); d != "" {
		t.Error(d)
	}
	levels := []LevelFit{
		{"block", 1, []DomainFit{{[]string{"b1"}, 5, 2}}},
		{"rack", 2, []DomainFit{{[]string{"b1", "r1"}, 3, 1}, {[]string{"b1", "r2"}, 2, 1}}},
	}
	if d := cmp.Diff(levels, f.Levels[:2]); d != "" {
		t.Error(d)
	}
}
