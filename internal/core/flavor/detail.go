package flavor

import (
	"fmt"
	"strings"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// kind is the kind of a detail.
type kind int8

const (
	matches kind = iota // no obstacle
	missing
	tainted
	notSelected
	notInAffinity
	notAllowed
	contradicts
	notNominated
	notPinned
	uncovered
	placesOnly
	noTopology
	missingTopology
	noLevel
	noPlaces
	otherPlaces
)

// detail is the text of a refusal as data. Most details repeat in every cycle, so a search
// formats each once.
type detail struct {
	kind   kind
	flavor string
	other  string         // the flavor that it contradicts, the resource that is not covered, or the topology that is missing
	key    string         // the label key
	taint  workload.Taint // not tolerated
}

// String is the text of the detail, "" when there is no obstacle.
func (d detail) String() string { //nolint:gocyclo // a case for each kind
	switch d.kind {
	case matches:
	case missing:
		return fmt.Sprintf("flavor %s does not exist", d.flavor)
	case tainted:
		return fmt.Sprintf("flavor %s has taint %s that the pods do not tolerate", d.flavor, taintText(d.taint))
	case notSelected:
		return fmt.Sprintf("flavor %s does not match the node selector", d.flavor)
	case notInAffinity:
		return fmt.Sprintf("flavor %s does not match the required node affinity", d.flavor)
	case notAllowed:
		return fmt.Sprintf("flavor %s is that of another variant of the job", d.flavor)
	case contradicts:
		return fmt.Sprintf("flavor %s contradicts flavor %s, which the pods also get: label %s", d.flavor, d.other, d.key)
	case notNominated:
		return fmt.Sprintf("flavor %s is not the one that the workload was nominated for", d.flavor)
	case notPinned:
		return fmt.Sprintf("flavor %s is not the one that the running slice has", d.flavor)
	case uncovered:
		return fmt.Sprintf("no resource group of the ClusterQueue covers %s", d.other)
	case placesOnly:
		return fmt.Sprintf("flavor %s has a topology, and the pods request none", d.flavor)
	case noTopology:
		return fmt.Sprintf("flavor %s has no topology, which the pods request", d.flavor)
	case missingTopology:
		return fmt.Sprintf("the topology %s of flavor %s is missing", d.other, d.flavor)
	case noLevel:
		return fmt.Sprintf("the topology of flavor %s has no level %s", d.flavor, d.key)
	case noPlaces:
		return "no flavor with a topology covers what the pods request"
	case otherPlaces:
		return fmt.Sprintf("flavor %s has a topology, and the pods are placed by flavor %s", d.flavor, d.other)
	}
	return ""
}

func taintText(t workload.Taint) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return strings.TrimSuffix(text+":"+t.Effect, ":")
}

// maxTexts bounds the texts left behind by edits of flavors.
const maxTexts = 1 << 12

// text is the text of a detail, and its flavor.
type text struct {
	about *resource.Pair
	text  string
}

func (s *Search) text(d detail) text {
	t, known := s.texts[d]
	if known {
		return t
	}
	if s.texts == nil || len(s.texts) >= maxTexts {
		s.texts = map[detail]text{}
	}
	t = text{&resource.Pair{Flavor: d.flavor}, d.String()}
	s.texts[d] = t
	return t
}

// refuse adds the refusal of a flavor for a pod set.
func (s *Search) refuse(podSet int, d detail) {
	t := s.text(d)
	s.into.Refusals = append(s.into.Refusals, trace.Refusal{PodSet: s.podSets[podSet].Name, Pair: t.about, Detail: t.text})
}

// nodeText is the text for a node of the tree.
type nodeText struct {
	name   string
	cohort bool
	text   string
}

// where returns the bottleneck of fr in the tree, and whether its borrowing limit binds.
func (s *Search) where(fr resource.FR) (node string, limited bool) {
	at, limited := s.Quota.Bottleneck(s.Node, fr)
	if at == quota.None {
		return "", false
	}
	if missing := int(at) + 1 - len(s.nodes); missing > 0 {
		s.nodes = append(s.nodes, make([]nodeText, missing)...)
	}
	t := &s.nodes[at]
	if name, isCohort := s.Quota.Name(at), s.Quota.IsCohort(at); t.text == "" || t.name != name || t.cohort != isCohort {
		*t = nodeText{name, isCohort, trace.Node(name, isCohort)}
	}
	return t.text, limited
}
