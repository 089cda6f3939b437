package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

type checks struct{ *shared }

const configKind = "MultiKueueConfig"

// errConfig marks parameters that a user must correct.
var errConfig = errors.New("bad configuration")

func (m *shared) configOf(ctx context.Context, check *kueue.AdmissionCheck) (*kueue.MultiKueueConfig, error) {
	p := check.Spec.Parameters
	if p == nil || p.Name == "" || p.APIGroup != kueue.GroupVersion.Group || p.Kind != configKind {
		return nil, fmt.Errorf("%w: spec.parameters of AdmissionCheck %s must name a %s of %s", errConfig, check.Name, configKind, kueue.GroupVersion.Group)
	}
	var config kueue.MultiKueueConfig
	err := m.cache.Get(ctx, client.ObjectKey{Name: p.Name}, &config)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s %s does not exist", errConfig, configKind, p.Name)
	}
	return &config, err
}

// active decides the condition Active of a check.
func (c *checks) active(ctx context.Context, of *kueue.AdmissionCheck) (condition metav1.Condition, again time.Duration, err error) {
	if condition, err = c.condition(ctx, of); err == nil && c.warn(&condition) {
		again = namesEvery
	}
	return condition, again, err
}

// namesEvery is the interval of comparing names of external frameworks with the served kinds while they differ. No event announces a new
// CRD.
const namesEvery = 30 * time.Second

// warn adds wrong names of external frameworks to the message of a check, and returns whether there are any. The status stays: jobs of
// other kinds are dispatched.
func (c *checks) warn(condition *metav1.Condition) bool {
	if c.Misnamed == nil {
		return false
	}
	warnings := c.Misnamed()
	if len(warnings) > 0 {
		condition.Message = lifecycle.Cut(condition.Message+". Warning: "+strings.Join(warnings, "; "), lifecycle.MaxMessage)
	}
	return len(warnings) > 0
}

func (c *checks) condition(ctx context.Context, check *kueue.AdmissionCheck) (metav1.Condition, error) {
	out := metav1.Condition{Status: metav1.ConditionFalse}
	config, err := c.configOf(ctx, check)
	if errors.Is(err, errConfig) {
		out.Reason, out.Message = kueue.ReasonBadConfig, err.Error()
		return out, nil
	}
	if err != nil {
		return out, err
	}
	var missing, inactive []string
	for _, name := range config.Spec.Clusters {
		var cluster kueue.MultiKueueCluster
		err := c.cache.Get(ctx, client.ObjectKey{Name: name}, &cluster, client.UnsafeDisableDeepCopy)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			return out, err
		case !apimeta.IsStatusConditionTrue(cluster.Status.Conditions, kueue.MultiKueueClusterActive):
			inactive = append(inactive, name)
		}
	}
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, "missing clusters: "+strings.Join(missing, ", "))
	}
	if len(inactive) > 0 {
		parts = append(parts, "inactive clusters: "+strings.Join(inactive, ", "))
	}
	switch len(missing) + len(inactive) {
	case 0:
		out.Status, out.Reason, out.Message = metav1.ConditionTrue, kueue.ReasonActive, "The admission check is active"
	case len(config.Spec.Clusters):
		out.Reason, out.Message = kueue.ReasonNoUsableClusters, strings.Join(parts, "; ")
	default:
		out.Status, out.Reason, out.Message = metav1.ConditionTrue, kueue.ReasonSomeActiveClusters, strings.Join(parts, "; ")
	}
	return out, nil
}

func (m *shared) ofConfig(ctx context.Context, config client.Object) []ctrlreconcile.Request {
	return m.checksWhere(ctx, func(p *kueue.AdmissionCheckParametersReference) bool { return p.Name == config.GetName() })
}

func (c *checks) ofCluster(ctx context.Context, cluster client.Object) []ctrlreconcile.Request {
	named := c.configsNaming(ctx, cluster.GetName())
	return c.checksWhere(ctx, func(p *kueue.AdmissionCheckParametersReference) bool { return named[p.Name] })
}

func (m *shared) configsNaming(ctx context.Context, cluster string) map[string]bool {
	var list kueue.MultiKueueConfigList
	if err := m.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MultiKueueConfigs")
		return nil
	}
	out := map[string]bool{}
	for i := range list.Items {
		for _, name := range list.Items[i].Spec.Clusters {
			if name == cluster {
				out[list.Items[i].Name] = true
			}
		}
	}
	return out
}

func (m *shared) checksWhere(ctx context.Context, match func(*kueue.AdmissionCheckParametersReference) bool) []ctrlreconcile.Request {
	return check.Of(ctx, m.cache, kueue.MultiKueueControllerName, func(c *kueue.AdmissionCheck) bool {
		return c.Spec.Parameters != nil && match(c.Spec.Parameters)
	})
}
