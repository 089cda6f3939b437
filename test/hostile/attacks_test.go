package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attacker is a tenant with the rights of a user of his namespace, and a pod from which every port of the manager is reached.
type attacker struct {
	client.Client
	api                rest.Interface
	web                *http.Client
	webhooks, progress string
	paths              []string // of the webhooks

	mu      sync.Mutex
	rounds  int
	round   []string // the attacks that have yet to be tried as often as the others
	made    []*unstructured.Unstructured
	serial  int
	tried   map[string]int
	refused map[string]int
	slowest time.Duration // of the reviews with long lists
	longest string        // which of them that was
}

// attacks are the attacks of one tenant on the manager, one try each.
var attacks = map[string]func(a *attacker, ctx context.Context, r *rand.Rand) error{
	"objects":  (*attacker).objects,
	"counts":   (*attacker).counts,
	"families": (*attacker).families,
	"reviews":  (*attacker).reviews,
	"bodies":   (*attacker).bodies,
	"levels":   (*attacker).levels,
	"slow":     (*attacker).slow,
	"long":     (*attacker).long,
	"readers":  (*attacker).readers,
	"reports":  (*attacker).reports,
	"churn":    (*attacker).churn,
}

// next returns the name of an attack: all of them in a random order, then all again. first is whether it has not been tried yet.
func (a *attacker) next(r *rand.Rand) (name string, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.round) == 0 {
		a.rounds++
		a.round = slices.Sorted(maps.Keys(attacks))
		r.Shuffle(len(a.round), func(i, j int) { a.round[i], a.round[j] = a.round[j], a.round[i] })
	}
	name, a.round = a.round[0], a.round[1:]
	return name, a.rounds == 1
}

// run tries attacks until the time is over, and every one has been tried once however long that lasts. The pauses are long enough not to
// attack the API server itself.
func (a *attacker) run(ctx context.Context, lasts time.Duration, seed uint64, pause time.Duration) {
	limited, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	r := rand.New(rand.NewPCG(seed, 1))
	for {
		name, first := a.next(r)
		until := limited
		if first {
			until = ctx
		}
		if until.Err() != nil {
			return
		}
		err := attacks[name](a, until, r)
		if until.Err() != nil {
			return
		}
		a.mu.Lock()
		a.tried[name]++
		if err != nil {
			a.refused[name]++
		}
		a.mu.Unlock()
		select {
		case <-until.Done():
		case <-time.After(pause):
		}
	}
}

func (a *attacker) name(prefix string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	return fmt.Sprintf("%s-%d", prefix, a.serial)
}

// create creates an object, on some tries only as a dry run, and deletes its oldest objects, so that etcd does not fill up.
func (a *attacker) create(ctx context.Context, r *rand.Rand, o *unstructured.Unstructured) error {
	if r.IntN(3) == 0 {
		return a.Create(ctx, o, client.DryRunAll)
	}
	if err := a.Create(ctx, o); err != nil {
		return err
	}
	a.mu.Lock()
	a.made = append(a.made, o)
	var oldest *unstructured.Unstructured
	if len(a.made) > 60 {
		oldest, a.made = a.made[0], a.made[1:]
	}
	a.mu.Unlock()
	if oldest == nil {
		return nil
	}
	return client.IgnoreNotFound(a.Delete(ctx, oldest, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// objects creates an object of some kind with a few invalid fields.
func (a *attacker) objects(ctx context.Context, r *rand.Rand) error {
	o := object(kinds[r.IntN(len(kinds))], a.name("odd"))
	for range 1 + r.IntN(3) {
		mutate(r, o.Object)
	}
	return a.create(ctx, r, o)
}

// counts creates an object with a number that is too large.
func (a *attacker) counts(ctx context.Context, r *rand.Rand) error {
	return a.create(ctx, r, huge(r, a.name("huge")))
}

// families creates a Job that claims another one, small and admitted, as its owner.
func (a *attacker) families(ctx context.Context, r *rand.Rand) error {
	parent := object(kinds[0], a.name("parent"))
	if err := a.Create(ctx, parent); err != nil {
		return err
	}
	a.mu.Lock()
	a.made = append(a.made, parent)
	a.mu.Unlock()
	for range 1 + r.IntN(5) {
		child := object(strings.Replace(kinds[0], "parallelism: 1, completions: 1", "parallelism: 5000, completions: 5000", 1), a.name("child"))
		child.SetLabels(nil)
		child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: parent.GetName(), UID: parent.GetUID(), Controller: new(true)}})
		if err := a.create(ctx, r, child); err != nil {
			return err
		}
	}
	return nil
}

