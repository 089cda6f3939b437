package upstream

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

const (
	kueueLease  = "c1f6bfd2.kueue.x-k8s.io"
	jobSetLease = "6d4f6a47.jobset.x-k8s.io"
)

var now = time.Date(2026, time.November, 27, 12, 0, 0, 0, time.UTC)

// leaseOf is a Lease of 15 seconds.
func leaseOf(namespace, name, holder string, renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(now.Add(-renewed))),
		},
	}
}

func berths(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Labels = map[string]string{LeaderLabel: "true"}
	return l
}

func deploymentOf(namespace, name string, replicas int32, args ...string) *appsv1.Deployment {
	app := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "manager", Image: "registry.example.com/kueue:v0.14", Args: args,
			}}}},
		},
	}
}

// ready is a Deployment with ready pods, as its status says.
func ready(d *appsv1.Deployment) *appsv1.Deployment {
	d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1}
	return d
}

func hooksOf(name, namespace, service, group string, policy admissionv1.FailurePolicyType) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "queue.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone), FailurePolicy: &policy,
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace, Name: service}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Delete},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"gadgets"}},
			}},
		}},
	}
}

func endpointsOf(namespace, service string, ready bool) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
}

// TestRefuse: Berth does not start beside another controller of the APIs that it is to serve, and says which and how to stop it.
func TestRefuse(t *testing.T) {
	c, err := client.New(embeddedtest.Config(t), client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"kueue-system", "jobset-system", "berth-system"} {
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	const (
		stop      = "kubectl scale -n kueue-system deployment/kueue-controller-manager --replicas=0"
		deletes   = "kubectl delete validatingwebhookconfiguration release-kueue"
		ownLease  = "berth-system/" + kueueLease
		manager   = "manager"
		installs  = "installs"
		noJobSets = "-jobset"
	)
	ignored, failing := admissionv1.Ignore, admissionv1.Fail
	for name, tc := range map[string]struct {
		objects []client.Object
		groups  string
		how     string // "", installs, or the Lease for which the manager waits
		want    []string
	}{
		"nothing runs":                {nil, "", installs, nil},
		"a Deployment":                {[]client.Object{ready(deploymentOf("kueue-system", "kueue-controller-manager", 1))}, "", "", []string{stop}},
		"a release of Helm":           {[]client.Object{ready(deploymentOf("kueue-system", "a-jobset-controller-manager", 1))}, "", "", []string{"deployment/a-jobset-controller-manager", "--controllers=-jobset"}},
		"an unrelated Deployment":     {[]client.Object{ready(deploymentOf("kueue-system", "other", 1))}, "", "", nil},
		"a Deployment without pods":   {[]client.Object{deploymentOf("kueue-system", "kueue-controller-manager", 1)}, "", installs, nil},
		"the Deployment of its pod":   {[]client.Object{ready(deploymentOf("berth-system", "own-kueue-controller-manager", 1))}, "", installs, nil},
		"of that name elsewhere":      {[]client.Object{ready(deploymentOf("kueue-system", "own-kueue-controller-manager", 1))}, "", "", []string{"deployment/own-kueue-controller-manager"}},
		"a stopped Deployment":        {[]client.Object{deploymentOf("kueue-system", "kueue-controller-manager", 0)}, "", "", nil},
		"Berth's own Deployment":      {[]client.Object{ready(deploymentOf("berth-system", "kueue-controller-manager", 1, manager))}, "", installs, nil},
		"it has another's objects":    {[]client.Object{ready(deploymentOf("jobset-system", "jobset-controller-manager", 1))}, noJobSets, "", nil},
		"a Lease":                     {[]client.Object{leaseOf("kueue-system", kueueLease, "kueue-0_1", 5*time.Second)}, "", "", []string{"Lease/kueue-system/" + kueueLease + ", of kueue-0_1: stop it; if it is stopped already, wait until 12:00:10Z"}},
		"a manager without the right": {[]client.Object{ready(deploymentOf("kueue-system", "kueue-controller-manager", 1))}, "queues", "", nil},
		"an installation of queues":   {[]client.Object{ready(deploymentOf("kueue-system", "kueue-controller-manager", 1))}, "queues", installs, []string{stop}},
		"the Deployment of a Lease": {
			[]client.Object{leaseOf("kueue-system", kueueLease, "kueue-0_1", time.Second), ready(deploymentOf("kueue-system", "kueue-controller-manager", 1))},
			"", "",
			[]string{stop},
		},
		"a Lease of a stopped Deployment": {
			[]client.Object{leaseOf("kueue-system", kueueLease, "kueue-0_1", time.Second), deploymentOf("kueue-system", "kueue-controller-manager", 0)},
			"", "",
			[]string{"Lease/kueue-system/"},
		},
		"an old Lease":              {[]client.Object{leaseOf("kueue-system", kueueLease, "kueue-0_1", 15*time.Second)}, "", "", nil},
		"a Lease that was released": {[]client.Object{leaseOf("kueue-system", kueueLease, "", time.Second)}, "", "", nil},
		"a Lease of JobSets":        {[]client.Object{leaseOf("jobset-system", jobSetLease, "js_1", time.Second)}, "", "", []string{"Lease/jobset-system/", "--controllers=-jobset"}},
		"JobSets are left to it":    {[]client.Object{leaseOf("jobset-system", jobSetLease, "js_1", time.Second)}, noJobSets, "", nil},
		"Berth holds JobSets'":      {[]client.Object{leaseOf("jobset-system", jobSetLease, "berth/berth-system", time.Second)}, "", installs, nil},
		"Berth's leader":            {[]client.Object{berths(leaseOf("berth-system", kueueLease, "berth-0_1", time.Second))}, "", installs, nil},
		"Berth's leader of an older release": {
			[]client.Object{leaseOf("berth-system", kueueLease, "b_1", time.Second), ready(deploymentOf("berth-system", "kueue-controller-manager", 1, manager))},
			"", installs, nil,
		},
		"the Lease for which it waits":     {[]client.Object{leaseOf("berth-system", kueueLease, "kueue-0_1", time.Second)}, "", ownLease, nil},
		"its Lease, and it would install":  {[]client.Object{leaseOf("berth-system", kueueLease, "kueue-0_1", time.Second)}, "", installs, []string{"Lease/berth-system/"}},
		"dead webhooks":                    {[]client.Object{hooksOf("release-kueue", "kueue-system", "webhook", "kueue.x-k8s.io", failing)}, "", installs, []string{deletes}},
		"dead webhooks, nothing installed": {[]client.Object{hooksOf("release-kueue", "kueue-system", "webhook", "kueue.x-k8s.io", failing)}, "", "", nil},
		"dead webhooks that are ignored":   {[]client.Object{hooksOf("release-kueue", "kueue-system", "webhook", "kueue.x-k8s.io", ignored)}, "", installs, nil},
		"dead webhooks of unready pods": {
			[]client.Object{hooksOf("release-kueue", "kueue-system", "webhook", "kueue.x-k8s.io", failing), endpointsOf("kueue-system", "webhook", false)},
			"", installs,
			[]string{deletes},
		},
		"webhooks that answer": { // a policy engine
			[]client.Object{hooksOf("policies", "kueue-system", "webhook", "kueue.x-k8s.io", failing), endpointsOf("kueue-system", "webhook", true)},
			"", installs, nil,
		},
		"dead webhooks beside a stopped controller": {
			[]client.Object{hooksOf("release-kueue", "kueue-system", "webhook", "batch", failing), deploymentOf("kueue-system", "kueue-controller-manager", 0)},
			"", installs,
			[]string{deletes},
		},
		"dead webhooks of others":     {[]client.Object{hooksOf("other", "kueue-system", "webhook", "example.com", failing)}, "", installs, nil},
		"webhooks that are replaced":  {[]client.Object{hooksOf("kueue-validating-webhook-configuration", "kueue-system", "webhook", "kueue.x-k8s.io", failing)}, "", installs, nil},
		"webhooks left with JobSets":  {[]client.Object{hooksOf("js", "jobset-system", "webhook", "jobset.x-k8s.io", failing)}, noJobSets, installs, nil},
		"dead webhooks about JobSets": {[]client.Object{hooksOf("js", "jobset-system", "webhook", "jobset.x-k8s.io", failing)}, "", installs, []string{"validatingwebhookconfiguration js"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range tc.objects {
				status := statusOf(o)
				if err := c.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				if d, is := o.(*appsv1.Deployment); is {
					d.Status = status
					if err := c.Status().Update(t.Context(), d); err != nil {
						t.Fatal(err)
					}
				}
				defer func() {
					if err := c.Delete(t.Context(), o); err != nil {
						t.Error(err)
					}
				}()
			}
			groups, err := install.ParseGroups(tc.groups)
			if err != nil {
				t.Fatal(err)
			}
			s := Start{Groups: groups, Pod: client.ObjectKey{Namespace: "berth-system", Name: "own-kueue-controller-manager-5d8f-x2x"}, Now: now}
			if namespace, lease, waits := strings.Cut(tc.how, "/"); waits {
				s.Waits = client.ObjectKey{Namespace: namespace, Name: lease}
			} else if tc.how == installs {
				s.Installs = &install.Options{Options: options.Default(), Groups: groups}
			}
			if err := said(s.Refuse(t.Context(), c), tc.want); err != nil {
				t.Error(err)
			}
		})
	}
}

// statusOf returns the status of a Deployment, which a creation drops.
func statusOf(o client.Object) (status appsv1.DeploymentStatus) {
	if d, is := o.(*appsv1.Deployment); is {
		status = d.Status
	}
	return status
}

// said demands no error, or one line with some words and nothing else that is named.
func said(err error, want []string) error {
	if len(want) == 0 || err == nil {
		if (err == nil) != (len(want) == 0) {
			return fmt.Errorf("want %q, refused with %w", want, err)
		}
		return nil
	}
	text := err.Error()
	for _, words := range want {
		if !strings.Contains(text, words) {
			return fmt.Errorf("refused with %q, which does not say %q", text, words)
		}
	}
	if strings.Contains(text, "\n") || strings.Contains(text, "; kubectl") || strings.Count(text, "kubectl")+strings.Count(text, "Lease/") != 1 {
		return fmt.Errorf("refused with %q, which names more than one thing, or has more than one line", text)
	}
	return nil
}
