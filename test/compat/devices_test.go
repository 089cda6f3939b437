package compat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// mapped is a configuration of device classes. Each scene that needs devices has a driver of its own, and scenes share classes.
const mapped = `
featureGates: {KueueDRAIntegrationConsumableCapacity: true}
resources:
  deviceClassMappings:
  - {name: gpus, deviceClassNames: [big, small, late, late-too, absent]}
  - name: slices
    deviceClassNames: [parts]
    sources: [{counter: {name: memory, driver: parts.example.com, deviceSelector: {cel: {expression: "true"}}}}]
  - name: shares
    deviceClassNames: [shared]
    sources: [{capacity: {name: memory, driver: shared.example.com, deviceSelector: {cel: {expression: "true"}}}}]
`

// class makes a DeviceClass, which scenes may share.
func (w *world) class(name string, set ...func(*resourcev1.DeviceClassSpec)) *resourcev1.DeviceClass {
	w.t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, f := range set {
		f(&class.Spec)
	}
	w.must(client.IgnoreAlreadyExists(w.c.Create(w.ctx(), class)))
	w.t.Cleanup(func() { _ = w.c.Delete(w.ctx(), class) })
	return class
}

// slice makes the only ResourceSlice of a pool, and acts as the driver.
func (w *world) slice(driver string, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	w.t.Helper()
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: w.own("slice-")}, Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, Pool: resourcev1.ResourcePool{Name: w.name, Generation: 1, ResourceSliceCount: 1}, AllNodes: new(true), Devices: devices,
	}}
	w.create(s)
	w.t.Cleanup(func() { _ = w.c.Delete(w.ctx(), s) })
	return s
}

func model(name, is string) resourcev1.Device {
	return resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &is}}}
}

// template makes a ResourceClaimTemplate with one request for devices of a class.
func (w *world) template(name, class string, devices int64, set ...func(*resourcev1.DeviceRequest)) *resourcev1.ResourceClaimTemplate {
	w.t.Helper()
	r := resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Count: devices}}
	for _, f := range set {
		f(&r)
	}
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name}}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{r}
	w.create(t)
	return t
}

func selecting(expression string) func(*resourcev1.DeviceRequest) {
	return func(r *resourcev1.DeviceRequest) {
		r.Exactly.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	}
}

// claims makes the pods of a Workload claim devices by a template.
func claims(templates ...string) workloadSetting {
	return func(wl *kueue.Workload) {
		spec := &wl.Spec.PodSets[0].Template.Spec
		for i, name := range templates {
			spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprintf("c%d", i), ResourceClaimTemplateName: &name})
		}
	}
}

// devices adds quota of a resource, in the flavor of the queue.
func devices(name corev1.ResourceName, amount string) queueSetting {
	return func(q *kueue.ClusterQueue) {
		g := &q.Spec.ResourceGroups[0]
		g.CoveredResources = append(g.CoveredResources, name)
		g.Flavors[0].Resources = append(g.Flavors[0].Resources, kueue.ResourceQuota{Name: name, NominalQuota: resource.MustParse(amount)})
	}
}

// charged demands that an admitted Workload is charged an amount.
func (w *world) charged(wl *kueue.Workload, name corev1.ResourceName, amount int64) {
	w.t.Helper()
	w.admits(wl)
	usage := read(w, wl).Status.Admission.PodSetAssignments[0].ResourceUsage
	if q, has := usage[name]; !has || q.Value() != amount {
		w.t.Errorf("%s is charged %v, want %d %s", wl.Name, usage, amount, name)
	}
}

// rejected demands the status of a Workload whose devices cannot be charged, with words of its message.
func (w *world) rejected(wl *kueue.Workload, words ...string) {
	w.t.Helper()
	wait.Until(w.t, wl.Name+" is rejected for "+strings.Join(words, ", "), func() error {
		now := read(w, wl)
		if err := lacks(now.Status.Conditions, "QuotaReserved=False/Misconfigured", "Admitted=False/NoReservation", "Requeued=False/Inadmissible"); err != nil {
			return err
		}
		message := apimeta.FindStatusCondition(now.Status.Conditions, kueue.WorkloadQuotaReserved).Message
		for _, word := range words {
			if !strings.Contains(message, word) {
				return fmt.Errorf("the message is %q, want %q", message, word)
			}
		}
		return nil
	})
}

