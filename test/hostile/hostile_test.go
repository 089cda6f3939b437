// Package hostile lets one tenant attack a running manager, while another one's jobs have to start.
package hostile

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/test/process"
)

// The namespaces, ClusterQueues and users of the two tenants; and a Workload of the first that waits for ever.
const (
	evil    = "evil"
	good    = "good"
	waiting = "waiting"
)

// usualSeed decides the attacks, unless -seed does.
const usualSeed = 1

var (
	lasts = flag.Duration("lasts", 15*time.Second, "how long the attack lasts")
	// TestHostile passes these to the attacking process.
	attacked    = flag.String("attack", "", "a kubeconfig: the cluster to attack")
	webhookPort = flag.Int("webhooks", 0, "the manager's port for webhooks")
	reportPort  = flag.Int("reports", 0, "the manager's port for reports of progress")
	bounds      = flag.Bool("bounds", false, "fail where the manager takes more than 400 MiB, or a job of the other tenant more than 2 s beyond four plain writes")
)

// The bounds of `make hostile`: resident memory in MiB, and how long 99 of 100 jobs take from their creation to their start, beyond what the API
// server takes for as many writes that no webhook is called for. The whole cluster shares the machine, and most of its time is the API server's.
const (
	memoryBound = 400
	startBound  = 2 * time.Second
)

// config turns everything on that is reached from outside; %d is the port for reports of progress.
const config = `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, pod, statefulset, deployment, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob, leaderworkerset.x-k8s.io/leaderworkerset,
    kubeflow.org/mpijob, kubeflow.org/pytorchjob, ray.io/rayjob, ray.io/raycluster, ray.io/rayservice, workload.codeflare.dev/appwrapper, sparkoperator.k8s.io/sparkapplication]
featureGates: {SparkApplicationIntegration: true, TrainJobStatus: true}
trainer:
  statusServer: {port: %d}
`

// TestHostile attacks the manager, and checks its memory and the jobs of the other tenant.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	embeddedtest.Quiet()
	kubeconfig := embeddedtest.Start(t, embeddedtest.Full)
	admin := embeddedtest.ConfigOf(t, kubeconfig)
	admin.WarningHandler = rest.NoWarnings{}
	c, err := client.NewWithWatch(admin, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for plural, gvk := range foreign {
		create(t, c, embeddedtest.LooseCRD(gvk, plural))
	}
	webhooks, reports := embeddedtest.FreePort(t), embeddedtest.FreePort(t)
	m := startManager(t, kubeconfig, webhooks, reports)
	tenants(t, c)

	ctx, cancel := context.WithTimeout(t.Context(), *lasts)
	defer cancel()
	attack := exec.Command(os.Args[0], "-test.run", "^TestAttack$", "-lasts", lasts.String(), "-seed", strconv.FormatUint(embeddedtest.Seed(t, usualSeed), 10),
		"-attack", kubeconfig, "-webhooks", strconv.Itoa(webhooks), "-reports", strconv.Itoa(reports))
	attack.Stdout, attack.Stderr = os.Stdout, os.Stderr
	attack.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := attack.Start(); err != nil {
		t.Fatal(err)
	}
	var writes []time.Duration
	var floor sync.WaitGroup
	floor.Go(func() { writes = fourWrites(ctx, t, c) })
	took, active := work(ctx, t, c)
	floor.Wait()
	if err := attack.Wait(); err != nil {
		t.Errorf("the attack: %v", err)
	}

	select {
	case <-m.Ended:
		t.Fatal("the manager ended")
	default:
	}
	if err := m.Ready(); err != nil {
		t.Error(err)
	}
	report("hostile.jobs", float64(len(took)))
	report("hostile.start_p50_s", quantile(took, 0.5).Seconds())
	report("hostile.start_p99_s", quantile(took, 0.99).Seconds())
	report("hostile.four_writes_p50_s", quantile(writes, 0.5).Seconds())
	report("hostile.four_writes_p99_s", quantile(writes, 0.99).Seconds())
	report("hostile.active", float64(len(active)))
	report("hostile.active_p99_s", quantile(active, 0.99).Seconds())
	report("hostile.manager_peak_mib", m.PeakRSS())
	report("hostile.manager_cpu_s", m.CPU().Seconds())
	if *bounds && m.PeakRSS() > memoryBound {
		t.Errorf("the manager took %.0f MiB, more than %d", m.PeakRSS(), memoryBound)
	}
	if p99, plain := quantile(took, 0.99), quantile(writes, 0.99); *bounds && p99-plain > startBound {
		t.Errorf("99 of 100 jobs took up to %s to start, more than %s longer than four plain writes, which take %s", p99, startBound, plain)
	}
}

// TestAttack is the attack of TestHostile, in a process of its own: tenants compute on machines of their own, so that its priority is lower.
func TestAttack(t *testing.T) {
	if *attacked == "" {
		t.Skip("is started by TestHostile")
	}
	embeddedtest.Quiet()
	yieldProcessor(t)
	admin, err := clientcmd.BuildConfigFromFlags("", *attacked)
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS, admin.WarningHandler = -1, rest.NoWarnings{}
	a := newAttacker(t, admin)
	seed := embeddedtest.Seed(t, usualSeed)
	var attackers sync.WaitGroup
	for i := range uint64(4) {
		attackers.Go(func() { a.run(t.Context(), *lasts, seed+i, 100*time.Millisecond) })
	}
	attackers.Wait()
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		report("hostile.tried."+name, float64(a.tried[name]))
		report("hostile.refused."+name, float64(a.refused[name]))
		if a.tried[name] == 0 {
			t.Errorf("%s was never tried", name)
		}
	}
	fmt.Printf("slowest review: %s\n", a.longest)
	report("hostile.slowest_review_s", a.slowest.Seconds())
}

