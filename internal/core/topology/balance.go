package topology

func (s *Space) balance(g *group, sh *shape, h chooser) ([]share, bool) { return nil, false }
