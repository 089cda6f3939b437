package compat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// Of the world whose nodes come and go.
const (
	churnRacks = 3
	churnNodes = 4 // in each rack
	churnCPU   = 2 // of each node
)

// TestSchedulesOfNodes lets nodes come, go, be cordoned, tainted, moved and NotReady under placed Workloads, and kills the manager again and
// again. No node ever has more pods than fit, a replacement moves the pods of the failed node alone, every pod is where its Workload was
// placed, and in the end all Workloads finish. spec: 20 §4.5, §4.8, §4.9.
func TestSchedulesOfNodes(t *testing.T) {
	at := cluster(t)
	webhooks := launch(t, at, configured(t, ""), only(t, "webhooks"))
	webhooks.ready()
	c := newChurn(at.world(t), embeddedtest.Random(t))
	t.Cleanup(c.clearPlaces)
	over, die, left := make(chan struct{}), make(chan struct{}), sync.WaitGroup{}
	left.Go(func() {
		for {
			s := newSaboteur()
			m := launch(t, at, configured(t, ""), only(t, "-webhooks"), through(s.wrap))
			select {
			case <-over:
				return // it ends with the test
			case <-die:
			}
			s.kill()
			_ = m.end() // its remaining requests reach no server
		}
	})
	end := sync.OnceFunc(func() { close(over); left.Wait() })
	defer end()
	ledger := c.followPlaces(func(map[string]int64, string) error { return nil }, c.check)
	for step := range pick(60, 3000) {
		if step%60 == 0 {
			c.submit(12)
		}
		c.disturb()
		c.act()
		if step%25 == 24 {
			die <- struct{}{}
			ledger.soFar()
		}
		if step%500 == 499 {
			t.Logf("step %d", step)
		}
	}
	end()
	c.restore()
	wait.Until(t, "all workloads finish", func() error {
		c.act()
		return equal(c.unfinished(), 0)
	})
	ledger.verdict()
	t.Logf("%d replacements", c.replaced)
}

// churn is a world with nodes that change, and stands in for the controllers of jobs, the scheduler and the kubelets.
type churn struct {
	*world
	random *rand.Rand
	racks  map[string]string // of the nodes, by name
	ran    map[string]int    // steps for which all pods of a Workload ran

	mu       sync.Mutex
	hosts    map[types.UID]map[string]bool // on which a Workload was placed
	replaced int
}

func newChurn(w *world, random *rand.Rand) *churn {
	c := &churn{world: w, random: random, racks: map[string]string{}, ran: map[string]int{}, hosts: map[types.UID]map[string]bool{}}
	w.topology(rack, corev1.LabelHostname)
	for r := range churnRacks {
		for n := range churnNodes {
			name := fmt.Sprintf("n%d%d", r, n)
			c.racks[name] = fmt.Sprintf("r%d", r)
			c.node(c.text(name))
		}
	}
	w.queue("q", "100")
	return c
}

func (c *churn) text(node string) string {
	return fmt.Sprintf("%s b %s %d", node, c.racks[node], churnCPU)
}

// submit makes Workloads of 1 to 4 pods with requests of all sorts.
func (c *churn) submit(n int) {
	c.t.Helper()
	for range n {
		request := []workloadSetting{requires(rack), prefers(rack), unconstrained()}[c.random.IntN(3)]
		c.made++
		c.workload(fmt.Sprintf("a%d", c.made), "q", "1", count(int32(1+c.random.IntN(4))), request)
	}
}

// domains are the pods of a Workload by node; nil if it holds none.
func domains(wl *kueue.Workload) map[string]int32 {
	if wl == nil || !holds(wl) {
		return nil
	}
	out := map[string]int32{}
	for _, a := range wl.Status.Admission.PodSetAssignments {
		if a.TopologyAssignment == nil {
			continue
		}
		list, err := assignment.Decode(a.TopologyAssignment)
		if err != nil {
			return map[string]int32{err.Error(): 1 << 20} // more than fits
		}
		for _, d := range list {
			out[d.Values[0]] += d.Count
		}
	}
	return out
}

// check returns what is wrong after a change of a Workload.
func (c *churn) check(before, wl *kueue.Workload, all map[types.UID]*kueue.Workload) (wrong []string) {
	now, was := domains(wl), domains(before)
	on := map[string]int32{}
	for _, o := range all {
		for host, n := range domains(o) {
			on[host] += n
		}
	}
	for host := range now {
		if on[host] > churnCPU {
			wrong = append(wrong, fmt.Sprintf("%s at %s: node %s has %d pods", wl.Name, wl.ResourceVersion, host, on[host]))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts[wl.UID] == nil {
		c.hosts[wl.UID] = map[string]bool{}
	}
	for host := range now {
		c.hosts[wl.UID][host] = true
	}
	if was == nil || now == nil || !trueSince(before, kueue.WorkloadQuotaReserved).Equal(trueSince(wl, kueue.WorkloadQuotaReserved)) {
		return wrong
	}
	var failed []string
	for _, n := range before.Status.UnhealthyNodes {
		failed = append(failed, n.Name)
	}
	for host, n := range was {
		if now[host] < n && !slices.Contains(failed, host) {
			wrong = append(wrong, fmt.Sprintf("%s at %s: %d of %d pods stay on node %s, and %v failed", wl.Name, wl.ResourceVersion, now[host], n, host, failed))
		}
		if now[host] < n {
			c.replaced++
		}
	}
	return wrong
}

// disturb changes a node.
func (c *churn) disturb() {
	c.t.Helper()
	name := fmt.Sprintf("n%d%d", c.random.IntN(churnRacks), c.random.IntN(churnNodes))
	key := &corev1.Node{ObjectMeta: c.meta(name)}
	var now corev1.Node
	if err := c.c.Get(c.ctx(), client.ObjectKeyFromObject(key), &now); err != nil {
		c.must(client.IgnoreNotFound(err))
		c.node(c.text(name))
		return
	}
	switch c.random.IntN(8) {
	case 0:
		c.must(c.c.Delete(c.ctx(), &now))
	case 1:
		edit(c.world, key, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
	case 2:
		edit(c.world, key, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "broken", Effect: corev1.TaintEffectNoExecute}}
		})
	case 3:
		edit(c.world, key, func(n *corev1.Node) { n.Labels[rack] = fmt.Sprintf("r%d", c.random.IntN(churnRacks)) })
	case 4:
		c.setReady(key, false, "")
	default:
		c.repair(key)
	}
}

