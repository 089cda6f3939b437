package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/cli/local"
)

const downHelp = `Stops what "berth up" started in the directory. The data stays, and the next "berth up" uses it again, unless --purge is given.

  berth down
  berth down --dir /tmp/big --purge`

// stopLimit is how long an `up` may take to stop before it is killed.
const stopLimit = 45 * time.Second

func newDown() *cobra.Command {
	var given string
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "stop what berth up started",
		Long:  downHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := expand(given)
			if err != nil {
				return err
			}
			return down(cmd, dir, purge)
		},
	}
	dirFlag(cmd.Flags(), &given)
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove the data, certificates and logs")
	return cmd
}

func down(cmd *cobra.Command, dir string, purge bool) error {
	out := cmd.OutOrStdout()
	ran, err := local.Stop(cmd.Context(), dir, stopLimit, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if ran {
		fmt.Fprintf(out, "stopped what ran in %s\n", dir)
	} else {
		fmt.Fprintf(out, "nothing runs in %s\n", dir)
	}
	if !purge {
		return nil
	}
	removed, err := local.Purge(dir)
	if err != nil {
		return err
	}
	if removed {
		fmt.Fprintf(out, "removed %s\n", dir)
	} else {
		fmt.Fprintf(out, "there is no %s to remove\n", dir)
	}
	return nil
}
