package order

import "github.com/berth-project/berth/internal/core/resource"

// Measures calls visit with every measure in the wants of the line's classes, with repeats: also of active classes, which
// keep the wants of their last evaluation.
func (p *Pending) Measures(visit func(resource.FR)) {
	p.each(func(c *class) {
		if c.pattern == nil {
			return
		}
		for i := range c.pattern.each {
			if fr := c.pattern.each[i].fr; fr < 0 {
				visit(fr)
			}
		}
	})
}
