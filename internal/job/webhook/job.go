package webhook

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/review"
)

// defaultName is the name of the LocalQueue, and of the WorkloadPriorityClass, for jobs that name none.
const defaultName = "default"

// managed reports whether Berth may touch objects in the namespace. It reads no owner.
func (s *server) managed(ctx context.Context, namespace string) (bool, error) {
	return s.gate.IsManaged(ctx, namespace)
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues;localqueues;admissionchecks;workloadpriorityclasses,verbs=get;list;watch

func (s *server) exists(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	err := s.reader.Get(ctx, key, object)
	return err == nil, client.IgnoreNotFound(err)
}

// defaultJob suspends a new job until its admission (spec: 30 §3.1). A job that ran is marked, so that it is resumed when it leaves
// management.
func (s *server) defaultJob(d *job.Descriptor) review.Defaulter {
	return func(ctx context.Context, req *admission.Request, object client.Object) error {
		if d.Serving {
			return s.defaultAny(d)(ctx, req, object)
		}
		ran := !d.IsSuspended(object)
		err := s.defaultAny(d)(ctx, req, object)
		switch suspended := d.IsSuspended(object); {
		case err != nil:
		case ran && suspended:
			job.MarkSuspended(object)
		case !suspended && req.Operation == admissionv1.Update:
			if ok, e := s.managed(ctx, req.Namespace); e == nil && ok {
				job.UnmarkSuspended(object)
			}
		}
		return err
	}
}

func (s *server) defaultAny(d *job.Descriptor) review.Defaulter {
	return func(ctx context.Context, req *admission.Request, object client.Object) error {
		if req.Operation == admissionv1.Update && !d.Serving {
			return s.changeJob(ctx, d, req, object)
		}
		if ok, err := s.managed(ctx, req.Namespace); err != nil || !ok {
			return err
		}
		switch claimed := d.Claimed != nil && d.Claimed(object); {
		case claimed:
			d.Default(object, false, &job.Setting{Config: s.o.Jobs})
			return nil
		case d.Once != nil && s.o.Jobs.PodsOfParentsOnly:
			return nil
		}
		var old client.Object
		if req.Operation == admissionv1.Update {
			var err error
			if old, err = review.Decode[client.Object](req.OldObject, d.GVK.Kind, d.New()); err != nil {
				return err
			}
		}
		return s.queueJob(ctx, d, req.Namespace, object, old)
	}
}

// queueJob suspends a new job, or a changed one that serves, that no ancestor has a Workload for. old is nil for a new one.
func (s *server) queueJob(ctx context.Context, d *job.Descriptor, namespace string, object, old client.Object) error {
	v, err := s.judge(ctx, d, namespace, object)
	if err != nil {
		return err
	}
	if serves := s.servingKind(d, &v); serves != nil {
		return s.markServed(ctx, d, serves, namespace, object.(*corev1.Pod), v.Ancestor.Object)
	}
	if err := s.defaultLabels(ctx, namespace, object, old, v.IsPart || v.Resumed); err != nil {
		return err
	}
	s.manageByDefault(&v, object)
	sent := object.DeepCopyObject().(client.Object)
	mode := v.Mode
	if mode == job.Managed {
		suspendJob(ctx, d, object, &v)
	}
	if !v.Resumed {
		if err := s.delegate(ctx, d, namespace, object); err != nil {
			return err
		}
	}
	if d.Default == nil {
		return nil
	}
	in, err := s.setting(ctx, d, object)
	if err != nil {
		return err
	}
	in.Mode, in.Ancestor = mode, v.Ancestor
	if d.Guard != nil {
		if err := s.siblings(ctx, d, &v, in); err != nil {
			return err
		}
		warnings, _ := d.Guard.Check(sent, nil, in)
		review.Advise(ctx, warnings...)
	}
	d.Default(object, mode == job.Managed, in)
	return nil
}

// manageByDefault makes an object managed that has got the default queue.
func (s *server) manageByDefault(v *job.Verdict, object client.Object) {
	if v.Mode == job.Ignored && !v.Resumed && s.isQueued(object) && !s.isBeingDeleted(object) {
		v.Mode = job.Managed
	}
}

// markServed gives a pod of an object that serves what the template of its pods has, and its gates.
func (s *server) markServed(ctx context.Context, d, serves *job.Descriptor, namespace string, pod *corev1.Pod, owner metav1.Object) error {
	template := corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta}
	serves.ServePods(&template, owner)
	pod.ObjectMeta = template.ObjectMeta
	if err := s.defaultLabels(ctx, namespace, pod, nil, serves.Sets != nil); err != nil {
		return err
	}
	d.Default(pod, false, &job.Setting{Config: s.o.Jobs})
	return nil
}

