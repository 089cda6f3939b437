package provisioning

import (
	"crypto/sha1" //nolint:gosec // names, no secrets
	"encoding/hex"
	"fmt"
)

// maxName is how many bytes of a name are kept.
const maxName = 247

// RequestName returns the name of a ProvisioningRequest: <workload>-<check>-<attempt>.
func RequestName(workload, check string, attempt int) string {
	return shortened(fmt.Sprintf("%s-%s-%d", workload, check, attempt))
}

// TemplateName returns the name of the PodTemplate of a pod set: ppt-<request>-<pod set>.
func TemplateName(request, podSet string) string { return shortened("ppt-" + request + "-" + podSet) }

// shortened cuts a long name and appends a hash of the whole one.
func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha1.Sum([]byte(name)) //nolint:gosec // clients know these names
	return name[:maxName] + "-" + hex.EncodeToString(sum[:])[:5]
}
