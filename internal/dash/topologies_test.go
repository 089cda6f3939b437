package dash

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	amounts "github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/state"
)

// nodesOf is an engine's world with a topology of racks, for a dashboard.
type nodesOf struct {
	mu sync.Mutex
	*state.State
	gates topology.Gates
	now   int64
}

func newNodes(racks, hosts int) *nodesOf {
	n := &nodesOf{gates: topology.DefaultGates()}
	n.State = state.New(state.Options{Options: cycle.Defaults(), Topology: &n.gates})
	for rack := range racks {
		for host := range hosts {
			n.node(rack, host, true)
		}
	}
	return n
}

func (n *nodesOf) node(rack, host int, ready bool) {
	name := fmt.Sprintf("r%d-h%d", rack, host)
	n.apply(state.SetNode{
		Name: name, Labels: map[string]string{"rack": fmt.Sprint("r", rack), topology.Hostname: name}, Ready: ready, Schedulable: true,
		Allocatable: []state.Request{{Resource: "gpu", Amount: 4}, {Resource: "pods", Amount: 110}},
	})
}

func (n *nodesOf) apply(events ...state.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range events {
		n.Apply(e)
	}
	n.now += 1e9
	n.Step(workload.Instant(n.now), 1000)
}

func (n *nodesOf) publish() *state.Model {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Publish()
}

// queue adds a flavor of a topology and a ClusterQueue, with LocalQueues main.
func (n *nodesOf) queue(name string, namespaces ...string) {
	n.apply(state.SetFlavor(flavor.Flavor{Name: name, Topology: name, Levels: []string{"rack", topology.Hostname}}),
		state.SetQueue(state.Queue{Name: name, Namespaces: []workload.Term{{}}, Groups: []state.Group{{
			Resources: []string{"gpu"},
			Flavors:   []state.FlavorQuota{{Flavor: name, Resources: []state.Quota{{Resource: "gpu", Nominal: 999, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
		}}}))
	for _, ns := range namespaces {
		n.apply(state.SetNamespace{Name: ns}, state.SetLocalQueue(state.LocalQueue{Namespace: ns, Name: "main", Queue: name}))
	}
}

// gang adds a gang of one rack.
func (n *nodesOf) gang(w *kueue.Workload, pods int32) { n.gangOf(w, pods, "rack") }

// gangOf adds a gang of one domain of a level.
func (n *nodesOf) gangOf(w *kueue.Workload, pods int32, level string) {
	n.apply(state.SetWorkload(state.Workload{
		UID: string(w.UID), Namespace: w.Namespace, Name: w.Name, Version: 1, LocalQueue: "main", Queueable: true, PodSets: []state.PodSet{{
			Name: "main", Count: pods, Requests: []state.Request{{Resource: "gpu", Amount: amounts.Amount(pods)}}, Topology: &workload.Topology{Required: level},
			PerPod: []state.Request{{Resource: "gpu", Amount: 1}, {Resource: "pods", Amount: 1}},
		}},
	}))
}

func (n *nodesOf) serve(s *Server) {
	s.Places, s.pace.places = occupancy.New(n.publish, &n.gates), 10*time.Millisecond
}

// readsTopologies lets the viewer read topologies, and the nodes if they are named.
func (w *world) readsTopologies(resources ...string) {
	w.Helper()
	for _, r := range resources {
		group := "kueue.x-k8s.io"
		if r == "nodes" {
			group = ""
		}
		name := w.red + "-" + r
		w.create(
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{r}, Verbs: []string{"get", "list"}}}},
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{w.subject("viewer")},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			})
	}
}

// topologyWorld is a dashboard over two racks of two hosts, with a gang of red and one of blue that run, and one of each that waits.
func topologyWorld(t *testing.T) (w *world, n *nodesOf) {
	n = newNodes(2, 2)
	return topologyWorldOf(t, n, n.serve), n
}

func topologyWorldOf(t *testing.T, n *nodesOf, change func(*Server)) *world {
	t.Helper()
	w := newWorld(t, change)
	w.create(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: w.red}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: topology.Hostname}}}})
	n.queue(w.red, w.red, w.blue)
	n.gang(w.workload(w.red, "train", ""), 5)
	n.gang(w.workload(w.blue, "secret", ""), 7)
	n.gang(w.workload(w.red, "waits", ""), 6)
	n.gang(w.workload(w.blue, "hidden", ""), 8)
	return w
}

