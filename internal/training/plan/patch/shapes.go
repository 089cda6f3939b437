package patch

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volume checks a volume of an entry, and the merged volume: a patch of a volume of the runtime may omit its fields.
func (c *podCheck) volume(vol *corev1.Volume, at *field.Path) {
	for _, text := range validation.IsDNS1123Label(vol.Name) {
		c.v.refuse(DeniedContent, field.Invalid(at.Child("name"), vol.Name, text))
	}
	if sources := members(&vol.VolumeSource); len(sources) > 1 {
		c.v.refuse(DeniedContent, field.Invalid(at, vol.Name, "must have one source, and has several: "+strings.Join(sources, ", ")))
		return
	}
	if slices.Contains(c.reserved.Volumes, vol.Name) {
		c.v.refuse(DeniedContent, field.Forbidden(at.Child("name"), vol.Name+" is a volume that the runtime's policy adds"))
	}
	for i := range c.pod.Volumes {
		if c.pod.Volumes[i].Name == vol.Name {
			c.v.refuse(DeniedContent, validateSource(&c.pod.Volumes[i].VolumeSource, at)...)
		}
	}
}

func validateSource(s *corev1.VolumeSource, at *field.Path) (errs field.ErrorList) {
	required := func(kind, name, value string) {
		if value == "" {
			errs = append(errs, field.Required(at.Child(kind, name), "must be set"))
		}
	}
	switch {
	case s.Secret != nil:
		required("secret", "secretName", s.Secret.SecretName)
	case s.ConfigMap != nil:
		required("configMap", "name", s.ConfigMap.Name)
	case s.PersistentVolumeClaim != nil:
		required("persistentVolumeClaim", "claimName", s.PersistentVolumeClaim.ClaimName)
	case s.HostPath != nil:
		required("hostPath", "path", s.HostPath.Path)
	case s.NFS != nil:
		required("nfs", "server", s.NFS.Server)
		required("nfs", "path", s.NFS.Path)
	case s.CSI != nil:
		required("csi", "driver", s.CSI.Driver)
	case s.Image != nil:
		required("image", "reference", s.Image.Reference)
	case s.Ephemeral != nil && s.Ephemeral.VolumeClaimTemplate == nil:
		errs = append(errs, field.Required(at.Child("ephemeral", "volumeClaimTemplate"), "must be set"))
	case s.EmptyDir != nil:
		return validateEmptyDir(s.EmptyDir, at.Child("emptyDir"))
	case s.Projected != nil:
		for i := range s.Projected.Sources {
			if n := len(members(&s.Projected.Sources[i])); n != 1 {
				errs = append(errs, field.Invalid(at.Child("projected", "sources").Index(i), n, "must have exactly one source"))
			}
		}
	}
	return errs
}

func validateEmptyDir(e *corev1.EmptyDirVolumeSource, at *field.Path) (errs field.ErrorList) {
	media := []corev1.StorageMedium{corev1.StorageMediumDefault, corev1.StorageMediumMemory, corev1.StorageMediumHugePages}
	if !slices.Contains(media, e.Medium) && !strings.HasPrefix(string(e.Medium), string(corev1.StorageMediumHugePagesPrefix)) {
		errs = append(errs, field.NotSupported(at.Child("medium"), e.Medium, media))
	}
	if limit := e.SizeLimit; limit != nil && limit.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("sizeLimit"), limit.String(), "must be 0 or more"))
	}
	return errs
}

func (c *podCheck) mount(m *corev1.VolumeMount, at *field.Path, container string, seen map[string]bool, init bool) {
	v := c.v
	switch {
	case m.MountPath == "":
		v.refuse(DeniedContent, field.Required(at.Child("mountPath"), "must be set"))
	case strings.Contains(m.MountPath, ":"):
		v.refuse(DeniedContent, field.Invalid(at.Child("mountPath"), m.MountPath, "must not contain ':'"))
	case seen[m.MountPath]:
		v.refuse(DeniedContent, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
	}
	seen[m.MountPath] = true
	if !c.volumes[m.Name] {
		v.refuse(DeniedContent, field.NotFound(at.Child("name"), m.Name))
	}
	if !init && slices.Contains(c.reserved.Mounts[container], Clean(m.MountPath)) {
		v.refuse(DeniedContent, field.Forbidden(at.Child("mountPath"), m.MountPath+" is where the runtime's policy mounts a volume"))
	}
	if m.SubPath != "" && m.SubPathExpr != "" {
		v.refuse(DeniedContent, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
	}
	for _, sub := range [][2]string{{"subPath", m.SubPath}, {"subPathExpr", m.SubPathExpr}} {
		if strings.HasPrefix(sub[1], "/") || slices.Contains(strings.Split(sub[1], "/"), "..") {
			v.refuse(DeniedContent, field.Invalid(at.Child(sub[0]), sub[1], "must be a relative path without '..'"))
		}
	}
	if p := m.MountPropagation; p != nil {
		known := []corev1.MountPropagationMode{corev1.MountPropagationNone, corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional}
		if !slices.Contains(known, *p) {
			v.refuse(DeniedContent, field.NotSupported(at.Child("mountPropagation"), *p, known))
		}
	}
}

func validateVariable(e *corev1.EnvVar, at *field.Path) (errs field.ErrorList) {
	if e.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must be set"))
	} else {
		for _, text := range validation.IsRelaxedEnvVarName(e.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), e.Name, text))
		}
	}
	switch {
	case e.ValueFrom == nil:
	case e.Value != "":
		errs = append(errs, field.Invalid(at.Child("valueFrom"), "", "may not be set when value is not empty"))
	case len(members(e.ValueFrom)) != 1:
		errs = append(errs, field.Invalid(at.Child("valueFrom"), "", "must have exactly one source"))
	}
	return errs
}

func validateToleration(t *corev1.Toleration, at *field.Path) (errs field.ErrorList) {
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
	}
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when key is empty, which means all taints"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set"))
	}
	operators := []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}
	switch {
	case t.Operator == corev1.TolerationOpExists && t.Value != "":
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty when operator is Exists"))
	case t.Operator == "" || t.Operator == corev1.TolerationOpEqual:
		for _, text := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, text))
		}
	case !slices.Contains(operators, t.Operator):
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, operators))
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if t.Effect != "" && !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, effects))
	}
	return errs
}

// Clean returns a path without empty and dot elements, to compare paths.
func Clean(p string) string { return path.Clean("/" + p) }
