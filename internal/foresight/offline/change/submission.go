package change

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/foresight/offline"
	"github.com/berth-project/berth/internal/options/strict"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// mostPods is how many pods a Submission has at most.
const mostPods = 1_000_000

// Submission is a new Workload with one pod set, in the words of a user.
type Submission struct {
	Namespace string `json:"namespace"`
	Queue     string `json:"queue"`
	Pods      string `json:"pods"`
	Requests  string `json:"requests"` // of a pod: cpu=2, memory=8Gi
	// PriorityClass is a WorkloadPriorityClass, and Priority a number instead; one of both, or neither.
	PriorityClass string `json:"priorityClass"`
	Priority      string `json:"priority"`
	RunTime       string `json:"runTime"` // as in 1h30m, empty for unknown
	// Topology is required or preferred, for pods within one domain of a Level, or empty.
	Topology string `json:"topology"`
	Level    string `json:"level"`
}

// submit adds the Workload of the Submission, if there is one.
func (e *edit) submit() (failed Mistakes) {
	s := e.change.Submit
	if s == nil {
		return nil
	}
	wrong := func(field string, err error) {
		if err != nil {
			failed = append(failed, &Mistake{OfSubmit, 0, field, err})
		}
	}
	w := &kueue.Workload{}
	w.Namespace, w.Name = s.Namespace, e.freeName(s.Namespace)
	w.Spec.QueueName = kueue.LocalQueueName(s.Queue)
	pods, err := strconv.Atoi(s.Pods)
	if err != nil || pods < 1 || pods > mostPods {
		wrong("pods", fmt.Errorf("must be a whole number from 1 to %d", mostPods))
	}
	requests, err := parseRequests(s.Requests)
	wrong("requests", err)
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: int32(min(max(pods, 1), mostPods)), Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}}},
	}}}
	wrong(e.setPriority(s, w))
	wrong("runTime", setRunTime(s, w))
	cq, field, err := e.queueOf(s)
	wrong(field, err)
	if cq != nil {
		wrong("requests", e.offers(cq, w))
		wrong("level", e.setLevel(s, w, cq))
	}
	if len(failed) > 0 {
		return failed
	}
	if err := e.add(w, "queue", func(path, detail string) error { return &Mistake{OfSubmit, 0, path, errors.New(detail)} }); err != nil {
		wrong("", err)
	}
	return failed
}

// freeName returns the name of a new Workload that none has.
func (e *edit) freeName(namespace string) string {
	name := "what-if"
	for n := 2; ; n++ {
		if _, taken := offline.GetIn[*kueue.Workload](e.after, namespace, name); !taken {
			return name
		}
		name = fmt.Sprintf("what-if-%d", n)
	}
}

// parseRequests reads amounts such as cpu=2, memory=8Gi.
func parseRequests(text string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, part := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == '\n' }) {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, amount, both := strings.Cut(part, "=")
		name, amount = strings.TrimSpace(name), strings.TrimSpace(amount)
		q, err := apiresource.ParseQuantity(amount)
		_, twice := out[corev1.ResourceName(name)]
		switch {
		case !both || name == "":
			return nil, fmt.Errorf("%q must be a resource and an amount, as in cpu=2, memory=8Gi", part)
		case err != nil || q.Sign() < 0:
			return nil, fmt.Errorf("%s: %q is no amount, such as 2 or 8Gi", name, amount)
		case twice:
			return nil, fmt.Errorf("%s is there twice", name)
		}
		out[corev1.ResourceName(name)] = q
	}
	if len(out) == 0 {
		return nil, errors.New("must have at least one resource, as in cpu=2, memory=8Gi")
	}
	return out, nil
}

func (e *edit) setPriority(s *Submission, w *kueue.Workload) (field string, err error) {
	if s.PriorityClass != "" && s.Priority != "" {
		return "priority", errors.New("give a class or a number, not both")
	}
	if s.PriorityClass != "" {
		class, known := offline.Get[*kueue.WorkloadPriorityClass](e.after, s.PriorityClass)
		if !known {
			var names []string
			for _, of := range offline.All[*kueue.WorkloadPriorityClass](e.after) {
				names = append(names, of.Name)
			}
			return "priorityClass", fmt.Errorf("there is no WorkloadPriorityClass %s: %s", s.PriorityClass, strict.OrAll(s.PriorityClass, names))
		}
		w.Spec.PriorityClassRef = &kueue.PriorityClassRef{Group: kueue.WorkloadPriorityClassGroup, Kind: kueue.WorkloadPriorityClassKind, Name: class.Name}
		w.Spec.Priority = new(class.Value)
		return "", nil
	}
	n, err := strconv.ParseInt(cmp.Or(s.Priority, "0"), 10, 32)
	if err != nil {
		return "priority", fmt.Errorf("%q is not a whole number, such as 100", s.Priority)
	}
	w.Spec.Priority = new(int32(n))
	return "", nil
}