// follow reads until a view is as wanted.
func (s *socket) follow(what string, is func(document) bool) document {
	s.Helper()
	for {
		if d := s.document(); is(d) {
			return d
		} else if text := fmt.Sprint(d); len(text) > 0 {
			s.Logf("%s is not there yet: %.300s", what, text)
		}
	}
}

// The map of a topology shows racks with counts, and for a pending gang how much each rack lacks; hosts have their occupants.
func TestTopologyMap(t *testing.T) {
	w, _ := topologyWorld(t)
	admin := w.administrator()
	d := w.dial(admin, "/ws/topology/"+w.red+"?delta=true&workload="+w.red+"/waits").follow("the gang", func(d document) bool {
		pending, _ := d.at("asked", "pending").(bool)
		return pending
	})
	for path, want := range map[string]any{
		"domains items r0 pods": 5.0, "domains items r0 resources gpu free": "3", "domains items r1 pods": 7.0, "domains items r1 resources gpu free": "1",
		"depth": 1.0, "sums nodes counted": 4.0,
	} {
		if got := d.at(strings.Fields(path)...); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	needs, _ := d.at("asked", "needs").([]any)
	need := document(needs[0].(map[string]any))
	if need.at("level") != "rack" || need.at("needed") != 6.0 || need.at("enough") != 0.0 || need.at("domains", "r0", "lacks") != 3.0 || need.at("domains", "r1", "lacks") != 5.0 {
		t.Errorf("it needs %v", need)
	}
	if waiting := fmt.Sprint(d.at("waiting")); waiting != fmt.Sprintf("[%s/hidden %s/waits]", w.blue, w.red) && waiting != fmt.Sprintf("[%s/waits %s/hidden]", w.red, w.blue) {
		t.Errorf("there wait %s", waiting)
	}
	hosts := w.dial(admin, "/ws/topology/"+w.red+"/domains?delta=true&within=r0").document()
	if got := hosts.at("items", "r0/r0-h0", "pods"); got != 4.0 || hosts.at("total") != 2.0 {
		t.Errorf("the hosts of r0 are %v", hosts)
	}
	if got := fmt.Sprint(hosts.at("items", "r0/r0-h0", "occupants")); !strings.Contains(got, "name:train") || !strings.Contains(got, "pods:4") {
		t.Errorf("on r0-h0 are %s", got)
	}
	if list := w.dial(admin, "/ws/topologies?delta=true").document(); list.at("items", w.red, "flavors") == nil {
		t.Errorf("the topologies are %v", list)
	}
}

// A map takes the right to read topologies, hosts that to list nodes, and a workload that to read it.
func TestTopologyAccess(t *testing.T) {
	w := mapped(t)
	viewer := w.viewer()
	for _, path := range []string{"/ws/topologies", "/ws/topology/" + w.red, "/ws/topology/" + w.red + "/domains", "/ws/topology/none"} {
		if code, why := w.dial(viewer, path).closed(); code != websocket.ClosePolicyViolation || !strings.Contains(why, "may not") {
			t.Errorf("%s: closed with %d %q", path, code, why)
		}
	}
	w, n := topologyWorld(t)
	n.gangOf(w.workload(w.red, "one-host", ""), 9, topology.Hostname)
	viewer = w.viewer()
	w.readsTopologies("topologies")
	w.may(viewer, "/ws/topologies")
	if code, why := w.dial(viewer, "/ws/topology/"+w.red+"/domains?within=r1").closed(); code != websocket.ClosePolicyViolation || !strings.Contains(why, "may not list nodes") {
		t.Errorf("hosts without a right to list nodes: closed with %d %q", code, why)
	}
	if code, _ := w.dial(viewer, "/ws/topology/"+w.red+"?workload="+w.blue+"/hidden").closed(); code != websocket.ClosePolicyViolation {
		t.Errorf("another's workload: closed with %d", code)
	}
	d := w.dial(viewer, "/ws/topology/"+w.red).document()
	if got := fmt.Sprint(d.at("waiting")); got != fmt.Sprintf("[%s/waits %s/one-host]", w.red, w.red) && got != fmt.Sprintf("[%s/one-host %s/waits]", w.red, w.red) {
		t.Errorf("the viewer may choose among %s", got)
	}
	for token, hosts := range map[string]int{viewer: 0, w.administrator(): 4} {
		d := w.dial(token, "/ws/topology/"+w.red+"?delta=true&workload="+w.red+"/one-host").follow("the gang", func(d document) bool {
			pending, _ := d.at("asked", "pending").(bool)
			return pending
		})
		needs, _ := d.at("asked", "needs").([]any)
		need := document(needs[0].(map[string]any))
		if domains, _ := need.at("domains").(map[string]any); need.at("level") != topology.Hostname || need.at("fit") != 4.0 || len(domains) != hosts {
			t.Errorf("with %d hosts that the caller may list, it needs %v", hosts, need)
		}
	}
}

func mapped(t *testing.T) *world {
	t.Helper()
	w, _ := topologyWorld(t)
	return w
}

// may waits until a view opens: the API server's answers are cached.
func (w *world) may(token, path string) {
	w.Helper()
	wait.Until(w.TB, "the binding counts for "+path, func() error {
		conn, _, err := w.try(token, path, nil)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if _, _, err = conn.ReadMessage(); err != nil {
			return err
		}
		return nil
	})
}

// Names of other namespaces are no part of the hosts: their pods are counted.
func TestTopologyOccupants(t *testing.T) {
	w := mapped(t)
	viewer := w.viewer()
	w.readsTopologies("topologies", "nodes")
	w.may(viewer, "/ws/topology/"+w.red+"/domains?within=r1")
	for rack, want := range map[string]string{"r0": "train", "r1": ""} {
		d := w.dial(viewer, "/ws/topology/"+w.red+"/domains?delta=true&within="+rack).document()
		if host := d.at("items", "r1/r1-h0"); rack == "r1" && d.at("items", "r1/r1-h0", "others") != 4.0 {
			t.Errorf("on r1-h0 are %v", host)
		}
		text := fmt.Sprint(d)
		if strings.Contains(text, "secret") || strings.Contains(text, w.blue) || !strings.Contains(text, want) {
			t.Errorf("in %s the viewer sees %s", rack, text)
		}
	}
}

// A change of a node reaches an open view, and the view is silent without one.
func TestTopologyFollows(t *testing.T) {
	w, n := topologyWorld(t)
	s := w.dial(w.administrator(), "/ws/topology/"+w.red+"/domains?within=r0")
	if first := s.document(); len(first.at("items").([]any)) != 2 {
		t.Fatalf("at first %v", first)
	}
	n.node(0, 1, false)
	n.node(0, 2, true)
	s.follow("the change", func(d document) bool {
		items, _ := d.at("items").([]any)
		return len(items) == 3 && slices.ContainsFunc(items, func(i any) bool { return document(i.(map[string]any)).at("excluded") == 1.0 })
	})
}

// Ten thousand hosts are racks with counts, and hosts in pages.
func TestTopologyOfManyHosts(t *testing.T) {
	n := newNodes(250, 40)
	w := newWorld(t, n.serve)
	w.create(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: w.red}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: topology.Hostname}}}})
	n.queue(w.red, w.red)
	admin := w.administrator()
	text := w.dial(admin, "/ws/topology/"+w.red+"?delta=true").next()
	if len(text) > 100_000 || strings.Contains(string(text), "r7-h3") || !strings.Contains(string(text), `"r249":`) {
		t.Errorf("the map has %d bytes", len(text))
	}
	page := w.dial(admin, "/ws/topology/"+w.red+"/domains?within=r7&limit=16&offset=32").document()
	if items := page.at("items").([]any); len(items) != 8 || page.at("total") != 40.0 {
		t.Errorf("the last page has %d of %v hosts", len(items), page.at("total"))
	}
	n.apply(state.SetFlavor(flavor.Flavor{Name: w.red, Topology: w.red, Levels: []string{topology.Hostname}}))
	flat := w.dial(admin, "/ws/topology/"+w.red+"?delta=true").next()
	if !strings.Contains(string(flat), `"depth":0`) || len(flat) > 10_000 {
		t.Errorf("with hosts alone the map has %d bytes: %.300s", len(flat), flat)
	}
}
