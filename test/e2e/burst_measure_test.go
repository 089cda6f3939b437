package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// TestMeasureBurst prints what becomes of 5,000 suspended Jobs that are created at once where there is room for 500: run it
// with `make measure-burst`. The Jobs that run do so for longer than the measurement.
func TestMeasureBurst(t *testing.T) {
	if !*measure {
		t.Skip("not asked to measure")
	}
	const jobs, room, creators = 5000, 500, 16
	c := up(t, "--nodes", "70")
	scrape := "127.0.0.1:" + strconv.Itoa(freePort(t))
	m := c.start(t, "--install", "--webhook-port", strconv.Itoa(freePort(t)), "--leader-elect=false", "--metrics-bind-address", scrape)
	c.queues(t, "burst", map[string]string{"burst": strconv.Itoa(room)})
	token := c.token(t)
	before := c.writes(t)
	start := time.Now()
	var group sync.WaitGroup
	for k := range creators {
		group.Go(func() {
			for i := k; i < jobs; i += creators {
				j := job("burst", fmt.Sprintf("j%04d", i), "main", 1, "3600")
				j.Spec.Suspend = new(true)
				if err := c.Create(context.Background(), j); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	report("burst.created_s", time.Since(start).Seconds())
	eventually(t, 10*time.Minute, "every Job has a Workload", func() error { return c.count(&kueue.WorkloadList{}, jobs) })
	report("burst.workloads_s", time.Since(start).Seconds())
	eventually(t, 10*time.Minute, "as many run as there is room for", func() error {
		if n := c.unsuspended(t, "burst"); n != room {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	report("burst.running_s", time.Since(start).Seconds())
	after := c.quiet(t)
	for _, kind := range []string{"workloads POST", "workloads PATCH", "workloads/status PATCH", "workloads/status APPLY", "jobs PATCH"} {
		report("burst.writes["+kind+"]", after[kind]-before[kind])
	}
	report("burst.jobs_touched_without_cause", float64(c.touched(t, "burst")))
	report("burst.webhook_p99_ms", percentile(t, scrape, token, "/mutate-batch-v1-job", 0.99))
	report("burst.rss_mb", m.rss(t))
}

// count is nil once there are n objects in namespace burst.
func (c *cluster) count(list client.ObjectList, n int) error {
	if err := c.List(context.Background(), list, client.InNamespace("burst"), client.Limit(1)); err != nil {
		return err
	}
	got := int64(1)
	if rest := list.GetRemainingItemCount(); rest != nil {
		got += *rest
	}
	if got != int64(n) {
		return fmt.Errorf("%d", got)
	}
	return nil
}

// each visits the Jobs of a namespace.
func (c *cluster) each(t *testing.T, namespace string, visit func(*batchv1.Job)) {
	t.Helper()
	var list batchv1.JobList
	if err := c.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		visit(&list.Items[i])
	}
}

func isSuspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

func (c *cluster) unsuspended(t *testing.T, namespace string) (n int) {
	t.Helper()
	c.each(t, namespace, func(j *batchv1.Job) {
		if !isSuspended(j) {
			n++
		}
	})
	return n
}

// touched counts the changes of Jobs that nothing called for: of one that waits any, of one that runs all but its start.
func (c *cluster) touched(t *testing.T, namespace string) (n int64) {
	t.Helper()
	c.each(t, namespace, func(j *batchv1.Job) {
		n += j.Generation - 1
		if !isSuspended(j) {
			n--
		}
	})
	return n
}

// quiet waits until Berth has written nothing to Workloads and Jobs for five seconds.
func (c *cluster) quiet(t *testing.T) map[string]float64 {
	t.Helper()
	sum := func(w map[string]float64) (n float64) {
		for kind, v := range w {
			if strings.HasPrefix(kind, "workloads") || strings.HasPrefix(kind, "jobs") {
				n += v
			}
		}
		return n
	}
	last := c.writes(t)
	for range 60 {
		time.Sleep(5 * time.Second)
		next := c.writes(t)
		if sum(next) == sum(last) {
			return next
		}
		last = next
	}
	t.Error("Berth goes on writing for five minutes")
	return last
}

// token is one of an account that may read metrics.
func (c *cluster) token(t *testing.T) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "scraper"}}
	c.create(t, account, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "scraper"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "scraper"}},
	})
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(context.Background(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

var bucket = regexp.MustCompile(`^controller_runtime_webhook_latency_seconds_bucket\{.*webhook="([^"]*)".*le="([^"]*)".*\} (\S+)$|^controller_runtime_webhook_latency_seconds_bucket\{.*le="([^"]*)".*webhook="([^"]*)".*\} (\S+)$`)

// percentile is a latency of a webhook in milliseconds, as the manager measured it. Its buckets are powers of ten; between
// two of them the latencies are taken for evenly spread.
func percentile(t *testing.T, address, token, path string, share float64) float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	// The certificate is the manager's own.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := insecure.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", response.StatusCode, err, body)
	}
	var bounds, counts []float64
	for line := range strings.Lines(string(body)) {
		found := bucket.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		name, le, count := found[1]+found[5], found[2]+found[4], found[3]+found[6]
		bound, err := strconv.ParseFloat(le, 64) // +Inf too
		n, err2 := strconv.ParseFloat(count, 64)
		if name != path || err != nil || err2 != nil {
			continue
		}
		bounds, counts = append(bounds, bound), append(counts, n)
	}
	if len(counts) == 0 || counts[len(counts)-1] == 0 {
		t.Fatalf("no latency of %s in the metrics", path)
	}
	want := share * counts[len(counts)-1]
	i := slices.IndexFunc(counts, func(n float64) bool { return n >= want })
	if i == 0 {
		return 1000 * bounds[0]
	}
	return 1000 * (bounds[i-1] + (bounds[i]-bounds[i-1])*(want-counts[i-1])/(counts[i]-counts[i-1]))
}
