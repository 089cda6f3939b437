package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/importer"
	"github.com/berth-project/berth/internal/cli/importer/mapping"
	"github.com/berth-project/berth/internal/metrics"
)

const importHelp = `Takes pods that run already into queues, before the manager is told to queue pods. Each gets a Workload that is admitted as it is, whatever
quota is free; new Workloads wait until the usage is below the quota again. Nothing is stopped, and no manager needs to run.

All pods are checked first, and nothing is changed as long as one of them cannot be imported. A run that broke off is repeated: what is there
already is left alone. By default that check is all that is done:

  berth import -n team-a,team-b --queuelabel=app --queuemapping=train=batch,serve=online
  berth import -n team-a,team-b --queuelabel=app --queuemapping=train=batch,serve=online --dry-run=false

Or with rules, of which the first that matches a pod counts; one without match takes every pod:

  - match: {priorityClassName: low, labels: {app: train}}
    toLocalQueue: batch
  - match: {labels: {app: monitor}}
    skip: true

  berth import -n team-a --queuemapping-file=rules.yaml`

// imports is the command line of berth import.
type imports struct {
	kubeconfig  string
	label, file string
	queues      map[string]string
	qps         float32
	burst       int
	of          importer.Import
}

func newImport(build metrics.Build) *cobra.Command {
	m := &imports{}
	cmd := &cobra.Command{
		Use: "import", Short: "take pods that run already into queues", Long: importHelp,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.run(cmd, build) },
	}
	m.addFlags(cmd.Flags())
	return cmd
}

func (m *imports) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&m.of.Namespaces, "namespace", "n", nil, "the namespaces whose pods are imported; required")
	flags.StringVar(&m.label, "queuelabel", "", "the label of the pods that --queuemapping maps")
	flags.StringToStringVar(&m.queues, "queuemapping", nil, "the LocalQueue for each value of the label, as in value=queue,other=queue2")
	flags.StringVar(&m.file, "queuemapping-file", "", "file with rules, in the place of --queuelabel and --queuemapping")
	flags.StringToStringVar(&m.of.AddLabels, "add-labels", nil, "labels that the pods and their Workloads get, as in key=value,other=value2")
	flags.StringSliceVar(&m.of.ExcludePrefixes, "exclude-resource-prefixes", nil, "resources whose names begin so need no quota, as the manager's resources.excludeResourcePrefixes")
	flags.Float32Var(&m.qps, "qps", 50, "requests to the API server in a second")
	flags.IntVar(&m.burst, "burst", 50, "requests to the API server at once")
	flags.IntVarP(&m.of.Workers, "concurrent-workers", "c", 8, "pods that are imported at a time")
	flags.BoolVar(&m.of.DryRun, "dry-run", true, "only check, and change nothing")
	flags.CountVarP(&m.of.Verbosity, "verbose", "v", "tell of every pod that is imported; twice, of the others as well")
	kubeconfigFlag(flags, &m.kubeconfig)
}

func (m *imports) run(cmd *cobra.Command, build metrics.Build) error {
	if err := m.check(cmd.Flags()); err != nil {
		return err
	}
	cfg, err := connect(cmd.Context(), m.kubeconfig, build)
	if err != nil {
		return err
	}
	// One limiter for all kinds: without it each kind has its own.
	cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(m.qps, m.burst)
	if m.of.Client, err = client.New(cfg, client.Options{Scheme: cluster.Scheme}); err != nil {
		return fmt.Errorf("the API server %s: %w", cfg.Host, err)
	}
	m.of.Now = func() metav1.Time { return metav1.NewTime(time.Now()) }
	m.of.Out, m.of.Errs = cmd.OutOrStdout(), cmd.ErrOrStderr()
	return m.of.Run(cmd.Context())
}

// check reads the flags. spec: 70 §4.11.
func (m *imports) check(flags *pflag.FlagSet) (err error) {
	if len(m.of.Namespaces) == 0 {
		return cluster.Usage("--namespace: is missing: name the namespaces whose pods are imported")
	}
	for _, name := range m.of.Namespaces {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return cluster.Usage("--namespace %q: is no name of a namespace: %s", name, wrong[0])
		}
	}
	slices.Sort(m.of.Namespaces)
	m.of.Namespaces = slices.Compact(m.of.Namespaces)
	if m.of.Rules, err = m.rules(flags.Changed("queuemapping")); err != nil {
		return err
	}
	if err := checkAddLabels(m.of.AddLabels); err != nil {
		return err
	}
	if slices.Contains(m.of.ExcludePrefixes, "") {
		return cluster.Usage("--exclude-resource-prefixes: an empty prefix would exclude every resource")
	}
	switch {
	case m.qps <= 0:
		return cluster.Usage("--qps %g: must be more than 0", m.qps)
	case m.burst < 1:
		return cluster.Usage("--burst %d: must be at least 1", m.burst)
	case m.of.Workers < 1:
		return cluster.Usage("--concurrent-workers %d: must be at least 1", m.of.Workers)
	}
	return nil
}

// rules returns the rules of the flags that map pods to LocalQueues; mapped: --queuemapping is set.
func (m *imports) rules(mapped bool) (*mapping.Rules, error) {
	switch {
	case m.label != "" && m.file != "":
		return nil, cluster.Usage("--queuelabel and --queuemapping-file: give one of the two")
	case m.file != "" && mapped:
		return nil, cluster.Usage("--queuemapping and --queuemapping-file: give one of the two")
	case m.file != "":
		return mapping.Read(m.file)
	case m.label != "":
		r, err := mapping.FromLabel(m.label, m.queues)
		if err != nil {
			return nil, cluster.Usage("%w", err)
		}
		return r, nil
	case mapped:
		return nil, cluster.Usage("--queuemapping: needs --queuelabel, the label whose values it maps")
	}
	return nil, cluster.Usage("--queuelabel or --queuemapping-file: is missing: say which pods go into which LocalQueue")
}

// ownLabels are the labels that an import sets.
var ownLabels = []string{kueue.QueueNameLabel, kueue.ManagedLabel, kueue.JobUIDLabel}

func checkAddLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return cluster.Usage("--add-labels %s=%s: %q is no key of a label: %s", key, value, key, wrong[0])
		}
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			return cluster.Usage("--add-labels %s=%s: %q is no value of a label: %s", key, value, value, wrong[0])
		}
		if slices.Contains(ownLabels, key) {
			return cluster.Usage("--add-labels %s=%s: the import sets this label itself", key, value)
		}
	}
	return nil
}
