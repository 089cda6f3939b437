package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/multikueue"
	"github.com/berth-project/berth/internal/options"
)

const rbacHelp = `Prints the ClusterRole that a configuration needs for many clusters: of the manager's own account, or of the credential that it has for a
worker. Nothing is asked of a cluster.

  berth multikueue rbac --role=worker --config=config.yaml > role.yaml`

const checkFrameworkHelp = `Tries an external framework of a configuration on a job: prints the copy that would be created on a worker and, with --remote, what would be
written to the copy and to the job. It fails with the code and the text that the check of a Workload would show. A configuration that does not
compile is refused with the paths of its mistakes, as by the manager. Nothing is asked of a cluster.

  berth multikueue check-framework --config=config.yaml --object=run.yaml --cluster=w1`

func newMultiKueue() *cobra.Command {
	parent := &cobra.Command{
		Use: "multikueue", Short: "prepare many clusters: roles, external frameworks",
		Long: "What to know before a manager sends jobs to other clusters.\n\n  berth multikueue rbac --role=worker --config=config.yaml",
	}
	parent.AddCommand(newRBAC(), newCheckFramework())
	return parent
}

func newRBAC() *cobra.Command {
	var role, gates string
	var config []string
	cmd := &cobra.Command{
		Use: "rbac", Short: "the roles that a configuration needs on the manager and on workers", Long: rbacHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if role != multikueue.Manager && role != multikueue.Worker {
				return cluster.Usage("--role %q: must be %s or %s", role, multikueue.Manager, multikueue.Worker)
			}
			o, err := options.LoadWithGates(config, gates)
			if err != nil {
				return err
			}
			return multikueue.PrintRules(cmd.OutOrStdout(), &o, role)
		},
	}
	cmd.Flags().StringVar(&role, "role", multikueue.Worker, "whose: manager or worker")
	addConfig(cmd.Flags(), &config, &gates)
	return cmd
}

func newCheckFramework() *cobra.Command {
	var check multikueue.Check
	var config []string
	var gates, object, remote, workload string
	cmd := &cobra.Command{
		Use: "check-framework", Short: "what an external framework makes of a job", Long: checkFrameworkHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if object == "" {
				return cluster.Usage("--object: name the file of a job")
			}
			o, err := options.LoadWithGates(config, gates)
			if err != nil {
				return err
			}
			for _, f := range []struct {
				name string
				into *[]byte
			}{{object, &check.Object}, {remote, &check.Remote}, {workload, &check.Workload}} {
				if f.name == "" {
					continue
				}
				if *f.into, err = os.ReadFile(f.name); err != nil {
					return err
				}
			}
			return check.Run(cmd.OutOrStdout(), &o)
		},
	}
	addConfig(cmd.Flags(), &config, &gates)
	cmd.Flags().StringVar(&object, "object", "", "file with the job on the manager, in YAML")
	cmd.Flags().StringVar(&remote, "remote", "", "file with its copy on the worker, in YAML")
	cmd.Flags().StringVar(&workload, "workload", "", "file with its Workload, in YAML (default one with the name of the job)")
	cmd.Flags().StringVar(&check.Cluster, "cluster", "worker", "name of the worker")
	return cmd
}

func addConfig(flags *pflag.FlagSet, config *[]string, gates *string) {
	flags.StringArrayVar(config, "config", nil,
		"configuration `FILE` of the manager (config.kueue.x-k8s.io); may be repeated for documents of JobSet's and the Trainer's kinds")
	flags.StringVar(gates, "feature-gates", "", "feature gates of the manager, such as A=true,B=false")
}
