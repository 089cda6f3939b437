package install

import (
	"fmt"
	"strings"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// OnlyV1beta2 reads the value of --api-versions, the served versions of the queueing API separated by commas: "" is both. v1beta2 is always
// served, for the manager uses it.
func OnlyV1beta2(list string) (bool, error) {
	if list == "" {
		return false, nil
	}
	named := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name != kueue.GroupVersion.Version && name != kueuev1beta1.GroupVersion.Version {
			return false, fmt.Errorf("--api-versions %q: %q is no version of %s; there are v1beta1 and v1beta2", list, name, kueue.GroupVersion.Group)
		}
		named[name] = true
	}
	if !named[kueue.GroupVersion.Version] {
		return false, fmt.Errorf("--api-versions %q: v1beta2 must be served, for the manager uses it", list)
	}
	return !named[kueuev1beta1.GroupVersion.Version], nil
}