// repair makes a node as it was at first.
func (c *churn) repair(n *corev1.Node) {
	c.t.Helper()
	edit(c.world, n, func(n *corev1.Node) {
		n.Spec.Taints, n.Spec.Unschedulable = nil, false
		n.Labels[rack] = c.racks[strings.TrimPrefix(n.Name, c.name+"-")]
	})
	c.setReady(n, true, "")
}

// restore repairs all nodes.
func (c *churn) restore() {
	c.t.Helper()
	for name := range c.racks {
		n := &corev1.Node{ObjectMeta: c.meta(name)}
		if c.c.Get(c.ctx(), client.ObjectKeyFromObject(n), n) != nil {
			c.node(c.text(name))
		}
		c.repair(n)
	}
}

// act does what the owners of the Workloads, the scheduler and the kubelets have to do now.
func (c *churn) act() {
	c.t.Helper()
	usable := map[string]bool{}
	var nodes corev1.NodeList
	c.must(c.c.List(c.ctx(), &nodes, client.MatchingLabels{"world": c.name}))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		usable[n.Name] = len(n.Spec.Taints) == 0 && slices.ContainsFunc(n.Status.Conditions, func(s corev1.NodeCondition) bool {
			return s.Type == corev1.NodeReady && s.Status == corev1.ConditionTrue
		})
	}
	var pods corev1.PodList
	c.must(c.c.List(c.ctx(), &pods, client.InNamespace(c.name)))
	byOwner := map[string][]*corev1.Pod{}
	for i := range pods.Items {
		p := &pods.Items[i]
		byOwner[p.Annotations[kueue.WorkloadAnnotation]] = append(byOwner[p.Annotations[kueue.WorkloadAnnotation]], p)
	}
	var list kueue.WorkloadList
	c.must(c.c.List(c.ctx(), &list, client.InNamespace(c.name)))
	for i := range list.Items {
		wl := &list.Items[i]
		is := func(condition string) bool { return lacks(wl.Status.Conditions, condition+"=True") == nil }
		switch {
		case is(kueue.WorkloadFinished):
			c.kill(byOwner[wl.Name])
		case is(kueue.WorkloadEvicted) && is(kueue.WorkloadQuotaReserved):
			c.ran[wl.Name] = 0
			if c.kill(byOwner[wl.Name]); len(byOwner[wl.Name]) == 0 {
				c.release(wl)
			}
		case is(kueue.WorkloadAdmitted):
			c.run(wl, byOwner[wl.Name], usable)
		}
	}
}

// run creates, binds and ends the pods of an admitted Workload, which finishes after they all ran for some steps.
func (c *churn) run(wl *kueue.Workload, pods []*corev1.Pod, usable map[string]bool) {
	c.t.Helper()
	wanted, running := int(wl.Spec.PodSets[0].Count), 0
	for _, p := range pods {
		host := p.Spec.NodeSelector[corev1.LabelHostname]
		switch {
		case job.PodIsOver(p), p.Spec.NodeName != "" && !usable[p.Spec.NodeName]:
			c.kill([]*corev1.Pod{p})
			wanted-- // another one comes with the next step
		case p.Spec.NodeName != "":
			running++
		case len(p.Spec.SchedulingGates) == 0:
			c.wasPlaced(wl, p, host)
			if usable[host] {
				err := c.c.SubResource("binding").Create(c.ctx(), p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: host}})
				if err == nil {
					now := read(c.world, p)
					now.Status.Phase = corev1.PodRunning
					_ = c.c.Status().Update(c.ctx(), now) // with the next step, if it has changed
				}
			}
		}
	}
	for n := len(pods); n < wanted; n++ {
		c.made++
		c.pod(fmt.Sprintf("p%d", c.made), "", "1", started(wl))
	}
	if running < int(wl.Spec.PodSets[0].Count) {
		return
	}
	if c.ran[wl.Name]++; c.ran[wl.Name] > 12 {
		c.finish(wl)
	}
}

// wasPlaced waits until the ledger, which follows a watch, has seen the assignment by which a pod was placed.
func (c *churn) wasPlaced(wl *kueue.Workload, p *corev1.Pod, host string) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("pod %s is on %q, where its workload was placed", p.Name, host), func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return equal(c.hosts[wl.UID][host], true)
	})
}

func (c *churn) kill(pods []*corev1.Pod) {
	c.t.Helper()
	for _, p := range pods {
		c.must(client.IgnoreNotFound(c.c.Delete(c.ctx(), p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})))
	}
}

func (c *churn) unfinished() (n int) {
	var list kueue.WorkloadList
	c.must(c.c.List(c.ctx(), &list, client.InNamespace(c.name)))
	for i := range list.Items {
		if lacks(list.Items[i].Status.Conditions, kueue.WorkloadFinished+"=True") != nil {
			n++
		}
	}
	return n
}