// yieldProcessor lowers the priority of this process.
func yieldProcessor(t *testing.T) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads { // the threads to come inherit it
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, 10); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
	}
}

func report(name string, value float64) { fmt.Printf("%s: %.2f\n", name, value) }

func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[min(len(of)-1, int(q*float64(len(of))))]
}

func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func startManager(t *testing.T, kubeconfig string, webhooks, reports int) *process.Manager {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, reports), 0o600); err != nil {
		t.Fatal(err)
	}
	return process.Start(t, kubeconfig, "--config", file, "--install", "--leader-elect=false", "--webhook-port", strconv.Itoa(webhooks))
}

// tenants makes both, with rights in their own namespaces only.
func tenants(t *testing.T, c client.Client) {
	t.Helper()
	create(t, c, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "any"}})
	for tenant, cpus := range map[string]string{evil: "1", good: "1000"} {
		create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}},
			&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: tenant}, Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{},
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
					Flavors: []kueue.FlavorQuotas{{Name: "any", Resources: []kueue.ResourceQuota{
						{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpus)},
					}}},
				}},
			}},
			&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(tenant)}},
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: tenant}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
			}},
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: tenant}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: tenant},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: tenant}},
			})
	}
	// Jobs without a queue run, and thousands of pods of theirs would be an attack on the API server.
	create(t, c, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: evil, Name: "pods"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")},
	}})
	create(t, c, object(strings.Replace(kinds[15], "cpu: 100m", "cpu: 1000", 1), waiting))
}

func newAttacker(t *testing.T, admin *rest.Config) *attacker {
	t.Helper()
	c, err := client.New(admin, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.CopyConfig(admin)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: evil, Groups: []string{"system:authenticated"}}
	his, err := client.New(cfg, client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	a := &attacker{
		Client: his, api: kubernetes.NewForConfigOrDie(cfg).RESTClient(), web: newWeb(), tried: map[string]int{}, refused: map[string]int{},
		webhooks: "https://127.0.0.1:" + strconv.Itoa(*webhookPort), progress: "https://127.0.0.1:" + strconv.Itoa(*reportPort),
	}
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&mutating, &validating} {
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	add := func(config admissionregistrationv1.WebhookClientConfig) {
		if config.URL != nil && strings.HasPrefix(*config.URL, a.webhooks) {
			a.paths = append(a.paths, strings.TrimPrefix(*config.URL, a.webhooks))
		}
	}
	for _, item := range mutating.Items {
		for _, w := range item.Webhooks {
			add(w.ClientConfig)
		}
	}
	for _, item := range validating.Items {
		for _, w := range item.Webhooks {
			add(w.ClientConfig)
		}
	}
	if len(a.paths) < 10 {
		t.Fatalf("only %d webhooks: the test lost its way", len(a.paths))
	}
	return a
}

// fourWrites writes as often as a Job needs to start, one write after the other, twice a second: objects without webhooks and watches.
// It returns the duration of each four writes: the effect of the attack on the API server itself.
func fourWrites(ctx context.Context, t *testing.T, c client.Client) (took []time.Duration) {
	for i := 0; ctx.Err() == nil; i++ {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: good, Name: fmt.Sprintf("plain-%d", i)}}
		begun := time.Now()
		err := c.Create(t.Context(), o)
		for j := 0; j < 3 && err == nil; j++ {
			o.Data = map[string]string{"write": strconv.Itoa(j)}
			err = c.Update(t.Context(), o)
		}
		if err != nil {
			t.Errorf("a ConfigMap of the other tenant: %v", err)
			return took
		}
		took = append(took, time.Since(begun))
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return took
}

// work creates a Job of the good tenant twice a second until the context ends, and returns how long each took from its creation until it was
// not suspended any more, and until its pod was there, if it was. Every job has to start, however long it takes.
func work(ctx context.Context, t *testing.T, c client.WithWatch) (took, active []time.Duration) {
	t.Helper()
	w, err := c.Watch(t.Context(), &batchv1.JobList{}, client.InNamespace(good))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var mu sync.Mutex
	created, started, ran := map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}
	go func() {
		for event := range w.ResultChan() {
			j, ok := event.Object.(*batchv1.Job)
			if !ok {
				continue
			}
			mu.Lock()
			if _, known := started[j.Name]; !known && !*j.Spec.Suspend {
				started[j.Name] = time.Now()
			}
			if _, known := ran[j.Name]; !known && j.Status.Active+j.Status.Succeeded > 0 {
				ran[j.Name] = time.Now()
			}
			mu.Unlock()
		}
	}()
	pace := time.NewTicker(500 * time.Millisecond)
	defer pace.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		o := object(kinds[0], fmt.Sprintf("job-%d", i))
		o.SetNamespace(good)
		mu.Lock()
		created[o.GetName()] = time.Now()
		mu.Unlock()
		if err := c.Create(t.Context(), o); err != nil {
			t.Errorf("the job of the other tenant was refused: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-pace.C:
		}
	}
	wait.Until(t, "every job of the other tenant starts", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(started) < len(created) {
			return fmt.Errorf("%d of %d", len(started), len(created))
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	for name, at := range created {
		took = append(took, started[name].Sub(at))
		if at, ok := ran[name]; ok { // Kubernetes' own controller of Jobs shares its workers between tenants
			active = append(active, at.Sub(created[name]))
		}
	}
	return took, active
}
