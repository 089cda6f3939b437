package options_test

import _ "github.com/berth-project/berth/internal/job/kind/all" // the catalogue of frameworks
