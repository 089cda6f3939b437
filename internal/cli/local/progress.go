package local

import (
	"bytes"
	"io"
)

// progress passes on what a control plane says until it complains: the complaint becomes the error, and need not be read twice.
type progress struct {
	next   io.Writer
	silent bool
	line   []byte // without its end
}

func (p *progress) Write(data []byte) (int, error) {
	for _, piece := range bytes.SplitAfter(data, []byte("\n")) {
		p.line = append(p.line, piece...)
		if !bytes.HasSuffix(p.line, []byte("\n")) {
			continue
		}
		p.silent = p.silent || bytes.HasPrefix(p.line, []byte("error: "))
		if !p.silent {
			if _, err := p.next.Write(p.line); err != nil {
				return 0, err
			}
		}
		p.line = p.line[:0]
	}
	return len(data), nil
}
