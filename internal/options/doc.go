// Package options turns a configuration file and the feature gate flag into
// one plain value, Options, that the rest of the manager is built from.
//
// Loading has four steps, and a mistake in any of them stops the start:
//
//		text ──decode──► Configuration ──► feature.Gates ──defaults, check──► Options
//
//	  - package strict reads YAML: an unknown, repeated or mistyped field is
//	    an error with its line, its full path and the name that was likely meant.
//	  - gates.go resolves feature gates once, against the table of every name
//	    that upstream knows; nothing asks for a gate by name afterwards.
//	  - defaults.go writes the defaults of spec 70 §2.1 into the Configuration;
//	    validate*.go checks the rules of §3.3 and reports all that fail.
//	  - options.go resolves the result into values: parsed selectors, durations,
//	    numbers. There is no reload: a change needs a restart.
//
// What a file sets but this build does not act upon is listed by
// [Options.NotYet] and [Options.InertGates], so that nothing is ignored in
// silence.
package options
