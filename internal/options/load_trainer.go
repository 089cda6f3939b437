package options

import (
	"maps"

	"go.yaml.in/yaml/v3"

	configtrainer "github.com/berth-project/berth/api/config/trainer/v1alpha1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/options/training"
)

// trainerFile is a document of the Trainer, alone or beside one of the manager (spec: 50 §4.11).
type trainerFile struct {
	strict.Decoder
	doc   configtrainer.Configuration
	alone bool
}

func decodeTrainer(source string, root *yaml.Node, alone bool) *trainerFile {
	f := &trainerFile{Decoder: strict.Decoder{Source: source, Lines: map[string]int{}}, alone: alone}
	f.Decode(root, &f.doc)
	f.negative()
	return f
}

// join returns the manager's configuration with the settings of the document. If the document is alone, the gates of the command line
// take precedence over its own.
func (f *trainerFile) join(c *configv1beta2.Configuration, flagGates map[string]bool) (joined *configv1beta2.Configuration, warnings []string) {
	if f.alone {
		c = training.Upgrade(&f.doc)
		c.FeatureGates = maps.Clone(c.FeatureGates)
		maps.DeleteFunc(c.FeatureGates, func(name string, _ bool) bool {
			_, wins := flagGates[name]
			return wins
		})
		return c, nil
	}
	warnings = training.Join(c, &f.doc, func(field string) bool { return f.Lines[field] > 0 })
	return c, warnings
}

// where returns the position of a field of the manager's configuration in this document. ok is false if it is not set.
func (f *trainerFile) where(field string) (p Problem, ok bool) {
	if f == nil {
		return p, false
	}
	path := training.Path(field)
	line := f.Line(path)
	return Problem{Source: f.Source, Line: line, Field: path}, f.alone || line > 0
}

// negative refuses limits below 0, which mean no limit in the manager's own document.
func (f *trainerFile) negative() {
	client := f.doc.ClientConnection
	if client == nil {
		return
	}
	refuse := func(path string) {
		f.Problems = append(f.Problems, Problem{Source: f.Source, Line: f.Line(path), Field: path, Detail: "must not be negative"})
	}
	if client.QPS != nil && *client.QPS < 0 {
		refuse("clientConnection.qps")
	}
	if client.Burst != nil && *client.Burst < 0 {
		refuse("clientConnection.burst")
	}
}

// resolve adds the options that only this document can set.
func (f *trainerFile) resolve(o *Options) {
	if f == nil || !f.alone {
		return
	}
	o.training = training.Complete(&f.doc, o.Effective)
	protocols, warnings := training.ResolveTLS(f.doc.TLS)
	o.Warnings = append(o.Warnings, warnings...)
	if protocols.MinVersion > 0 {
		o.TLS.MinVersion = protocols.MinVersion
	}
	o.TLS.CipherSuites, o.TLS.NextProtos = protocols.CipherSuites, protocols.NextProtos
	m := f.doc.Metrics
	o.Metrics.Plain = m.SecureServing != nil && !*m.SecureServing
	o.Metrics.Open = m.Auth == nil || m.Auth.Enabled == nil || !*m.Auth.Enabled
	if o.Certs.Internal {
		o.Trainer.StatusService = o.Certs.Service
	}
}
