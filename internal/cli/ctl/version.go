package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const versionHelp = `Prints the version of this program and, where the manager runs in the cluster, the image of the manager.

  berth version
  berth version --client`

// managerLabels select the manager's Deployment in any namespace and under any name. spec: 70 §4.14, §6 #17.
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}

const managerContainer = "manager"

// managerHomes are the default places, for users that may not list all namespaces.
var managerHomes = []client.ObjectKey{
	{Namespace: "kueue-system", Name: "kueue-controller-manager"}, {Namespace: "berth-system", Name: "kueue-controller-manager"},
}

func (t *tool) newVersion() *cobra.Command {
	var own bool
	cmd := &cobra.Command{
		Use: "version", Short: "print the version", Long: versionHelp, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(cmd.OutOrStdout(), "Client Version: %s\n", t.version)
			if own {
				return nil
			}
			s, err := t.open(cmd)
			if err != nil {
				return nil // without an API server only the version of this program is known
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
			defer cancel()
			images, err := s.managers(ctx)
			if err != nil {
				fmt.Fprintf(s.Errs, "the manager's image is not known: %v\n", s.Advise(cmd.Context(), err))
			}
			for _, image := range images {
				fmt.Fprintf(s.Out, "Kueue Controller Manager Image: %s\n", image)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&own, "client", false, "print the version of this program only, and ask no API server")
	return cmd
}

// managers returns the images of the managers in the cluster.
func (s *session) managers(ctx context.Context) ([]string, error) {
	var list appsv1.DeploymentList
	err := s.List(ctx, &list, managerLabels)
	if err != nil {
		for _, home := range managerHomes {
			var one appsv1.Deployment
			if s.Get(ctx, home, &one) == nil {
				list.Items = append(list.Items, one)
			}
		}
		if len(list.Items) == 0 {
			return nil, err
		}
	}
	var out []string
	for i := range list.Items {
		for _, c := range list.Items[i].Spec.Template.Spec.Containers {
			if c.Name == managerContainer && !slices.Contains(out, c.Image) {
				out = append(out, c.Image)
			}
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out, nil
}
