// Package options resolves a configuration file and the feature gate flag into one plain value, Options.
//
// Loading has four steps, and a mistake in any of them prevents the start:
//
//		text ──decode──► Configuration ──► feature.Gates ──defaults, check──► Options
//
//	  - package strict reads YAML: an unknown, repeated or mistyped field is an error with its line, its full path and the nearest known name.
//	  - package feature resolves feature gates once, from the table of all upstream names.
//	  - defaults.go writes the defaults of spec 70 §2.1 into the Configuration; validate*.go checks the rules of §3.3 and reports all faults.
//	  - options.go resolves the result into values: parsed selectors, durations, numbers. [Changes] lists what a later file changes.
//
// [Options.InertGates] lists the feature gates that are accepted and change nothing.
package options
