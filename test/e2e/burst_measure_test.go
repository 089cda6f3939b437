package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestMeasureBurst prints the course of 5,000 suspended Jobs that are created at once where there is room for 500: run it with `make
// measure-burst`. The running Jobs outlast the measurement.
func TestMeasureBurst(t *testing.T) {
	if !*measure {
		t.Skip("not asked to measure")
	}
	const jobs, room, creators = 5000, 500, 16
	c := up(t, func(cfg *embedded.Config) { cfg.Nodes = 70 })
	scrape := "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	m := c.manager(t, "--metrics-bind-address", scrape)
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
	wait.Until(t, "every Job has a Workload", func() error { return c.count(&kueue.WorkloadList{}, jobs) })
	report("burst.workloads_s", time.Since(start).Seconds())
	wait.Until(t, "as many run as there is room for", func() error {
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
	report("burst.rss_mb", m.RSS())
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

// touched counts unneeded changes of Jobs: any of a pending one, any but the start of a running one.
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

// percentile is a latency of a webhook in milliseconds, as the manager measured it: the upper end of a bucket of its native
// histogram, whose buckets are a tenth wide at most.
func percentile(t *testing.T, address, token, path string, share float64) float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited") // text has no native histograms
	// The certificate is the manager's own.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := insecure.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d", response.StatusCode)
	}
	families := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header))
	for {
		var family dto.MetricFamily
		if err := families.Decode(&family); err != nil {
			t.Fatalf("no latency of %s in the metrics: %v", path, err)
		}
		for _, m := range family.GetMetric() {
			of := slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "webhook" && l.GetValue() == path })
			if of && family.GetName() == "controller_runtime_webhook_latency_seconds" {
				return 1000 * quantile(m.GetHistogram(), share)
			}
		}
	}
}

// quantile is the upper end of the bucket in which a share of all observations is reached. Bucket i of a native histogram ends at 2 to
// the power of i/2^schema; deltas are from one bucket to the next, spans skip empty ones.
func quantile(h *dto.Histogram, share float64) float64 {
	want, seen := share*float64(h.GetSampleCount()), float64(h.GetZeroCount())
	index, count, at := int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += h.GetPositiveDelta()[at]
			if seen += float64(count); seen >= want {
				return math.Exp2(float64(index) / math.Exp2(float64(h.GetSchema())))
			}
			index, at = index+1, at+1
		}
	}
	return h.GetZeroThreshold()
}

func TestQuantile(t *testing.T) {
	latencies := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "latency", NativeHistogramBucketFactor: 1.1})
	for i := range 1000 {
		latencies.Observe(float64(i+1) / 1000)
	}
	var m dto.Metric
	if err := latencies.Write(&m); err != nil {
		t.Fatal(err)
	}
	for _, share := range []float64{0.1, 0.5, 0.99} {
		if got := quantile(m.GetHistogram(), share); got < share || got > 1.1*share {
			t.Errorf("%g of 1 ms, 2 ms … 1 s: %g s", share, got)
		}
	}
}
