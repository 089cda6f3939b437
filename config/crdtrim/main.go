// Command crdtrim finishes the CRDs that controller-gen generates from the types in api/.
//
// Below fields of Kubernetes' types it removes descriptions, which are two thirds of these files and can be read with `kubectl explain
// pod`, and transition rules, which hold for live objects but not for templates. It adapts the JobSet inside training runtimes: immutable
// fields stay so, with advice about runtimes, and replicas has no lower bound, since the webhook checks it (spec: 50 §2.4, §3.3). Pod specs of
// Workloads are atomic. The storage version comes first.
//
// Usage: crdtrim FILE... (rewritten in place; a second run changes nothing)
package main

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// ours is the prefix of the import paths whose descriptions stay.
const ours = "github.com/berth-project/berth/"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "crdtrim: name the CRD files to rewrite, such as config/crd/*.yaml")
		os.Exit(2)
	}
	for _, file := range os.Args[1:] {
		if err := rewrite(file); err != nil {
			fmt.Fprintf(os.Stderr, "crdtrim: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func rewrite(file string) error {
	in, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out, err := trim(in)
	if err != nil {
		return err
	}
	return os.WriteFile(file, out, 0o644) //nolint:gosec // a manifest in the source tree, readable like its neighbours
}

// types has the Go type of every kind with a CRD.
func types() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	groups := runtime.NewSchemeBuilder(kueue.AddToScheme, kueuev1beta1.AddToScheme, jobsetv1alpha2.AddToScheme, trainerv1alpha1.AddToScheme)
	return scheme, groups.AddToScheme(scheme)
}

// trim returns the manifest of a CRD without what crdtrim removes.
func trim(manifest []byte) ([]byte, error) {
	scheme, err := types()
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(manifest, &crd); err != nil {
		return nil, err
	}
	for _, version := range crd.Spec.Versions {
		kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		object, err := scheme.New(kind)
		if err != nil {
			return nil, fmt.Errorf("no Go type for %s: add its group to types in config/crdtrim, or remove the file if the kind is gone", kind)
		}
		root := version.Schema.OpenAPIV3Schema
		trimType(root, reflect.TypeOf(object))
		if kind.Group == trainerv1alpha1.GroupVersion.Group && kind.Kind != trainerv1alpha1.KindTrainJob {
			if err := fitRuntime(root); err != nil {
				return nil, err
			}
		}
		if kind.Group == kueue.GroupVersion.Group && kind.Kind == "Workload" {
			if err := makePodsAtomic(root); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(crd.Spec.Versions, storedFirst)
	return marshal(&crd)
}

// storedFirst moves the storage version before the older ones.
func storedFirst(a, b apiextensionsv1.CustomResourceDefinitionVersion) int {
	switch {
	case a.Storage == b.Storage:
		return 0
	case a.Storage:
		return -1
	}
	return 1
}

// marshal returns a CRD in the format of controller-gen.
func marshal(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	out, err := yaml.Marshal(object)
	return append([]byte("---\n"), out...), err
}

// trimType removes descriptions and rules below every field whose type is not ours. t is the Go type of s.
func trimType(s *apiextensionsv1.JSONSchemaProps, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		trimType(s, t.Elem())
	case reflect.Slice:
		if s.Items != nil {
			trimType(s.Items.Schema, t.Elem())
		}
	case reflect.Map:
		if s.AdditionalProperties != nil {
			trimType(s.AdditionalProperties.Schema, t.Elem())
		}
	case reflect.Struct:
		if !strings.HasPrefix(t.PkgPath(), ours) {
			below(s, func(d *apiextensionsv1.JSONSchemaProps) {
				d.Description = ""
				dropTransitions(d)
			})
			return
		}
		for field := range t.Fields() {
			trimField(s, field)
		}
	default: // a leaf
	}
}

func trimField(s *apiextensionsv1.JSONSchemaProps, field reflect.StructField) {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case options == "inline" && strings.HasPrefix(field.Type.PkgPath(), ours):
		trimType(s, field.Type)
	case name != "":
		if property, ok := s.Properties[name]; ok {
			trimType(&property, field.Type)
			s.Properties[name] = property
		}
	}
}

// fitRuntime adapts the schema of the JobSet inside a runtime.
func fitRuntime(runtimeSchema *apiextensionsv1.JSONSchemaProps) error {
	path := []string{"spec", "template", "spec"}
	if !at(runtimeSchema, path, func(jobSet *apiextensionsv1.JSONSchemaProps) { below(jobSet, adviseRuntime) }) {
		return fmt.Errorf("no field %s: tell crdtrim where the JobSet has moved", strings.Join(path, "."))
	}
	path = append(path, "replicatedJobs", "replicas")
	if !at(runtimeSchema, path, func(replicas *apiextensionsv1.JSONSchemaProps) { replicas.Minimum = nil }) {
		return fmt.Errorf("no field %s: tell crdtrim where it has moved", strings.Join(path, "."))
	}
	return nil
}

// makePodsAtomic gives the pod spec of a Workload one field manager as a whole. Otherwise the API server keeps the owner of each of its
// fields, in more bytes than the fields have, and compares them all for every write of the status.
func makePodsAtomic(workload *apiextensionsv1.JSONSchemaProps) error {
	path := []string{"spec", "podSets", "template", "spec"}
	if !at(workload, path, func(pod *apiextensionsv1.JSONSchemaProps) { pod.XMapType = new("atomic") }) {
		return fmt.Errorf("no field %s: tell crdtrim where the pod spec has moved", strings.Join(path, "."))
	}
	return nil
}

// adviseRuntime changes the messages of transition rules to advise a new runtime, not a new JobSet.
func adviseRuntime(s *apiextensionsv1.JSONSchemaProps) {
	for i := range s.XValidations {
		s.XValidations[i].Message = strings.Replace(s.XValidations[i].Message, "create a new JobSet", "create a new runtime", 1)
	}
}

// dropTransitions removes transition rules.
func dropTransitions(s *apiextensionsv1.JSONSchemaProps) {
	var kept apiextensionsv1.ValidationRules
	for _, rule := range s.XValidations {
		if !strings.Contains(rule.Rule, "oldSelf") {
			kept = append(kept, rule)
		}
	}
	s.XValidations = kept
}

// at calls f on the schema at the end of a path of properties, through lists. It reports whether there is one.
func at(s *apiextensionsv1.JSONSchemaProps, path []string, f func(*apiextensionsv1.JSONSchemaProps)) bool {
	if s.Items != nil {
		s = s.Items.Schema
	}
	if len(path) == 0 {
		f(s)
		return true
	}
	property, ok := s.Properties[path[0]]
	if !ok || !at(&property, path[1:], f) {
		return false
	}
	s.Properties[path[0]] = property
	return true
}

func below(s *apiextensionsv1.JSONSchemaProps, f func(*apiextensionsv1.JSONSchemaProps)) {
	for name, property := range s.Properties {
		f(&property)
		below(&property, f)
		s.Properties[name] = property
	}
	if s.Items != nil {
		f(s.Items.Schema)
		below(s.Items.Schema, f)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		f(s.AdditionalProperties.Schema)
		below(s.AdditionalProperties.Schema, f)
	}
}
