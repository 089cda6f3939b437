// Package crd checks objects as the API server does that serves Berth's CRDs.
package crd

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/berth-project/berth/config"
)

// Schema is the schema of one version of a kind.
type Schema struct {
	structural *structural.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// Prune removes the fields of an object that the schema does not have, and returns their paths.
func (s *Schema) Prune(object map[string]any) []string {
	return pruning.PruneWithOptions(object, s.structural, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
}

// Default sets the fields that have a default and are not set.
func (s *Schema) Default(object map[string]any) { defaulting.Default(object, s.structural) }

// Validate returns what is wrong with an object that is created: by the schema, and by its rules in CEL.
func (s *Schema) Validate(ctx context.Context, object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, s.validator)
	more, _ := s.rules.Validate(ctx, nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, more...)
}

// Definitions returns the CRDs, by name. They are shared: do not change them.
func Definitions() map[string]*apiextensionsv1.CustomResourceDefinition { return definitions() }

var definitions = sync.OnceValue(func() map[string]*apiextensionsv1.CustomResourceDefinition {
	out := map[string]*apiextensionsv1.CustomResourceDefinition{}
	files, err := fs.Glob(config.FS, "crd/*_*.yaml")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, file := range files {
		text, err := fs.ReadFile(config.FS, file)
		if err != nil {
			panic(err)
		}
		var of apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &of); err != nil {
			panic(fmt.Sprintf("%s: %v", file, err))
		}
		out[of.Name] = &of
	}
	return out
})

// made are the schemas that were asked for, by version of a kind: compiling the rules of all takes a while.
var made sync.Map

// Find returns the schema of a version of a kind, nil if Berth has no CRD of it.
func Find(gvk schema.GroupVersionKind) *Schema {
	if known, ok := made.Load(gvk); ok {
		return known.(*Schema)
	}
	for _, of := range definitions() { //berth:unordered at most one matches
		if of.Spec.Group != gvk.Group || of.Spec.Names.Kind != gvk.Kind {
			continue
		}
		for i := range of.Spec.Versions {
			if v := &of.Spec.Versions[i]; v.Name == gvk.Version {
				s, _ := made.LoadOrStore(gvk, newSchema(v.Schema.OpenAPIV3Schema))
				return s.(*Schema)
			}
		}
	}
	return nil
}

func newSchema(of *apiextensionsv1.JSONSchemaProps) *Schema {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(of, &internal, nil); err != nil {
		panic(err)
	}
	s, err := structural.NewStructural(&internal)
	if err != nil {
		panic(err)
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		panic(err)
	}
	return &Schema{s, validator, cel.NewValidator(s, true, celconfig.PerCallLimit)}
}

// Detail returns the text of an error on one line, without its field.
func Detail(err *field.Error) string { return strings.ReplaceAll(err.ErrorBody(), "\n", " ") }