// post sends a body to a port of the manager. An answer that refuses is an error.
func (a *attacker) post(ctx context.Context, url string, body io.Reader, header http.Header) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	request.Header = http.Header{"Content-Type": {"application/json"}}
	maps.Copy(request.Header, header)
	response, err := a.web.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: status %d", url, response.StatusCode)
	}
	return nil
}

// reviews sends a forged review, in any user's name, of an object that is odd or huge.
func (a *attacker) reviews(ctx context.Context, r *rand.Rand) error {
	o := huge(r, a.name("forged"))
	if r.IntN(2) == 0 {
		o = object(kinds[r.IntN(len(kinds))], a.name("forged"))
		mutate(r, o.Object)
	}
	operation := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, "ODD"}[r.IntN(4)]
	return a.review(ctx, r, a.paths[r.IntN(len(a.paths))], operation, o)
}

// long sends each webhook of a kind an object with a list or a map as long as an object may be.
func (a *attacker) long(ctx context.Context, r *rand.Rand) error {
	o := object(kinds[r.IntN(len(kinds))], a.name("long"))
	if containers, found := find(o.Object, "containers"); found {
		containers[0].(map[string]any)["env"] = []any{map[string]any{"name": "a", "value": "b"}}
		containers[0].(map[string]any)["ports"] = []any{map[string]any{"name": "a", "containerPort": int64(1)}}
	}
	where := lengthen(r, o.Object, 2_500_000)
	var last error
	for _, path := range a.paths {
		if !strings.HasSuffix(path, "-"+strings.ToLower(o.GetKind())) {
			continue
		}
		began := time.Now()
		last = a.review(ctx, r, path, admissionv1.Create, o)
		took := time.Since(began)
		a.mu.Lock()
		if took > a.slowest {
			a.slowest, a.longest = took, path+" "+where
		}
		a.mu.Unlock()
	}
	return last
}

// find is the first list of a name in a tree.
func find(at any, name string) ([]any, bool) {
	switch at := at.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(at)) {
			if list, ok := at[key].([]any); ok && key == name && len(list) > 0 {
				return list, true
			}
			if list, ok := find(at[key], name); ok {
				return list, true
			}
		}
	case []any:
		for _, element := range at {
			if list, ok := find(element, name); ok {
				return list, true
			}
		}
	}
	return nil, false
}

// review sends a review of an object, in any user's name.
func (a *attacker) review(ctx context.Context, r *rand.Rand, path string, operation admissionv1.Operation, o *unstructured.Unstructured) error {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	gvk := o.GroupVersionKind()
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(a.name("uid")), Kind: metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}, Operation: operation,
			Name: o.GetName(), Namespace: []string{evil, good, "kube-system", ""}[r.IntN(4)], Object: runtime.RawExtension{Raw: raw}, OldObject: runtime.RawExtension{Raw: raw},
			UserInfo: authenticationv1.UserInfo{Username: []string{"system:serviceaccount:kueue-system:kueue-controller-manager", "somebody", ""}[r.IntN(3)], Groups: []string{"system:masters"}},
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	return a.post(ctx, a.webhooks+path, bytes.NewReader(body), nil)
}

// bodies sends large bodies that are no reviews.
func (a *attacker) bodies(ctx context.Context, r *rand.Rand) error {
	part := []string{" ", "[", `{"a":`, `[{},{},{},{}],`, "null,", "\x00\xff", `{"request":{"object":{"a":"b"},`, `"\u0000`}[r.IntN(8)]
	size := []int{1 << 10, 1 << 20, 15 << 20, 40 << 20}[r.IntN(4)]
	paths := append([]string{"/convert"}, a.paths...)
	return a.post(ctx, a.webhooks+paths[r.IntN(len(paths))], io.LimitReader(&repeat{part: part}, int64(size)), nil)
}

