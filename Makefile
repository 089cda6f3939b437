# Berth builds with Go and make alone. `make` says what there is.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
ARGS ?=

# One set of flags for everything, so that builds, tests and the linter share what is compiled once.
export GOFLAGS := -trimpath -buildvcs=false
export CGO_ENABLED := 0
export GOLANGCI_LINT_CACHE := $(CURDIR)/.cache/golangci-lint

# The version of Kubernetes in the control plane, which its programs report.
KUBERNETES := $(shell sed -n 's,^.*k8s.io/kubernetes v\([0-9.]*\)$$,\1,p' controlplane/go.mod)
KVERSION := k8s.io/component-base/version

# go build, with progress.
SLOWBUILD := GO='$(GO)' tools/slowbuild

TOOLS := $(CURDIR)/bin/tools
LINT := $(TOOLS)/golangci-lint
GENERATOR := $(TOOLS)/controller-gen
RENDER := $(TOOLS)/render

.DEFAULT_GOAL := help
.PHONY: help build berth controlplane check fmt fmt-check lint lint-controlplane laws generated tidy-check test test-main test-controlplane race test-browser pictures test-prometheus test-kuberay \
	demo demo-topology demo-autoscale generate packages tidy fuzz storm measure measure-burst measure-black-hole measure-clusters measure-copies measure-jobsets measure-preflight measure-takeover measure-trainjobs measure-upgrades measure-writes hostile load bench bench-core clean need-go need-cc

help: ## this list
	@echo 'Berth queues, admits, places and runs batch and AI jobs on Kubernetes. Start with: make demo'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'The first build compiles a whole Kubernetes control plane: about 6 minutes on 2 cores, seconds afterwards.'
	@echo 'Everything that is built goes to bin/; `make clean` removes it. Read CONTRIBUTING.md before the first change.'

build: berth controlplane ## bin/berth and bin/berth-controlplane

berth: need-go ## bin/berth alone (no control plane to try it on)
	@$(SLOWBUILD) . ./cmd/berth '$(CURDIR)/bin/berth' '2 minutes' -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)'

controlplane: need-go ## bin/berth-controlplane alone: etcd, Kubernetes and simulated nodes in one file
	@$(SLOWBUILD) controlplane ./cmd/berth-controlplane '$(CURDIR)/bin/berth-controlplane' '6 minutes' \
		-ldflags '-s -w -X $(KVERSION).gitVersion=v$(KUBERNETES) -X $(KVERSION).gitMajor=$(word 1,$(subst ., ,$(KUBERNETES))) -X $(KVERSION).gitMinor=$(word 2,$(subst ., ,$(KUBERNETES)))'

demo: build ## two teams share 32 GPUs on a real control plane, in a minute (ARGS='--keep' leaves it up)
	@bin/berth demo $(ARGS)

demo-topology: build ## gangs that need a rack each on 16 nodes in 4 racks, and a node that fails (ARGS='--keep' leaves it up)
	@bin/berth demo topology $(ARGS)

demo-autoscale: build ## jobs that wait for nodes of a cluster autoscaler, and nodes that come and go
	@bin/berth demo autoscale

check: fmt-check lint laws generated tidy-check ## all that needs no control plane: format, lint, laws, generated files, go.mod

test: test-main test-controlplane ## every test, on a real control plane where it matters (ARGS='-short' to skip the long ones)

# Packages that take longest come first. Those of test have up to six clusters each, and one that only waits takes 6 % of a core.
test-main: build $(RENDER)
	BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' GO='$(GO)' $(CURDIR)/tools/gotest -p 2 -timeout 25m $(ARGS) ./test/... ./internal/wire ./internal/... ./...

test-controlplane: controlplane
	cd controlplane && BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' GO='$(GO)' $(CURDIR)/tools/gotest -timeout 25m $(ARGS) ./...

