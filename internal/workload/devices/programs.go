package devices

import (
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// programs are the compiled expressions. An expression of a claim that some workload needs stays until all of them take more than a number
// of bytes: then the expressions go that no claim needs, and after them expressions of the namespace with the most. So a namespace with
// many expressions has its own ones compiled again.
type programs struct {
	compiler     compiler
	known        map[string]*program // by expression
	pools        map[pool]*programPool
	bytes, limit int // of the known ones
	compiled     int // how often an expression was compiled
}

type compiler interface {
	CompileCELExpression(expression string, options dracel.Options) dracel.CompilationResult
}

// pool is whose expressions compete for memory.
type pool struct {
	namespace string
	kind      poolKind
}

type poolKind int

const (
	ofNamespace poolKind = iota // of the claims of one
	shared                      // claims of several namespaces need them, or did
	unused                      // no claim needs them
)

type programPool struct {
	programs map[*program]bool
	bytes    int
}

// program is a compiled expression.
type program struct {
	dracel.CompilationResult
	of pool
}

func newPrograms(limit int) programs {
	return programs{
		compiler: dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}),
		known:    map[string]*program{}, pools: map[pool]*programPool{}, limit: limit,
	}
}

// size is about how many bytes of the heap a program takes.
func (p *program) size() int { return programBase + programPerByte*len(p.Expression) }

// compile returns an expression of a namespace, compiled, and whether that had to be done now. One with an error is not kept.
func (c *programs) compile(namespace, expression string) (result *dracel.CompilationResult, now bool) {
	of := pool{namespace: namespace}
	if p := c.known[expression]; p != nil {
		switch {
		case p.of.kind == unused:
			c.move(p, of)
		case p.of != of:
			c.move(p, pool{kind: shared})
		}
		return &p.CompilationResult, false
	}
	c.compiled++
	p := &program{CompilationResult: c.compiler.CompileCELExpression(expression, dracel.Options{DisableCostEstimation: true}), of: of}
	if p.Error == nil {
		c.known[expression] = p
		c.add(p)
		c.fit(p)
	}
	return &p.CompilationResult, true
}

func (c *programs) add(p *program) {
	in := c.pools[p.of]
	if in == nil {
		in = &programPool{programs: map[*program]bool{}}
		c.pools[p.of] = in
	}
	in.programs[p] = true
	in.bytes += p.size()
	c.bytes += p.size()
}

func (c *programs) remove(p *program) {
	in := c.pools[p.of]
	delete(in.programs, p)
	in.bytes -= p.size()
	c.bytes -= p.size()
	if len(in.programs) == 0 {
		delete(c.pools, p.of)
	}
}

func (c *programs) move(p *program, to pool) {
	if p.of != to {
		c.remove(p)
		p.of = to
		c.add(p)
	}
}

// fit drops programs other than one above the limit, random ones of their pool: claims are counted in turns, so the least recently used
// expression is the next to be needed.
func (c *programs) fit(but *program) {
	for c.bytes > c.limit {
		var victim *program
		for p := range c.largest().programs {
			if p != but {
				victim = p
				break
			}
		}
		if victim == nil {
			return
		}
		c.remove(victim)
		delete(c.known, victim.Expression)
	}
}

// largest returns the pool of which programs are to be dropped.
func (c *programs) largest() (largest *programPool) {
	if idle := c.pools[pool{kind: unused}]; idle != nil {
		return idle
	}
	for _, in := range c.pools {
		if largest == nil || in.bytes > largest.bytes {
			largest = in
		}
	}
	return largest
}

// retain notes which expressions claims need.
func (c *programs) retain(used map[string]bool) {
	for expression, p := range c.known {
		if !used[expression] {
			c.move(p, pool{kind: unused})
		}
	}
}
