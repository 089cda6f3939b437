package worker

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pending are the steps that are being made. Nobody waits for some of them any more.
type Pending struct {
	mu    sync.Mutex
	steps map[Place]bool // whether nobody waits for it
}

// Place is where a step is made, and of what.
type Place struct {
	Workload types.NamespacedName
	Cluster  string
}

// Run makes a step and waits for a while. If it is not over by then the answer is nil, and what it comes to is lost; over is called when it is
// over. A step on the same cluster for the same Workload is not begun before.
func (p *Pending) Run(at Place, patience time.Duration, do func() error, over func()) error {
	if !p.add(at) {
		return ErrStuck // with what came before in the same plan
	}
	result := make(chan error, 1)
	go func() {
		err := do()
		if p.end(at) {
			over()
		}
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		if p.leave(at) {
			return nil
		}
		return <-result // just now
	}
}

// add notes a step, and says whether there was none there.
func (p *Pending) add(at Place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.steps[at]; ok {
		return false
	}
	if p.steps == nil {
		p.steps = map[Place]bool{}
	}
	p.steps[at] = false
	return true
}

// leave lets a step go on by itself, and says whether it does.
func (p *Pending) leave(at Place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.steps[at]; !ok {
		return false
	}
	p.steps[at] = true
	return true
}

// end forgets a step, and says whether nobody waits for it.
func (p *Pending) end(at Place) (alone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	alone = p.steps[at]
	delete(p.steps, at)
	return alone
}

// Any says whether a Workload has a step anywhere.
func (p *Pending) Any(workload types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.steps {
		if at.Workload == workload {
			return true
		}
	}
	return false
}

// Has says whether it has one on a cluster.
func (p *Pending) Has(workload types.NamespacedName, cluster string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.steps[Place{workload, cluster}]
	return ok
}