# What is pure, and what has neither goroutines nor caches, is not tested for races. house_test.go checks that nothing else is left out.
RACELESS := /internal/(core|state|sim|options)(/|$$)|/internal/([a-z]+|job/kind/[a-z]+)/plan(/|$$)|/internal/job/kind/([b-qs-z]|ap)
# Of other packages these tests are skipped: worlds drawn by the hundred in one goroutine, lives that others resemble, and kinds of jobs
# that run the same code as others.
RACEWORLDS := ^Test(Schedules|ServicesUnderAnySchedule|UpgradeTakenBack|FastOnAnything|StoredObjectSurvivesV1beta1|V1beta1IsReadBack|ChangeInV1beta1Wins)$$
RACELIVES := ^TestElasticRayKilledAtAnyWrite$$|^Test(StatefulSets|LeaderWorkerSets)$$/^restarted_at_every_write$$
RACEKINDS := ^TestConformance$$/^(kubeflow|sparkoperator|tekton|trainer|workload)|^TestConformance$$/^ray\.io$$/^ray(cluster|service)$$
RACE := CGO_ENABLED=1 KUBE_CACHE_MUTATION_DETECTOR=true BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' GO='$(GO)' \
	$(CURDIR)/tools/gotest -race -p 3 -timeout 15m -skip '$(RACEWORLDS)|$(RACELIVES)|$(RACEKINDS)' $(ARGS)

race: build need-cc ## tests of controllers, caches and servers under the race detector; a write to a cached object ends them
	$(RACE) -short $$($(GO) list ./internal/... | grep -Ev '$(RACELESS)')
	$(RACE) -run '^(TestRun|TestWithTheJobController)$$' ./internal/wire ./internal/job/controller # what -short leaves out of those

test-browser: build ## the pages of the dashboard in a real browser: Chromium, installed if it is missing and this may
	@command -v chromium >/dev/null || { apt-get update && apt-get install -y --no-install-recommends chromium; } || { echo "error: install Chromium" >&2; exit 1; }
	BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' $(GO) test -count=1 $(ARGS) -run 'Page$$' ./internal/dash

pictures: build ## the tested pages of the dashboard as files, light and dark, in bin/pictures; needs Chromium
	BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' $(GO) test -count=1 $(ARGS) -run 'Page$$' ./internal/dash -pictures '$(CURDIR)/bin/pictures'

test-prometheus: need-go ## the dashboards of docs/grafana in a real Prometheus: Debian's, unpacked to bin/ if there is none
	@command -v prometheus >/dev/null || [ -x '$(TOOLS)/debian/usr/bin/prometheus' ] || { mkdir -p '$(TOOLS)/debian' && cd '$(TOOLS)/debian' && \
		apt-get download prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb; } || { echo "error: put prometheus on the PATH" >&2; exit 1; }
	PATH="$$PATH:$(TOOLS)/debian/usr/bin" $(GO) test -count=1 $(ARGS) -run InPrometheus ./internal/metrics/grafana

test-kuberay: build ## Berth beside the real operator of KubeRay, which is built first; some minutes
	@$(SLOWBUILD) tools/kuberay github.com/ray-project/kuberay/ray-operator '$(TOOLS)/kuberay' '4 minutes' -ldflags '-s -w'
	BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' KUBERAY='$(TOOLS)/kuberay' \
		KUBERAY_CRDS="$$(cd tools/kuberay && $(GO) list -m -f '{{.Dir}}' github.com/ray-project/kuberay/ray-operator)/config/crd/bases" \
		$(GO) test -count=1 -timeout 20m $(ARGS) ./test/kuberay

fuzz: ## every fuzz target for a while; ARGS='-fuzztime=10m' for longer
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' internal | xargs -n1 dirname | sort -u | while read -r dir; do \
		for target in $$(grep -ho '^func Fuzz[A-Za-z0-9]*' $$dir/*_test.go | sed 's/^func //'); do \
			echo "$$dir $$target"; $(GO) test ./$$dir -run '^$$' -fuzz "^$$target\$$" -fuzztime=30s $(ARGS); \
		done; \
	done

# The packages with properties over random worlds, but for those whose other tests need an API server.
WORLDS := grep -rlE --include='*_test.go' 'rapid\.(Make)?Check' internal | xargs -n1 dirname | sort -u | \
	grep -vE '/(dash|conversion|jobtest/kuberay|cli/demo|kind/all|job/webhook|jobset/controller)$$' | sed 's,^,./,'

# What make test samples runs whole with -long. One new seed decides all that is random; ARGS='-seed N' repeats a run. These are flags of the
# tests, so packages come before them: go test leaves everything after such a flag to the test.
STORM := -count 1 -timeout 2h -v -long -seed

