package topology

func (s *Space) extendable(g *group) bool { return false }
func (s *Space) extend(g *group, pods []PodSet, o Options, assumed *assumption, out []*Placement) *Failure {
	return nil
}