// servingKind returns the kind that a new pod follows and that has its pods queued; nil for none. The template of such a pod did not have the
// marks: the pod is older than they are, or a user has made it. Unverified owners are trusted. Pods that are queued in groups take
// the queue of their owner, and without one they would wait for ever.
func (s *server) servingKind(d *job.Descriptor, v *job.Verdict) *job.Descriptor {
	if d.Once == nil || v.Mode != job.Follows || !s.o.Jobs.VerifyOwners {
		return nil
	}
	at := slices.IndexFunc(s.descriptors, func(x *job.Descriptor) bool {
		return x.ServePods != nil && x.GVK == v.Ancestor.GVK && (x.Sets == nil || job.QueueName(v.Ancestor.Object) != "")
	})
	if at < 0 {
		return nil
	}
	return s.descriptors[at]
}

// suspendJob suspends a job that gets a Workload, and warns a user whose job is not queued with its owner.
func suspendJob(ctx context.Context, d *job.Descriptor, object client.Object, v *job.Verdict) {
	if !d.Serving && !d.IsSuspended(object) && !d.Skips(object) {
		d.Suspend(object)
	}
	if v.NotMade != nil {
		review.Advise(ctx, "metadata.ownerReferences: the object is queued by itself, and not with its owner: "+v.NotMade.Error())
	}
}

// changeJob keeps the gates and suspend fields of a changed job, and handles user stops.
func (s *server) changeJob(ctx context.Context, d *job.Descriptor, req *admission.Request, object client.Object) error {
	if d.Guard != nil {
		if err := s.guard(ctx, d, req, object); err != nil {
			return err
		}
	}
	if hasUserStop(s.o, d) {
		return s.userStop(ctx, d, req, object)
	}
	return nil
}

// defaultLabels sets the default queue and the default priority class, where they exist, on a new job that is not part of another one. A
// changed job keeps the ones that it has, and gets no others: the rules for changes would refuse them. spec: 30 §5.5.
func (s *server) defaultLabels(ctx context.Context, namespace string, object, old client.Object, isPart bool) error {
	if isPart {
		return nil
	}
	lacks := func(key string) bool {
		return object.GetLabels()[key] == "" && (old == nil || old.GetLabels()[key] == defaultName)
	}
	if lacks(kueue.QueueNameLabel) {
		found, err := s.exists(ctx, client.ObjectKey{Namespace: namespace, Name: defaultName}, &kueue.LocalQueue{})
		if err != nil {
			return err
		}
		if found {
			setLabel(object, kueue.QueueNameLabel)
		}
	}
	if s.o.Jobs.DefaultPriorityClass && lacks(kueue.PriorityClassLabel) {
		// The default priority is optional: an error must not refuse the job.
		if found, err := s.exists(ctx, client.ObjectKey{Name: defaultName}, &kueue.WorkloadPriorityClass{}); err == nil && found {
			setLabel(object, kueue.PriorityClassLabel)
		}
	}
	return nil
}

func setLabel(object client.Object, key string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = defaultName
	object.SetLabels(labels)
}

func (s *server) setting(ctx context.Context, d *job.Descriptor, object client.Object) (*job.Setting, error) {
	objects, err := s.gate.Refer(ctx, d, object)
	return &job.Setting{Config: s.o.Jobs, Objects: objects}, err
}

// isBeingDeleted reports whether an object is being deleted, and its owners are no longer followed.
func (s *server) isBeingDeleted(object client.Object) bool {
	return object.GetDeletionTimestamp() != nil && s.o.Jobs.SkipOwnersWhenDeleting
}

// judge asks the hard gate about a new object, or a changed one that serves (spec: 30 §4.2.3).
func (s *server) judge(ctx context.Context, d *job.Descriptor, namespace string, object client.Object) (job.Verdict, error) {
	if s.isBeingDeleted(object) {
		return job.Verdict{Mode: job.Ignored, IsPart: s.o.Jobs.HasManagedOwner(object)}, nil
	}
	v, err := s.gate.Judge(ctx, d, namespace, object)
	switch {
	case err != nil:
		return v, err
	case v.Err != nil:
		return v, review.Refuse(field.ErrorList{field.Forbidden(field.NewPath("metadata", "ownerReferences"), v.Err.Error())})
	}
	return v, nil
}

// delegate sets managedBy of a job whose queue has a MultiKueue check.
func (s *server) delegate(ctx context.Context, d *job.Descriptor, namespace string, object client.Object) error {
	queue := job.QueueName(object)
	if !s.o.Jobs.MultiKueue || d.ManagedBy == nil || queue == "" {
		return nil
	}
	if name := d.ManagedBy(object); name != "" && name != d.OwnManager {
		return nil
	}
	var lq kueue.LocalQueue
	var cq kueue.ClusterQueue
	if found, err := s.exists(ctx, client.ObjectKey{Namespace: namespace, Name: queue}, &lq); err != nil || !found {
		return err
	}
	if found, err := s.exists(ctx, client.ObjectKey{Name: string(lq.Spec.ClusterQueue)}, &cq); err != nil || !found || cq.Spec.AdmissionChecksStrategy == nil {
		return err
	}
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		var check kueue.AdmissionCheck
		found, err := s.exists(ctx, client.ObjectKey{Name: string(rule.Name)}, &check)
		if err != nil {
			return err
		}
		if found && check.Spec.ControllerName == kueue.MultiKueueControllerName {
			d.SetManagedBy(object, kueue.MultiKueueControllerName)
			return nil
		}
	}
	return nil
}