storm: build ## every write of every life interrupted, on one cluster and on three, 60 lives with kills, 200 random schedules, 10,000 worlds for each property; hours
	@seed=$$(date +%s); export BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane'; set -ex; \
		$(GO) test $$($(WORLDS)) -count 1 -timeout 2h -rapid.checks 10000 -rapid.seed $$seed -rapid.nofailfile; \
		$(GO) test ./internal/job/kind/all ./internal/job/controller ./internal/jobset/controller ./internal/training/controller ./internal/workload/follow \
			$(STORM) $$seed $(ARGS); \
		$(GO) test ./test/compat -run 'Interrupted|Killed|Schedules|Failover|Restarts' $(STORM) $$seed $(ARGS); \
		$(GO) test ./test/multicluster -run '^TestFailures$$' $(STORM) $$seed $(ARGS); \
		$(GO) test ./test/e2e -run 'Crash' $(STORM) $$seed $(ARGS)

hostile: build ## one tenant attacks the manager for two minutes, while the jobs of another one have to start (ARGS='-lasts 10m -seed 7')
	BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' $(GO) test ./test/hostile -count 1 -v -timeout 60m -lasts 2m -bounds $(ARGS)

MEASURE := BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' GO='$(GO)' tools/measure

measure: build ## memory, processor time and API writes of a running manager, as name: value lines
	@$(MEASURE) ./test/e2e -run '^TestMeasure$$' -measure

measure-burst: build ## 5,000 suspended Jobs at once, room for 500, as name: value lines; five minutes
	@$(MEASURE) ./test/e2e -run '^TestMeasureBurst$$' -measure

measure-jobsets: build ## JobSets of 1,000 and 10,000 Jobs, as name: value lines; a quarter of an hour
	@$(MEASURE) ./test/e2e -run '^TestMeasureJobSets$$' -measure
	@FIGURES='/^BenchmarkIdleReconcile/ { split($$1, of, /[\/-]/); printf "jobset.idle_pass_%s_ms: %.3f\n", of[2], $$3 / 1e6 }' \
		$(MEASURE) ./internal/jobset/controller -run '^$$' -bench 'IdleReconcile'

measure-preflight: build ## berth preflight over 100,000 objects, as name: value lines; some minutes
	@$(MEASURE) ./test/takeover -run '^TestMeasurePreflight$$' -measure

measure-takeover: build ## Berth over 1,000 running and 10,000 waiting Jobs of another controller, as name: value lines; some minutes
	@$(MEASURE) ./test/takeover -run '^TestMeasureTakeover$$' -measure

measure-trainjobs: build ## 1,000 TrainJobs that a queue starts at once, as name: value lines; ten minutes
	@$(MEASURE) ./test/training -run '^TestMeasureTrainJobs$$' -measure

measure-clusters: build ## 1,000 Jobs (ARGS='-jobs 200') from one manager to two workers, as name: value lines; ten minutes
	@$(MEASURE) ./test/multicluster -run '^TestMeasure$$' -measure $(ARGS)

measure-black-hole: build ## how long Jobs take to three workers while one of them never answers (ARGS='-dispatches 50 -rounds 1'); five minutes
	@$(MEASURE) ./test/multicluster -run '^TestMeasureBlackHole$$' -measure $(ARGS)

measure-copies: build ## memory of a manager with 5,000 copies on two workers (ARGS='-objects 500'); ten minutes
	@$(MEASURE) ./test/multicluster -run '^TestMeasureMemory$$' -measure $(ARGS)

measure-upgrades: build ## how soon after its admission the second cluster of a RayService starts, as name: value lines; a minute
	@FIGURES='/^BenchmarkGateOpens/ { for (i = 5; i < NF; i += 2) { split($$(i + 1), of, "/"); printf "rayservice.gate_%s_ms: %s\n", of[2], $$i } }' \
		$(MEASURE) ./internal/job/jobtest/kuberay -run '^$$' -bench GateOpens -benchtime 20x

load: build ## a manager under load, with SHAPE=one-cohort|five-cohorts|thousand-queues|deep|topology|gangs (ARGS='-scale 0.1 -draw FILE.svg', -help for more)
	@BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' $(GO) run ./test/load -shape '$(or $(SHAPE),one-cohort)' $(ARGS)

