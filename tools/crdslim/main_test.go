package main

import (
	"strings"
	"testing"
)

const manifest = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: ours
        properties:
          description:
            description: a property of that name
            type: string
          template:
            description: ours too
            properties:
              containers:
                description: theirs
                items:
                  properties:
                    description:
                      description: theirs
                      type: string
              nodeSelector:
                description: theirs
              tolerations:
                description: theirs
`

func TestSlim(t *testing.T) {
	out, err := slim([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	got := string(out)
	for _, keep := range []string{"description: ours\n", "description: ours too\n", "description: a property of that name\n"} {
		if !strings.Contains(got, keep) {
			t.Errorf("lost %q:\n%s", keep, got)
		}
	}
	if strings.Contains(got, "theirs") {
		t.Errorf("kept a description of an embedded type:\n%s", got)
	}
	if n := strings.Count(got, "description:\n"); n != 2 {
		t.Errorf("%d properties named description left, want 2:\n%s", n, got)
	}
	again, err := slim(out)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != got {
		t.Errorf("a second run changed:\n%s", again)
	}
}

func TestSlimRefusesOtherKinds(t *testing.T) {
	if _, err := slim([]byte("kind: ConfigMap\n")); err == nil || !strings.Contains(err.Error(), "ConfigMap") {
		t.Errorf("error %v does not name the kind", err)
	}
}
