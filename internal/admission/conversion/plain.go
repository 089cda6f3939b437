package conversion

import (
	"bytes"
	"strconv"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// plain reads the text of a topology assignment as the API server spells it, where its strings need no escapes. Decoding it, which is
// strict, takes five times as long. Any other text is left over, and ok becomes false.
type plain struct {
	left []byte
	ok   bool
}

// plainAssignment returns the text of the levels and the slices of an assignment; false if it is not plain.
func plainAssignment(text []byte) (levels []byte, slices []kueue.TopologyAssignmentSlice, ok bool) {
	p := &plain{text, true}
	p.expect(`{"levels":`)
	levels = p.left
	p.list(func() { p.text() })
	levels = levels[:len(levels)-len(p.left)]
	p.expect(`,"slices":`)
	slices = []kueue.TopologyAssignmentSlice{}
	p.list(func() { slices = append(slices, p.slice()) })
	p.expect(`}`)
	return levels, slices, p.ok && len(p.left) == 0
}

func (p *plain) slice() (s kueue.TopologyAssignmentSlice) {
	p.expect(`{"domainCount":`)
	s.DomainCount = p.number()
	if p.expect(`,"podCounts":{`); p.skips(`"universal":`) {
		s.PodCounts.Universal = new(p.number())
	} else {
		p.expect(`"individual":`)
		s.PodCounts.Individual = []int32{}
		p.list(func() { s.PodCounts.Individual = append(s.PodCounts.Individual, p.number()) })
	}
	p.expect(`},"valuesPerLevel":`)
	s.ValuesPerLevel = []kueue.TopologyAssignmentSliceLevelValues{}
	p.list(func() { s.ValuesPerLevel = append(s.ValuesPerLevel, p.values()) })
	p.expect(`}`)
	return s
}

func (p *plain) values() (v kueue.TopologyAssignmentSliceLevelValues) {
	if p.skips(`{"universal":`) {
		v.Universal = new(p.text())
		p.expect(`}`)
		return v
	}
	v.Individual = &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: []string{}}
	if p.expect(`{"individual":{`); p.skips(`"prefix":`) {
		v.Individual.Prefix = new(p.text())
		p.expect(`,`)
	}
	p.expect(`"roots":`)
	p.list(func() { v.Individual.Roots = append(v.Individual.Roots, p.text()) })
	if p.skips(`,"suffix":`) {
		v.Individual.Suffix = new(p.text())
	}
	p.expect(`}}`)
	return v
}

// skips reports whether the text goes on with a token, and skips it.
func (p *plain) skips(token string) bool {
	rest, has := bytes.CutPrefix(p.left, []byte(token))
	if has && p.ok {
		p.left = rest
	}
	return has && p.ok
}

func (p *plain) expect(token string) { p.ok = p.skips(token) }

// list calls item for each item of a list, which it has to read.
func (p *plain) list(item func()) {
	if p.expect(`[`); p.skips(`]`) {
		return
	}
	for item(); p.skips(`,`); item() {
	}
	p.expect(`]`)
}

func (p *plain) number() int32 {
	end := 0
	for end < len(p.left) && p.left[end] >= '0' && p.left[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(p.left[:end]), 10, 32)
	if err != nil || end > 1 && p.left[0] == '0' {
		p.ok = false
		return 0
	}
	p.left = p.left[end:]
	return int32(n)
}

// text reads a string of the characters that values of labels have, and a slash, which keys of labels have.
func (p *plain) text() string {
	p.expect(`"`)
	end := 0
	for end < len(p.left) && isPlain(p.left[end]) {
		end++
	}
	s := string(p.left[:end])
	p.left = p.left[end:]
	p.expect(`"`)
	return s
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '/'
}

// appendPlain appends the text of domains in v1beta1, whose values are plain.
func appendPlain(out, levels []byte, domains []assignment.Domain) []byte {
	out = append(out, `{"domains":[`...)
	for i, d := range domains {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(strconv.AppendInt(append(out, `{"count":`...), int64(d.Count), 10), `,"values":[`...)
		for k, v := range d.Values {
			if k > 0 {
				out = append(out, ',')
			}
			out = append(append(append(out, '"'), v...), '"')
		}
		out = append(out, `]}`...)
	}
	return append(append(append(out, `],"levels":`...), levels...), '}')
}