measure-writes: build ## what a write of a Workload costs the API server by verb, CRD, size and watches, in ms of CPU (ARGS='-variant both -cpuprofile DIR/p'); five minutes
	@BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' $(GO) run ./test/load -writes 600 $(ARGS)

bench: need-go ## benchmarks of the engine
	$(GO) test -run '^$$' -bench . -benchmem $(ARGS) ./internal/...

bench-core: need-go ## the figures of the engine as name: value lines, in a minute (ARGS='-only steady,burst' for some)
	@$(GO) run ./test/bench $(ARGS)

packages: berth $(RENDER) ## the chart and the kustomize bases against what berth install does
	BERTH_CONTROLPLANE='$(CURDIR)/bin/berth-controlplane' $(GO) test -count=1 ./test/install

generate: $(GENERATOR) ## deep copies, CRDs, RBAC rules and packages, after a change in api/ or of a +kubebuilder marker
	@GO='$(GO)' tools/generate . '$(TOOLS)'
	@$(GO) test -count=1 -run '^TestReference$$' ./internal/cli ./internal/metrics/... ./internal/options/feature -rewrite >/dev/null # docs/*.md, docs/grafana

fmt: $(LINT) ## format the code
	$(LINT) fmt ./...

tidy: need-go ## go mod tidy in every module
	$(GO) mod tidy
	cd controlplane && $(GO) mod tidy
	cd tools && $(GO) mod tidy
	cd tools/lint && $(GO) mod tidy
	cd tools/kuberay && $(GO) mod tidy
	cd tools/render && $(GO) mod tidy

fmt-check: $(LINT)
	@echo 'check: format'
	@$(LINT) fmt --diff ./... || { echo 'error: not formatted: run `make fmt`' >&2; exit 1; }

lint: $(LINT) ## the linter alone
	@echo 'check: lint'
	@$(LINT) config verify
	@$(LINT) run ./...

lint-controlplane: $(LINT) controlplane ## the linter over controlplane/, which needs it compiled
	@cd controlplane && $(LINT) run -c ../.golangci.yml ./...

laws: need-go ## the laws of the house alone (house_test.go)
	@echo 'check: laws'
	@$(GO) test -count=1 .

generated: $(GENERATOR)
	@echo 'check: generated files'
	@GO='$(GO)' tools/verify-generated '$(TOOLS)'
	@$(GO) test -count=1 -run '^TestReference$$' ./internal/cli ./internal/metrics/... ./internal/options/feature

tidy-check: need-go
	@echo 'check: go.mod'
	@$(GO) mod tidy -diff >/dev/null || { echo 'error: go.mod or go.sum is not tidy: run `make tidy`' >&2; exit 1; }
	@cd controlplane && $(GO) mod tidy -diff >/dev/null || { echo 'error: controlplane/go.mod or go.sum is not tidy: run `make tidy`' >&2; exit 1; }

$(LINT): tools/lint/go.mod | need-go
	@$(SLOWBUILD) tools/lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint '$@' '2 minutes' -ldflags '-s -w'
	@touch '$@' # go build leaves a binary alone that has not changed

$(GENERATOR): tools/go.mod | need-go
	@$(SLOWBUILD) tools sigs.k8s.io/controller-tools/cmd/controller-gen '$@' 'a minute' -ldflags '-s -w'
	@touch '$@'

$(RENDER): tools/render/go.mod tools/render/main.go | need-go
	@$(SLOWBUILD) tools/render . '$@' '2 minutes' -ldflags '-s -w'
	@touch '$@'

need-cc: need-go
	@command -v "$$($(GO) env CC)" >/dev/null || { echo "error: the race detector needs a C compiler, and $$($(GO) env CC) is not on the PATH: install gcc (apt-get install gcc libc6-dev), or set CC" >&2; exit 1; }

need-go:
	@command -v $(GO) >/dev/null || { echo 'error: $(GO) is not on the PATH: install Go 1.26 or newer, https://go.dev/dl' >&2; exit 1; }

clean: ## remove all that was built here (Go's own caches stay)
	rm -rf bin .cache
