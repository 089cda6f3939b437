package install

import (
	"fmt"
	"strings"
)

// Group names a part of the manager that can be left out.
type Group string

// The groups.
const (
	Webhooks     Group = "webhooks"
	Queues       Group = "queues"
	Scheduler    Group = "scheduler"
	Checks       Group = "checks"
	Integrations Group = "integrations"
	JobSet       Group = "jobset"
	Training     Group = "training"
	MultiKueue   Group = "multikueue"
)

// AllGroups lists every group in the order of the documentation.
var AllGroups = []Group{Webhooks, Queues, Scheduler, Checks, Integrations, JobSet, Training, MultiKueue}

// Groups is a set of groups.
type Groups map[Group]bool

// Has reports whether the group is in the set.
func (g Groups) Has(group Group) bool { return g[group] }

// ParseGroups reads the value of --controllers: names separated by commas; "" is all. A name with a minus removes a group from the names
// before it, or from all.
func ParseGroups(list string) (Groups, error) {
	all := Groups{}
	for _, g := range AllGroups {
		all[g] = true
	}
	out := Groups{}
	for i, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		group, leaveOut := strings.CutPrefix(name, "-")
		if i == 0 && (leaveOut || name == "") {
			out = all
		}
		if name == "" {
			continue
		}
		if !all[Group(group)] {
			return nil, fmt.Errorf("--controllers: %q is no group; the groups are %s", group, join(AllGroups))
		}
		if leaveOut {
			delete(out, Group(group))
		} else {
			out[Group(group)] = true
		}
	}
	return out, nil
}

func join(groups []Group) string {
	names := make([]string, 0, len(groups))
	for _, g := range groups {
		names = append(names, string(g))
	}
	return strings.Join(names, ", ")
}
