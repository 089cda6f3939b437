package controller_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/multikueue/controller"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/reconcile"
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// server is a bare API server with the CRDs of the queueing API.
type server struct {
	client.Client
	t    *testing.T
	path string
	wrap transport.WrapperFunc // of the manager's requests; may be nil
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, path: embeddedtest.Start(t)}
	var err error
	s.Client, err = client.New(embeddedtest.ConfigOf(t, s.path), client.Options{Scheme: newScheme()})
	s.must(err)
	for _, name := range []string{"workloads", "admissionchecks", "multikueueclusters", "multikueueconfigs", "clusterqueues", "localqueues"} {
		raw, err := config.FS.ReadFile(path.Join("crd", "kueue.x-k8s.io_"+name+".yaml"))
		s.must(err)
		var crd apiextensionsv1.CustomResourceDefinition
		s.must(yaml.Unmarshal(raw, &crd))
		crd.Spec.Conversion = nil // no conversion webhook runs here
		s.must(s.Create(t.Context(), &crd))
	}
	wait.Until(s.t, "the CRDs are served", func() error {
		for _, list := range []client.ObjectList{&kueue.WorkloadList{}, &kueue.AdmissionCheckList{}, &kueue.MultiKueueClusterList{}, &kueue.MultiKueueConfigList{}, &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}} {
			if err := s.List(t.Context(), list); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// kubeconfig returns one without references to files.
func (s *server) kubeconfig() []byte {
	s.t.Helper()
	file, err := clientcmd.LoadFromFile(s.path)
	s.must(err)
	s.must(clientcmdapi.FlattenConfig(file))
	text, err := clientcmd.Write(*file)
	s.must(err)
	return text
}

// manage runs the controllers until the test ends, with Jobs and a kind that is not served.
func (s *server) manage(changes ...func(*controller.Options)) {
	s.t.Helper()
	cfg := rest.CopyConfig(embeddedtest.ConfigOf(s.t, s.path))
	cfg.Wrap(s.wrap)
	mgr := embeddedtest.Manager(s.t, cfg, ctrl.Options{
		Scheme: newScheme(),
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	jobs := batchv1.SchemeGroupVersion.WithKind("Job")
	absent := schema.GroupVersionKind{Group: "absent.example", Version: "v1", Kind: "Absent"}
	o := controller.Options{
		Plan: &plan.Config{Origin: "hub", WorkerLostTimeout: time.Minute},
		Descriptors: []*job.Descriptor{
			view.Kind{GVK: absent, Resource: "absents", Suspend: []string{"spec", "suspend"}, ManagedBy: []string{"spec", "managedBy"}}.Descriptor(),
			view.Kind{GVK: jobs, Resource: "jobs", Suspend: []string{"spec", "suspend"}, ManagedBy: []string{"spec", "managedBy"}}.Descriptor(),
		},
		Worker:  worker.Options{Namespace: "default", Limit: inflight.NewThrottle(-1, 0), Degraded: true},
		Status:  reconcile.NewWorkloadStatus(mgr.GetClient()),
		Workers: func(string) int { return 1 }, Now: time.Now, Events: reconcile.NewEvents(mgr.GetEventRecorder("multikueue"), nil),
	}
	for _, change := range changes {
		change(&o)
	}
	_, err := controller.Setup(s.t.Context(), mgr, o)
	s.must(err)
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error)
	go func() { done <- mgr.Start(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the manager: %v", err)
		}
	})
}

// says waits for a condition of an object.
func (s *server) says(o client.Object, conditions func() []metav1.Condition, kind, want string) {
	s.t.Helper()
	wait.Until(s.t, fmt.Sprintf("%s %s is %s", o.GetName(), kind, want), func() error {
		if err := s.Get(s.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(conditions(), kind)
		if c == nil || !strings.HasPrefix(string(c.Status)+"/"+c.Reason+" "+c.Message, want) || c.ObservedGeneration != o.GetGeneration() {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// TestClusters is spec 40 §7.1 to §7.3, §7.7, §7.10 and §7.44: conditions of clusters, and of the checks that use them.
func TestClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two API servers")
	}
	t.Parallel()
	hub, worker := newServer(t), newServer(t)
	warnings := make(chan []string, 1)
	warnings <- []string{"f[0].name: run.v1.x.dev is not served by this cluster"}
	hub.manage(func(o *controller.Options) {
		o.Misnamed = func() []string {
			now := <-warnings
			warnings <- now
			return now
		}
	})
	ctx := t.Context()
	cluster := func(name string, source kueue.ClusterSource) (*kueue.MultiKueueCluster, func(kind, want string)) {
		c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{ClusterSource: source}}
		hub.must(hub.Create(ctx, c))
		return c, func(kind, want string) {
			t.Helper()
			hub.says(c, func() []metav1.Condition { return c.Status.Conditions }, kind, want)
		}
	}
	secret := func(name string) kueue.ClusterSource {
		return kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: name, LocationType: kueue.LocationTypeSecret}}
	}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "mk"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "all"},
	}}
	hub.must(hub.Create(ctx, check))
	checked := func(want string) {
		t.Helper()
		hub.says(check, func() []metav1.Condition { return check.Status.Conditions }, "Active", want)
	}
	checked("False/BadConfig")
	_, w1 := cluster("w1", secret("w1"))
	w1("Active", "False/BadKubeConfig reading Secret default/w1")
	hub.must(hub.Create(ctx, &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"w1", "w2"}}}))
	checked("False/NoUsableClusters missing clusters: w2; inactive clusters: w1")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w1"}, Data: map[string][]byte{"other": nil}}
	hub.must(hub.Create(ctx, s))
	w1("Active", `False/BadKubeConfig Secret default/w1 has no key "kubeconfig"`)
	put := func(text []byte) {
		t.Helper()
		s.Data = map[string][]byte{"kubeconfig": text}
		hub.must(hub.Update(ctx, s))
	}
	put([]byte("no kubeconfig"))
	w1("Active", "False/InsecureKubeConfig")
	put(worker.kubeconfig())
	w1("Active", "True/Active Connected")
	w1("FrameworksAvailable", "False/MissingCRD These kinds of jobs cannot be sent there: Absent")
	checked("True/SomeActiveClusters missing clusters: w2. Warning: f[0].name: run.v1.x.dev is not served by this cluster")
	<-warnings
	warnings <- nil // its CRD was installed
	put(worker.restricted(rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "list", "watch", "create"}}))
	w1("FrameworksAvailable", "False/Forbidden These kinds of jobs cannot be sent there: Absent, Job (no permission to delete)")
	w1("Active", "True/Active Connected")
	put(worker.restricted())
	w1("FrameworksAvailable", "False/Forbidden These kinds of jobs cannot be sent there: Absent, Job")
	put(worker.kubeconfig())
	w1("FrameworksAvailable", "False/MissingCRD These kinds of jobs cannot be sent there: Absent")
	_, w2 := cluster("w2", kueue.ClusterSource{ClusterProfileRef: &kueue.ClusterProfileReference{Name: "p"}})
	w2("Active", "False/MultiKueueClusterProfileFeatureDisabled")
	_, w3 := cluster("w3", secret("w3"))
	hub.must(hub.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w3"}, Data: map[string][]byte{"kubeconfig": hub.kubeconfig()}}))
	w3("Active", "False/SelfReference")
	w4, says4 := cluster("w4", kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: "/etc/passwd", LocationType: kueue.LocationTypePath}})
	says4("Active", "False/BadKubeConfig kubeconfig files are taken from /etc/multikueue/kubeconfigs/")
	embeddedtest.Edit(t, hub, w4, func(w4 *kueue.MultiKueueCluster) { w4.Spec.ClusterSource = secret("w1") })
	says4("Active", "True/Active Connected")
	hub.must(hub.Delete(ctx, s))
	w1("Active", "False/BadKubeConfig")
	checked("False/NoUsableClusters inactive clusters: w1, w2")
	if c := apimeta.FindStatusCondition(check.Status.Conditions, "Active"); strings.Contains(c.Message, "Warning") {
		t.Errorf("still warned: %s", c.Message)
	}
	if _, err := os.Stat("/etc/multikueue/kubeconfigs"); err == nil {
		t.Log("the folder of kubeconfigs exists here")
	}
}

// restricted returns a credential with the documented rights on Workloads, and additional rules.
func (s *server) restricted(rules ...rbacv1.PolicyRule) []byte {
	s.t.Helper()
	ctx, name := s.t.Context(), fmt.Sprint("restricted-", len(rules))
	rules = append(rules, rbacv1.PolicyRule{
		APIGroups: []string{kueue.GroupVersion.Group}, Resources: []string{"workloads"},
		Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.must(s.Create(ctx, account))
	s.must(s.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}))
	s.must(s.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	}))
	token := &authenticationv1.TokenRequest{}
	s.must(s.SubResource("token").Create(ctx, account, token))
	config, err := clientcmd.Load(s.kubeconfig())
	s.must(err)
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	text, err := clientcmd.Write(*config)
	s.must(err)
	return text
}
