package main

import (
	"os"
	"strings"
	"testing"
)

// The linker ignores a variable that does not exist, and one that it does not set stays empty.
func TestBuildsSetVariables(t *testing.T) {
	for _, file := range []string{"Makefile", "Dockerfile"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"version", "commit", "date"} {
			if flag := "-X main." + name + "=$"; !strings.Contains(string(text), flag) {
				t.Errorf("%s: no build has %s", file, flag)
			}
			if argument := "ARG " + strings.ToUpper(name) + "="; file == "Dockerfile" && !strings.Contains(string(text), argument) {
				t.Errorf("%s: has no %s", file, argument)
			}
		}
	}
}