// repeat is a text again and again.
type repeat struct {
	part string
	at   int
}

func (f *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = f.part[f.at]
		f.at = (f.at + 1) % len(f.part)
	}
	return len(p), nil
}

// levels asks for the conversion of Workloads whose short topology assignments expand to many domains.
func (a *attacker) levels(ctx context.Context, r *rand.Rand) error {
	n := 1 + r.IntN(1<<19)
	levels := `"` + strings.Repeat(`a","`, n) + `b"`
	domains := strings.TrimSuffix(strings.Repeat(`{"valuesPerLevel":[{"universal":"x"}],"domainCount":2147483647,"podCounts":{"universal":1}},`, 1+r.IntN(20_000)), ",")
	body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"kueue.x-k8s.io/v1beta1","objects":[` +
		`{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"x","namespace":"evil"},"status":{"admission":{"clusterQueue":"c","podSetAssignments":[` +
		`{"name":"main","topologyAssignment":{"levels":[` + levels + `],"slices":[` + domains + `]}}]}}}]}}`
	return a.post(ctx, a.webhooks+"/convert", strings.NewReader(body), nil)
}

// slow keeps a connection busy with a body that never ends, for a while.
func (a *attacker) slow(ctx context.Context, r *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	in, out := io.Pipe()
	go func() {
		for ctx.Err() == nil {
			_, _ = out.Write([]byte(" "))
			time.Sleep(100 * time.Millisecond)
		}
		_ = out.CloseWithError(ctx.Err())
	}()
	return a.post(ctx, a.webhooks+a.paths[r.IntN(len(a.paths))], in, nil)
}

// readers sends many requests at once, and abandons some of them.
func (a *attacker) readers(ctx context.Context, r *rand.Rand) error {
	paths := []string{
		"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/" + evil + "/localqueues/main/pendingworkloads?limit=1000000&offset=0",
		"/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/" + evil + "/localqueues/main/pendingworkloads",
		"/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/" + good + "/pendingworkloads",
		"/apis/visibility.berth.dev/v1alpha1/namespaces/" + evil + "/workloads/" + waiting + "/explanation",
		"/apis/visibility.berth.dev/v1alpha1/namespaces/" + good + "/workloads/" + waiting + "/explanation",
	}
	errs := make(chan error, 20)
	for range cap(errs) {
		limit := time.Duration(1+r.IntN(3000)) * time.Millisecond
		path := paths[r.IntN(len(paths))]
		go func() {
			asks, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			errs <- a.api.Get().RequestURI(path).Do(asks).Error()
		}()
	}
	var last error
	for range cap(errs) {
		if err := <-errs; err != nil {
			last = err
		}
	}
	return last
}

// reports sends reports of progress with invalid tokens.
func (a *attacker) reports(ctx context.Context, r *rand.Rand) error {
	body := io.LimitReader(&repeat{part: `{"trainerStatus":{"metrics":[{"name":"a","value":"b"},`}, int64(1+r.IntN(2<<20)))
	token := "Bearer " + strings.Repeat("x", 1+r.IntN(100_000))
	return a.post(ctx, a.progress+"/apis/trainer.kubeflow.org/v1alpha1/namespaces/"+evil+"/trainjobs/x/status", body, http.Header{"Authorization": {token}})
}

// churn creates Jobs, changes them and deletes them at once.
func (a *attacker) churn(ctx context.Context, r *rand.Rand) error {
	for range 1 + r.IntN(10) {
		o := object(kinds[0], a.name("churn"))
		if err := a.Create(ctx, o); err != nil {
			return err
		}
		if r.IntN(2) == 0 {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":%q}},"spec":{"suspend":%v}}`, []string{"main", "other", ""}[r.IntN(3)], r.IntN(2) == 0)
			if err := a.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				return err
			}
		}
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: evil, Name: o.GetName()}}
		if err := a.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return err
		}
	}
	return nil
}

// newWeb is a client that trusts any certificate.
func newWeb() *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 20}}
}
