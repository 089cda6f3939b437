package whatif

import (
	"errors"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/foresight/offline/change"
	"github.com/berth-project/berth/internal/state"
)

// change returns the events of the change that the flags describe.
func (c *command) change(b *change.Base) ([]state.Event, error) {
	asked := &change.Change{Queue: c.queue, Namespace: c.namespace, Drains: c.drains}
	for _, of := range []struct {
		names []string
		into  *[]change.File
	}{{c.files, &asked.Objects}, {c.submits, &asked.Submits}} {
		for _, name := range of.names {
			data, err := c.readFile(name)
			if err != nil {
				return nil, err
			}
			if name == "-" {
				name = "standard input"
			}
			*of.into = append(*of.into, change.File{Name: name, Data: data})
		}
	}
	for _, text := range c.deletes {
		d, err := deletion(text, &b.Settings)
		if err != nil {
			return nil, cluster.Usage("--delete %s: %w", text, err)
		}
		asked.Deletes = append(asked.Deletes, d)
	}
	for _, text := range c.quotas {
		q, err := change.ParseQuota(text)
		if err != nil {
			return nil, cluster.Usage("--quota %s: %w", text, err)
		}
		asked.Quotas = append(asked.Quotas, q)
	}
	events, err := b.Apply(asked)
	if some, is := errors.AsType[change.Mistakes](err); is {
		return nil, c.explain(some[0])
	}
	return events, err
}

// explain names the flag of a mistake. A file names itself.
func (c *command) explain(m *change.Mistake) error {
	switch m.Part {
	case change.OfQuota:
		return cluster.Usage("--quota %s: %w", c.quotas[m.Index], m)
	case change.OfDrain:
		return cluster.Usage("--drain %s: %w", c.drains[m.Index], m)
	case change.OfDelete:
		return cluster.Usage("--delete %s: %w", c.deletes[m.Index], m)
	case change.OfFile, change.OfSubmit: // files are in the text, and there is no Submission
	}
	return m
}

// deletion reads a text such as clusterqueue/research.
func deletion(text string, settings *change.Settings) (d change.Deletion, err error) {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return d, errors.New("must be KIND/NAME, or KIND/NAMESPACE/NAME")
	}
	d.Name = parts[len(parts)-1]
	if len(parts) == 3 {
		d.Namespace = parts[1]
	}
	kind := cluster.KindOf(parts[0])
	switch {
	case kind == nil:
		d.Job = settings.JobKind(parts[0])
	case !kind.Namespaced && len(parts) == 3:
		return d, errors.New("a " + kind.Kind + " has no namespace")
	default:
		d.Kind = kind.Kind
	}
	return d, nil
}