// TestDevices: claims of devices are charged to quota by the mappings of the configuration.
func TestDevices(t *testing.T) {
	running(t, mapped)
	scenes(t, map[string]func(*world){
		"20 §7.59 a claim template of two devices is charged for each pod": func(w *world) {
			w.queue("q", "8", devices("gpus", "6"))
			w.template("two", "big", 2)
			wl := w.workload("a", "q", "1", count(3), claims("two"))
			w.charged(wl, "gpus", 6)
			w.until(wl, "-Requeued")
			next := w.workload("b", "q", "1", claims("two"))
			w.waits(kueue.ReasonWaitingForQuota, next)
			w.finish(wl)
			w.charged(next, "gpus", 2)
		},
		"20 §7.59 a claim by its own name is inadmissible": func(w *world) {
			w.queue("q", "8", devices("gpus", "6"), strict)
			shared := w.workload("shared", "q", "1", func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("mine")}}
			})
			w.rejected(shared, "spec.podSets[main].template.spec.resourceClaims[gpu].resourceClaimName", "mine")
			w.tells(shared, "Warning Misconfigured")
			w.admits(w.workload("behind", "q", "1")) // it is not in the queue, so it blocks no other Workload
			w.template("one", "big", 1)
			edit(w, shared, func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.ResourceClaims = nil
				claims("one")(wl)
			})
			w.charged(shared, "gpus", 1)
		},
		"20 §4.12 a template comes later, goes while its Workload runs, and changes": func(w *world) {
			w.queue("q", "8", devices("gpus", "4"))
			wl := w.workload("a", "q", "1", claims("t"))
			w.rejected(wl, "ResourceClaimTemplate t")
			template := w.template("t", "small", 3)
			w.charged(wl, "gpus", 3)
			w.until(wl, "-Requeued")
			w.must(w.c.Delete(w.ctx(), template))
			w.keeps(wl, time.Second, admitted)
			next := w.workload("b", "q", "1", claims("t"))
			w.rejected(next, "ResourceClaimTemplate t")
			w.template("t", "small", 1)
			w.charged(next, "gpus", 1)
			w.charged(wl, "gpus", 3)
		},
		"20 §4.12 a template changes while Workloads wait for quota": func(w *world) {
			w.queue("q", "8", devices("gpus", "2"))
			template := w.template("t", "small", 3)
			wl := w.workload("a", "q", "1", claims("t"))
			w.waits(kueue.ReasonExceedsMaxQuota, wl)
			w.must(w.c.Delete(w.ctx(), template))
			w.rejected(wl, "ResourceClaimTemplate t")
			w.template("t", "small", 2)
			w.charged(wl, "gpus", 2)
		},
		"20 §4.12 an unmapped class, alternatives, all devices": func(w *world) {
			w.queue("q", "8", devices("gpus", "4"))
			w.template("unmapped", "other", 1)
			w.rejected(w.workload("a", "q", "1", claims("unmapped")), "DeviceClass other", "deviceClassMappings")
			w.template("first", "", 0, func(r *resourcev1.DeviceRequest) {
				r.Exactly, r.FirstAvailable = nil, []resourcev1.DeviceSubRequest{{Name: "s", DeviceClassName: "big"}}
			})
			w.rejected(w.workload("b", "q", "1", claims("first")), "firstAvailable")
			w.template("all", "big", 0, func(r *resourcev1.DeviceRequest) { r.Exactly.AllocationMode = resourcev1.DeviceAllocationModeAll })
			w.rejected(w.workload("c", "q", "1", claims("all")), "allocation mode All")
		},
		"20 §4.12 selectors need a class and matching devices, which come later": func(w *world) {
			driver := w.name + ".example.com"
			w.queue("q", "8", devices("gpus", "4"))
			w.template("t", "late", 2, selecting(fmt.Sprintf(`device.driver == "%s" && device.attributes["%s"].model == "x"`, driver, driver)))
			wl := w.workload("a", "q", "1", claims("t"))
			w.rejected(wl, "DeviceClass late", "does not exist")
			w.class("late")
			w.rejected(wl, "selects 2 devices", "and 0 of the known ones match")
			slice := w.slice(driver, model("d1", "x"), model("d2", "y"))
			w.rejected(wl, "and 1 of the known ones match")
			edit(w, slice, func(s *resourcev1.ResourceSlice) { s.Spec.Devices[1] = model("d2", "x") })
			w.charged(wl, "gpus", 2)
		},
		"20 §4.12 counters of partitionable devices are charged": func(w *world) {
			w.class("parts")
			w.queue("q", "8", devices("slices", "40"))
			w.template("t", "parts", 2)
			wl := w.workload("a", "q", "1", count(2), claims("t"))
			w.rejected(wl, "needs 2 devices", "parts.example.com")
			partition := func(name, amount string) resourcev1.Device {
				return resourcev1.Device{Name: name, ConsumesCounters: []resourcev1.DeviceCounterConsumption{{
					CounterSet: "set", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(amount)}},
				}}}
			}
			sets := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: w.own("sets")}, Spec: resourcev1.ResourceSliceSpec{
				Driver: "parts.example.com", Pool: resourcev1.ResourcePool{Name: w.name, Generation: 1, ResourceSliceCount: 2}, AllNodes: new(true),
				SharedCounters: []resourcev1.CounterSet{{Name: "set", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("40")}}}},
			}}
			parts := sets.DeepCopy()
			parts.Name, parts.Spec.SharedCounters, parts.Spec.Devices = w.own("parts"), nil, []resourcev1.Device{partition("d1", "10"), partition("d2", "5")}
			w.t.Cleanup(func() { _, _ = w.c.Delete(w.ctx(), sets), w.c.Delete(w.ctx(), parts) })
			w.create(parts)
			w.rejected(wl, "in complete pools match") // one of two slices
			w.create(sets)
			w.charged(wl, "slices", 2*2*10)
		},
		"20 §4.12 the capacity that is consumed of shared devices is charged": func(w *world) {
			w.class("shared")
			w.queue("q", "8", devices("shares", "100"))
			least, most := resource.MustParse("10"), resource.MustParse("40")
			w.slice("shared.example.com", resourcev1.Device{Name: "d", AllowMultipleAllocations: new(true), Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"memory": {Value: most, RequestPolicy: &resourcev1.CapacityRequestPolicy{
					Default: &least, ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &least, Max: &most, Step: &least},
				}},
			}})
			asks := func(amount string) func(*resourcev1.DeviceRequest) {
				return func(r *resourcev1.DeviceRequest) {
					r.Exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(amount)}}
				}
			}
			w.template("default", "shared", 1)
			w.charged(w.workload("a", "q", "1", claims("default")), "shares", 10)
			w.template("rounded", "shared", 1, asks("21"))
			w.charged(w.workload("b", "q", "1", count(2), claims("rounded")), "shares", 60)
			w.template("excess", "shared", 1, asks("41"))
			w.rejected(w.workload("c", "q", "1", claims("excess")), "request policies", "memory")
		},
		"20 §4.12 an extended resource that is named after a class is charged as devices": func(w *world) {
			const prefix = corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix)
			unmapped := w.own("unmapped")
			w.queue("q", "8", devices("gpus", "4"), devices(prefix+"late-too", "4"), devices(prefix+corev1.ResourceName(unmapped), "4"))
			asks := func(class string) workloadSetting {
				return func(wl *kueue.Workload) {
					r := &wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources
					r.Limits = corev1.ResourceList{prefix + corev1.ResourceName(class): resource.MustParse("3")}
				}
			}
			w.charged(w.workload("without-class", "q", "1", asks("late-too")), prefix+"late-too", 3)
			w.class("late-too") // it is mapped
			wait.Until(w.t, "the class counts", func() error {
				wl := w.workload("", "q", "1", asks("late-too"), func(wl *kueue.Workload) { wl.GenerateName = "backed-" })
				w.admits(wl)
				defer w.finish(wl)
				usage := read(w, wl).Status.Admission.PodSetAssignments[0].ResourceUsage
				if q := usage["gpus"]; q.Value() != 3 || usage.Name(prefix+"late-too", resource.DecimalSI).Value() != 0 {
					return fmt.Errorf("charged %v", usage)
				}
				return nil
			})
			w.class(unmapped)
			w.charged(w.workload("unmapped", "q", "1", asks(unmapped)), prefix+corev1.ResourceName(unmapped), 3)
		},
		"20 §4.12 an extended resource with a class is charged as devices": func(w *world) {
			name := w.name + ".example.com/gpu"
			w.queue("q", "8", devices("gpus", "4"), devices(corev1.ResourceName(name), "8"))
			asks := func(wl *kueue.Workload) {
				r := &wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources
				r.Limits = corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("3")}
			}
			w.charged(w.workload("plain", "q", "1", asks), corev1.ResourceName(name), 3)
			w.class("small", func(s *resourcev1.DeviceClassSpec) { s.ExtendedResourceName = &name })
			wait.Until(w.t, "the class counts", func() error {
				wl := w.workload("", "q", "1", asks, func(wl *kueue.Workload) { wl.GenerateName = "backed-" })
				w.admits(wl)
				defer w.finish(wl)
				usage := read(w, wl).Status.Admission.PodSetAssignments[0].ResourceUsage
				if q := usage["gpus"]; q.Value() != 3 || usage.Name(corev1.ResourceName(name), resource.DecimalSI).Value() != 0 {
					return fmt.Errorf("charged %v", usage)
				}
				return nil
			})
		},
	})
}

