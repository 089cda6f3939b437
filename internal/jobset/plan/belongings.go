package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// ensureService creates the headless Service. An existing Service of the name is used as it is (spec: 60 §4.9). A
// JobSet without replicated jobs gets one too.
func (p *pass) ensureService() {
	if !p.dns || p.o.ServiceExists {
		return
	}
	n := p.js.Spec.Network
	p.plan.Service = &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: p.subdomain, Namespace: p.js.Namespace, OwnerReferences: controllerRef(p.js)},
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 map[string]string{jobsetv1alpha2.JobSetNameKey: p.js.Name},
			PublishNotReadyAddresses: n.PublishNotReadyAddresses == nil || *n.PublishNotReadyAddresses,
		},
	}
}

// ClaimName returns the name of the claim of a template in volumeClaimPolicies.
func ClaimName(jobSet, template string) string { return template + "-" + jobSet }

// ClaimNames returns the names of all claims of a JobSet, in the order of the spec.
func ClaimNames(js *jobsetv1alpha2.JobSet) []string {
	var out []string
	for i := range js.Spec.VolumeClaimPolicies {
		for k := range js.Spec.VolumeClaimPolicies[i].Templates {
			out = append(out, ClaimName(js.Name, js.Spec.VolumeClaimPolicies[i].Templates[k].Name))
		}
	}
	return out
}

// leavingPause is the interval at which a JobSet is decided upon while a volume claim of it is being deleted.
const leavingPause = 5 * time.Second

// ensureClaims creates the missing volume claims (spec: 60 §4.11).
func (p *pass) ensureClaims() {
	for i := range p.js.Spec.VolumeClaimPolicies {
		policy := &p.js.Spec.VolumeClaimPolicies[i]
		owned := policy.RetentionPolicy != nil && policy.RetentionPolicy.WhenDeleted == jobsetv1alpha2.RetentionDelete
		var missing []*corev1.PersistentVolumeClaim
		for k := range policy.Templates {
			t := &policy.Templates[k]
			have, ok := p.o.Claims[ClaimName(p.js.Name, t.Name)]
			switch {
			case !ok:
				missing = append(missing, p.claim(t, owned))
			case have.GetDeletionTimestamp() != nil: // as soon as no pod uses it, which is no event of the JobSet
				p.wake(leavingPause)
			case owned && !metav1.IsControlledBy(have, p.js):
				p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(
					"PersistentVolumeClaim %s is used, but not made by this JobSet: it stays when the JobSet is deleted, whatever its retention policy", have.GetName()))
			}
		}
		if len(missing) > 0 {
			p.plan.Claims = append(p.plan.Claims, missing)
		}
	}
}

func (p *pass) claim(t *corev1.PersistentVolumeClaim, owned bool) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: ClaimName(p.js.Name, t.Name), Namespace: p.js.Namespace},
		Spec:       *t.Spec.DeepCopy(),
	}
	podset.Merge(&c.Labels, t.Labels)
	put(&c.Labels, jobsetv1alpha2.JobSetNameKey, p.js.Name)
	podset.Merge(&c.Annotations, t.Annotations)
	if owned {
		c.OwnerReferences = controllerRef(p.js)
	}
	return c
}

// mountClaims adds the claims that containers of a pod mount by the name of their template.
func mountClaims(js *jobsetv1alpha2.JobSet, pod *corev1.PodSpec) {
	for i := range js.Spec.VolumeClaimPolicies {
		for k := range js.Spec.VolumeClaimPolicies[i].Templates {
			name := js.Spec.VolumeClaimPolicies[i].Templates[k].Name
			if !mounts(pod, name) || hasVolume(pod, name) {
				continue
			}
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(js.Name, name)},
			}})
		}
	}
}

func mounts(pod *corev1.PodSpec, volume string) bool {
	return slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
	})
}

func hasVolume(pod *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
}
