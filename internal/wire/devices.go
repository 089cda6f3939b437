package wire

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/engine/feed"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/workload/devices"
	plan "github.com/berth-project/berth/internal/workload/plan/devices"
)

// deviceCounts connects the catalog of devices with the components that count by it.
type deviceCounts struct {
	catalog *devices.Catalog
	feed    *feed.Feed
	recount chan event.GenericEvent // of the follower
}

// newDeviceCounts adds the catalog of devices, which needs a feed before the manager starts; nil if no workload is affected by devices.
func newDeviceCounts(ctx context.Context, mgr ctrl.Manager, cfg *Config) (*deviceCounts, error) {
	rules := deviceRules(&cfg.Options)
	if rules.Inactive() {
		return nil, nil
	}
	d := &deviceCounts{recount: make(chan event.GenericEvent, recounts)}
	log := cfg.Log.WithName("devices")
	d.catalog = devices.New(rules, mgr.GetCache(), log, d.changed)
	cfg.reloader.Mappings = d.catalog.SetMappings
	if err := mgr.Add(d.catalog); err != nil || !rules.Integrated {
		return d, err
	}
	late := lookup.NewLatecomers(mgr, log)
	gvk := resourcev1.SchemeGroupVersion.WithKind("DeviceClass")
	kind := lookup.Late{Name: "devices", Served: func() (bool, error) { return lookup.IsServed(mgr.GetRESTMapper(), gvk) }}
	err := late.StartLate(ctx, kind, func(context.Context) error {
		d.catalog.Serve()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, late.Setup(ctx)
}

func deviceRules(o *options.Options) plan.Rules {
	return plan.Rules{
		Mappings:   o.Resources.DeviceClassMappings,
		Integrated: o.Gates.On(feature.KueueDRAIntegration), Reject: o.Gates.On(feature.KueueDRARejectWorkloadsWhenDRADisabled),
		Extended: o.Gates.On(feature.KueueDRAIntegrationExtendedResource),
	}
}

// recounts is how many templates wait for the follower, which begins late or never on a standby.
const recounts = 64

// changed converts waiting workloads again, and has their statuses follow.
func (d *deviceCounts) changed(ctx context.Context, changed plan.Changed) {
	d.feed.Recount(ctx, changed)
	d.requeue(changed)
}

// requeue tells the follower of each template, or of all if there are too many or other changes.
func (d *deviceCounts) requeue(changed plan.Changed) {
	if !changed.All && !changed.Claiming && len(changed.Templates) <= cap(d.recount)-len(d.recount) { // nothing else sends
		for of := range changed.Templates {
			d.recount <- event.GenericEvent{Object: &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}}}
		}
		return
	}
	for {
		select {
		case <-d.recount: // the next event stands for it as well
		default:
			d.recount <- event.GenericEvent{Object: &kueue.Workload{}}
			return
		}
	}
}

// count returns how the devices of workloads are counted, nil without.
func (d *deviceCounts) count() func(*kueue.Workload, []corev1.PodSpec) plan.Charges {
	if d == nil {
		return nil
	}
	return d.catalog.Count
}

// feedFrom connects the feed, which converts the workloads.
func (d *deviceCounts) feedFrom(f *feed.Feed) {
	if d != nil {
		d.feed, f.Settle = f, d.catalog.WaitUntilSettled
	}
}

// follow returns the events for the follower, nil without.
func (d *deviceCounts) follow() <-chan event.GenericEvent {
	if d == nil {
		return nil
	}
	return d.recount
}