// rejection is the life of a Workload whose devices cannot be charged at first, for two reasons.
func rejection(w *world) {
	w.t.Helper()
	q := w.queue("q", "8", devices("gpus", "4"))
	wl := w.workload("a", "q", "1", claims("t"))
	w.rejected(wl, "there is no ResourceClaimTemplate t")
	template := w.template("t", "unmapped", 1)
	w.rejected(wl, "DeviceClass unmapped", "deviceClassMappings")
	w.must(w.c.Delete(w.ctx(), template))
	w.template("t", "big", 2)
	w.charged(wl, "gpus", 2)
	w.until(wl, "-Requeued")
	w.finish(wl)
	w.usage(q, "0", "0")
}

// TestDevicesKilledAtAnyWrite: a manager that is killed while it rejects a Workload, or takes that back, leaves nothing that the next one does
// not bring to the same end. spec: 20 §4.12.
func TestDevicesKilledAtAnyWrite(t *testing.T) {
	at := cluster(t)
	launch(t, at, configured(t, mapped), only(t, "webhooks")).ready()
	lived := func(t *testing.T, p planned) (writes []string, killed bool) {
		s := newSaboteur()
		m := launch(t, at, configured(t, mapped), only(t, "-webhooks"), through(s.wrap))
		over, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for !s.isDead() {
				select {
				case <-over:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
			_ = m.end()
			m = launch(t, at, configured(t, mapped), only(t, "-webhooks"))
			<-over
		}()
		t.Run("life", func(t *testing.T) {
			w := newWorld(t)
			s.plan(w.name, p)
			rejection(w)
			writes, _ = s.result(w.name)
		})
		close(over)
		<-ended
		if err := m.end(); err != nil {
			t.Error(err)
		}
		return writes, s.isDead()
	}
	writes, _ := lived(t, planned{})
	if len(writes) < 3 {
		t.Fatalf("only %d writes in a whole life: the test lost its way", len(writes))
	}
	kills := 0
	for _, i := range embeddedtest.SampleWrites(t, writes) {
		t.Run(fmt.Sprintf("write %d, %s", i, writes[i-1]), func(t *testing.T) {
			if _, died := lived(t, planned{i, killed}); died {
				kills++
			}
		})
	}
	t.Logf("%d kills at %d writes", kills, len(writes))
	if kills == 0 {
		t.Error("no manager was killed")
	}
}

// TestDevicesOff: without the feature gate, claims hold a Workload back, or are ignored.
func TestDevicesOff(t *testing.T) {
	t.Run("held", func(t *testing.T) {
		running(t, "featureGates: {KueueDRAIntegration: false, KueueDRAIntegrationExtendedResource: false, KueueDRAIntegrationPartitionableDevices: false}")
		w := newWorld(t)
		w.queue("q", "8")
		w.rejected(w.workload("a", "q", "1", claims("any")), "KueueDRAIntegration")
	})
	t.Run("ignored", func(t *testing.T) {
		running(t, "featureGates: {KueueDRAIntegration: false, KueueDRAIntegrationExtendedResource: false, KueueDRAIntegrationPartitionableDevices: false, "+
			"KueueDRARejectWorkloadsWhenDRADisabled: false}")
		w := newWorld(t)
		w.queue("q", "8")
		w.admits(w.workload("a", "q", "1", claims("any")))
	})
}

// unserved hides resource.k8s.io from a manager, as an API server that does not serve it does, while hidden is true. It counts the requests
// for objects of the group.
type unserved struct {
	hidden atomic.Bool
	asked  atomic.Int64
}

func (u *unserved) wrap(next http.RoundTripper) http.RoundTripper {
	const group = "resource.k8s.io"
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		if !u.hidden.Load() {
			return next.RoundTrip(r)
		}
		path := strings.TrimSuffix(r.URL.Path, "/")
		if of, is := strings.CutPrefix(path, "/apis/"+group); is {
			if strings.Count(of, "/") > 1 {
				u.asked.Add(1)
			}
			return &http.Response{
				StatusCode: http.StatusNotFound, Status: "404 Not Found", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
				Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("404 page not found")),
			}, nil
		}
		if path != "/apis" {
			return next.RoundTrip(r)
		}
		r = r.Clone(r.Context())
		r.Header.Set("Accept", "application/json")
		r.Header.Del("If-None-Match")
		got, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		var list metav1.APIGroupList
		err = json.NewDecoder(got.Body).Decode(&list)
		_ = got.Body.Close()
		if err != nil {
			return nil, err
		}
		list.Groups = slices.DeleteFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
		text, err := json.Marshal(list)
		got.Body, got.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		got.Header.Set("Content-Length", strconv.Itoa(len(text)))
		got.Header.Del("Content-Encoding")
		return got, err
	})
}