// validateJob checks the labels and annotations of a job, and the rules of its kind (spec: 30 §3.2).
func (s *server) validateJob(d *job.Descriptor) review.Validator {
	return func(ctx context.Context, req *admission.Request, object, old client.Object) error {
		if ok, err := s.managed(ctx, req.Namespace); err != nil || !ok {
			return err
		}
		if err := s.checkJob(ctx, d, req.Namespace, object, old); err != nil {
			return err
		}
		if pod, ok := object.(*corev1.Pod); ok && old != nil {
			if err := s.keepGates(ctx, req, pod, old.(*corev1.Pod)); err != nil {
				return err
			}
		}
		if d.Once != nil && d.Once.Warn != nil {
			review.Advise(ctx, d.Once.Warn(object, old, s.o.Jobs)...)
		}
		return nil
	}
}

// checkJob refuses a job in a managed namespace. A stored job may break a rule already, if a setting has changed since: that rule does not
// refuse its changes, so that it can be stopped and deleted, unless it enters its queue.
func (s *server) checkJob(ctx context.Context, d *job.Descriptor, namespace string, object, old client.Object) error {
	if s.isFree(d, object, old) {
		return nil
	}
	errs, err := s.applyRules(ctx, d, namespace, object, old)
	if err != nil {
		return err
	}
	if len(errs) > 0 && old != nil && (s.isQueued(old) || !s.isQueued(object)) {
		before, err := s.applyRules(ctx, d, namespace, old, old)
		if err != nil {
			return err
		}
		errs = slices.DeleteFunc(errs, func(e *field.Error) bool {
			return slices.ContainsFunc(before, func(b *field.Error) bool { return ruleOf(e) == ruleOf(b) })
		})
	}
	return review.Refuse(errs)
}

// ruleOf identifies a rule with the value that breaks it. An error with an origin has a message that depends on other fields.
func ruleOf(e *field.Error) string {
	rule := *e
	rule.Detail = cmp.Or(e.Origin, e.Detail)
	return rule.Error()
}

// applyRules returns the errors of a new job, or a changed one.
func (s *server) applyRules(ctx context.Context, d *job.Descriptor, namespace string, object, old client.Object) (field.ErrorList, error) {
	rules := jobRules{cfg: s.o.Jobs, d: d, job: object, old: old}
	var errs field.ErrorList
	if old == nil {
		if errs = rules.create(); s.o.Jobs.IsQueued(object) {
			review.Advise(ctx, rules.shortened()...)
		}
	} else {
		if err := s.defaultQueue(ctx, namespace, &rules); err != nil {
			return nil, err
		}
		errs = rules.update()
	}
	if d.Validate == nil && d.Sizes == nil {
		return errs, nil
	}
	in, err := s.setting(ctx, d, object)
	if err != nil {
		return nil, err
	}
	var before job.Object // nil, and not an interface around nil, for a new job
	if old != nil {
		before = old
	}
	errs = append(errs, in.ValidateSize(d, object, before)...)
	if d.Validate != nil {
		errs = append(errs, d.Validate(object, before, in)...)
	}
	if len(errs) == 0 {
		errs = in.ValidatePodSets(d, object, before)
	}
	if old == nil && len(errs) == 0 && s.o.Jobs.IsQueued(object) {
		review.Advise(ctx, in.Warnings...)
	}
	return errs, nil
}

// isFree reports whether no rule applies to an object, though its namespace is managed.
func (s *server) isFree(d *job.Descriptor, object, old client.Object) bool {
	if d.Once != nil && s.o.Jobs.PodsOfParentsOnly && !d.Claimed(object) && (old == nil || !d.Claimed(old)) {
		return true
	}
	if d.Serving && d.Claimed != nil && d.Claimed(object) {
		return true
	}
	return old != nil && d.FreeUnmanaged && !s.isQueued(object) && (d.FreeLeaving || !s.isQueued(old))
}

// isQueued reports whether a job without an ancestor has a Workload.
func (s *server) isQueued(object client.Object) bool {
	return s.o.Jobs.IsQueued(object)
}

// defaultQueue reads the default queue if the job's queue name is removed.
func (s *server) defaultQueue(ctx context.Context, namespace string, rules *jobRules) error {
	if job.QueueName(rules.old) == "" || job.QueueName(rules.job) != "" {
		return nil
	}
	found, err := s.exists(ctx, client.ObjectKey{Namespace: namespace, Name: defaultName}, &kueue.LocalQueue{})
	if err != nil {
		return fmt.Errorf("looking for the default queue: %w", err)
	}
	rules.hasDefaultQueue = found
	return nil
}
