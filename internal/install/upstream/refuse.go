package upstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/install"
)

// Start is a start of Berth, or an installation.
type Start struct {
	// Groups are the controllers that are to run. The others may be another system's.
	Groups install.Groups
	// Waits is the Lease for which the manager waits before it decides anything: that it has another holder is no reason to refuse. Zero for a
	// manager without leader election, and for one that installs: its webhooks take the place of the holder's at once.
	Waits client.ObjectKey
	// Installs are the manifests that are to be applied, nil if none are.
	Installs *install.Options
	// Pod is the manager's own, by its namespace and host name: a Deployment of it is no other controller's, however it starts the program.
	// Zero for an installation from elsewhere.
	Pod client.ObjectKey
	Now time.Time
}

// Refuse returns an error, in one line, if another controller of the same APIs runs, or if one that is stopped has left webhooks that would
// refuse all writes after an installation. It names them, and the commands that stop or delete them. Objects that may not be read count as absent.
func (s *Start) Refuse(ctx context.Context, c client.Reader) error {
	groups := s.groups()
	var deployments []Deployment
	if s.Installs != nil || s.Groups.Has(install.Integrations) { // without job kinds the manager may not read them; the Leases remain
		var err error
		deployments, err = Deployments(ctx, c)
		if err := readable("Deployments", err); err != nil {
			return err
		}
	}
	for i := range deployments {
		d := &deployments[i]
		d.Berth = d.Berth || d.owns(s.Pod)
	}
	leases, err := Leases(ctx, c, s.Now)
	if err := readable("Leases", err); err != nil {
		return err
	}
	if found := slices.Concat(s.running(deployments, groups), s.holders(leases, deployments, groups)); len(found) > 0 {
		return fmt.Errorf("another controller of the same API runs, and Berth does not work beside it: %s", strings.Join(found, "; "))
	}
	return s.refuseWebhooks(ctx, c, deployments, groups)
}

// running returns the Deployments that run, with the commands that stop them.
func (s *Start) running(deployments []Deployment, groups []string) (found []string) {
	for i := range deployments {
		if d := &deployments[i]; d.isForeign(groups) {
			found = append(found, fmt.Sprintf("%s: %s%s", d, d.Stop(), leaveOut(d.Group)))
		}
	}
	return found
}

// isForeign reports whether a Deployment runs another controller of some API groups.
func (d *Deployment) isForeign(groups []string) bool {
	return !d.Berth && d.Runs() && slices.Contains(groups, d.Group)
}

// holders returns the Leases of controllers that no running Deployment shows.
func (s *Start) holders(leases []Lease, deployments []Deployment, groups []string) (found []string) {
	for i := range leases {
		l := &leases[i]
		here := slices.DeleteFunc(slices.Clone(deployments), func(d Deployment) bool { return d.Namespace != l.Namespace })
		shown := slices.ContainsFunc(here, func(d Deployment) bool { return d.Group == l.Group && d.isForeign(groups) })
		berths := len(here) > 0 && !slices.ContainsFunc(here, func(d Deployment) bool { return !d.Berth })
		if shown || berths || client.ObjectKeyFromObject(l.Lease) == s.Waits || !slices.Contains(groups, l.Group) {
			continue
		}
		ends := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
		found = append(found, fmt.Sprintf("%s, of %s: stop it; if it is stopped already, wait until %s%s",
			l, l.Holder(), ends.UTC().Format(time.TimeOnly+"Z"), leaveOut(l.Group)))
	}
	return found
}

// refuseWebhooks refuses an installation that would leave webhooks without a server.
func (s *Start) refuseWebhooks(ctx context.Context, c client.Reader, deployments []Deployment, groups []string) error {
	if s.Installs == nil {
		return nil
	}
	replaced, err := Replaced(*s.Installs)
	if err != nil {
		return err
	}
	all, err := Configurations(ctx, c, deployments, groups)
	if err := readable("webhook configurations", err); err != nil {
		return err
	}
	var found []string
	for i := range all {
		configuration := &all[i]
		if replaced[configuration.String()] {
			continue
		}
		refuses, err := configuration.refusesWrites(ctx, c)
		if err := readable("EndpointSlices", err); err != nil {
			return err
		}
		if refuses {
			found = append(found, configuration.Delete())
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("webhooks of a controller that is stopped would refuse writes: %s", strings.Join(found, "; "))
	}
	return nil
}

// Replaced returns the objects that an installation makes or replaces, as Kind/name.
func Replaced(o install.Options) (map[string]bool, error) {
	objects, err := install.Manifests(o)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, u := range objects {
		out[u.GetKind()+"/"+u.GetName()] = true
	}
	return out, nil
}

// groups returns the API groups whose objects Berth will act on.
func (s *Start) groups() (out []string) {
	shared := func(part install.Group) bool { return s.Groups.Has(part) && !belongs(part) }
	for i := range systems {
		part := systems[i].part
		if s.Groups.Has(part) || (part == "" && slices.ContainsFunc(install.AllGroups, shared)) {
			out = append(out, systems[i].group)
		}
	}
	return out
}

// belongs reports whether a part of Berth takes the place of one other system.
func belongs(part install.Group) bool {
	return slices.ContainsFunc(systems, func(s system) bool { return s.part == part })
}

// leaveOut returns the other way out: to leave the objects of an API group to the other controller.
func leaveOut(group string) string {
	if part := partOf(group); part != "" {
		return fmt.Sprintf(", or leave its objects to it with --controllers=-%s", part)
	}
	return ""
}

// readable passes errors on, except that something may not be read.
func readable(objects string, err error) error {
	if err == nil || apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("looking for other controllers: reading %s: %w", objects, err)
}