// TestDevicesUnserved: an API server without resource.k8s.io has no devices, and is asked for none. spec: 20 §6 #26.
func TestDevicesUnserved(t *testing.T) {
	u := &unserved{}
	u.hidden.Store(true)
	m := running(t, mapped, through(u.wrap))
	w := newWorld(t)
	const gpu = "vendor.example.com/gpu"
	w.queue("q", "8", devices("gpus", "4"), devices(gpu, "4"))
	plain := w.workload("plain", "q", "1", func(wl *kueue.Workload) {
		r := &wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources
		r.Limits = corev1.ResourceList{gpu: resource.MustParse("3")}
	})
	w.charged(plain, gpu, 3)
	w.template("t", "big", 1)
	wl := w.workload("claims", "q", "1", claims("t"))
	w.rejected(wl, "does not serve resource.k8s.io/v1")
	if n := u.asked.Load(); n > 0 {
		t.Errorf("%d requests for objects that are not served", n)
	}
	u.hidden.Store(false) // the API server is upgraded
	w.charged(wl, "gpus", 1)
	wl = w.workload("unmapped", "q", "1", claims("later"))
	w.template("later", "other", 1)
	w.rejected(wl, "deviceClassMappings")
	w.must(m.end())
	running(t, mapped+"  - {name: others, deviceClassNames: [other]}\n")
	w.change(w.queueOf("q"), func(q *kueue.ClusterQueue) { devices("others", "1")(q) })
	w.charged(wl, "others", 1)
}

// queueOf returns a ClusterQueue by its short name.
func (w *world) queueOf(name string) *kueue.ClusterQueue {
	return read(w, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: w.own(name)}})
}