func setRunTime(s *Submission, w *kueue.Workload) error {
	if s.RunTime == "" {
		return nil
	}
	length, err := time.ParseDuration(s.RunTime)
	if err != nil || length < time.Second {
		return fmt.Errorf("%q is no time of a second or more, such as 1h30m", s.RunTime)
	}
	w.Annotations = map[string]string{berthv1alpha1.ExpectedRunSecondsKey: strconv.FormatInt(int64(length/time.Second), 10)}
	if err := convert.ValidateRunTimes(w); err != nil {
		return fmt.Errorf("%s is too long", s.RunTime)
	}
	return nil
}

// queueOf returns the ClusterQueue of a Submission; field is what an error is about.
func (e *edit) queueOf(s *Submission) (cq *kueue.ClusterQueue, field string, err error) {
	var namespaces, names []string
	for _, lq := range offline.All[*kueue.LocalQueue](e.after) {
		if !slices.Contains(namespaces, lq.Namespace) {
			namespaces = append(namespaces, lq.Namespace)
		}
		if lq.Namespace == s.Namespace {
			names = append(names, lq.Name)
		}
	}
	if len(names) == 0 {
		return nil, "namespace", fmt.Errorf("no namespace %s has LocalQueues: %s", s.Namespace, strict.OrAll(s.Namespace, namespaces))
	}
	lq, known := offline.GetIn[*kueue.LocalQueue](e.after, s.Namespace, s.Queue)
	if !known {
		return nil, "queue", fmt.Errorf("there is no LocalQueue %s/%s: %s", s.Namespace, s.Queue, strict.OrAll(s.Queue, names))
	}
	cq, known = offline.Get[*kueue.ClusterQueue](e.after, string(lq.Spec.ClusterQueue))
	if !known {
		return nil, "queue", fmt.Errorf("its ClusterQueue %s does not exist", lq.Spec.ClusterQueue)
	}
	return cq, "", nil
}

// offers returns an error for requests of a resource that a ClusterQueue does not offer.
func (e *edit) offers(cq *kueue.ClusterQueue, w *kueue.Workload) error {
	if e.b.IgnoreUndeclared {
		return nil
	}
	var offered []string
	for _, g := range cq.Spec.ResourceGroups {
		for _, r := range g.CoveredResources {
			offered = append(offered, string(r))
		}
	}
	def := convert.Workload(w, e.b.requests(e.after))
	for i := range def.PodSets {
		for _, r := range def.PodSets[i].Requests {
			if r.Amount > 0 && !slices.Contains(offered, r.Resource) {
				return fmt.Errorf("ClusterQueue %s does not offer %s: it offers %s", cq.Name, r.Resource, cmp.Or(strings.Join(offered, ", "), "nothing"))
			}
		}
	}
	return nil
}

// setLevel sets the request of a topology, for a level of a flavor of the ClusterQueue.
func (e *edit) setLevel(s *Submission, w *kueue.Workload, cq *kueue.ClusterQueue) error {
	switch {
	case s.Topology == "" && s.Level == "":
		return nil
	case s.Topology != "required" && s.Topology != "preferred":
		return errors.New("a level is required or preferred")
	case !e.b.Requests.Topology:
		return errors.New("this manager places no pods by topology: the feature gate TopologyAwareScheduling is off")
	}
	levels := e.levelsOf(cq)
	if s.Level == "" {
		return fmt.Errorf("must name a level of a topology: %s", strict.OrAll("", levels))
	}
	if !slices.Contains(levels, s.Level) {
		return fmt.Errorf("no flavor of ClusterQueue %s has a topology with the level %s: %s", cq.Name, s.Level, strict.OrAll(s.Level, levels))
	}
	request := &kueue.PodSetTopologyRequest{}
	if s.Topology == "required" {
		request.Required = &s.Level
	} else {
		request.Preferred = &s.Level
	}
	w.Spec.PodSets[0].TopologyRequest = request
	return nil
}

// levelsOf returns the levels of the topologies of a ClusterQueue's flavors.
func (e *edit) levelsOf(cq *kueue.ClusterQueue) (levels []string) {
	for _, g := range cq.Spec.ResourceGroups {
		for i := range g.Flavors {
			f, known := offline.Get[*kueue.ResourceFlavor](e.after, string(g.Flavors[i].Name))
			if !known {
				continue
			}
			t, known := offline.Get[*kueue.Topology](e.after, string(f.Spec.TopologyName))
			if !known {
				continue
			}
			for _, level := range t.Spec.Levels {
				if !slices.Contains(levels, level.NodeLabel) {
					levels = append(levels, level.NodeLabel)
				}
			}
		}
	}
	return levels
}
