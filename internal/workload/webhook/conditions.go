package webhook

import (
	"strings"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Match conditions are CEL, which the API server evaluates. They avoid calls for requests that the webhook would simply
// allow: most writes of a Workload are of its status, and a call costs both sides more than the rest of the
// write. A condition depends on the objects, never on the user, and it may only be false where
// the handler would allow without a warning; that is tested. An error in one refuses the request, so a condition reads
// no field as present that the schema does not require.

// judged is false for an update of a Workload or of its status that leaves everything unchanged that validateWorkload
// checks, or changes it in an evidently valid way. It skips the writes by which workloads are admitted, evicted and finished, if
// their amounts are in plain numbers.
var judged = strings.Join([]string{
	`request.operation != 'UPDATE'`,
	`object.?spec != oldObject.?spec`,
	`object.metadata.?annotations != oldObject.metadata.?annotations`,
	parent("object") + ` != ` + parent("oldObject"),
	`object.?status.?reclaimablePods != oldObject.?status.?reclaimablePods`,
	`object.?status.?clusterName != oldObject.?status.?clusterName`,
	`[object, oldObject].exists(w, w.?status.?admissionChecks.orValue([]).exists(c, has(c.podSetUpdates)))`,
	// The rules of conditions beyond the schema: types are shorter, texts are counted in bytes, and times have a year.
	`object.?status.?conditions.orValue([]).exists(c, c.type.size() > 63 || c.message.size() > 8192 || !(type(c.lastTransitionTime) == string && c.lastTransitionTime.startsWith('2')))`,
	`has(object.status) && has(object.status.admission) && oldObject.?status.?admission.hasValue() && object.status.admission != oldObject.status.admission`,
	reserved("object") + ` && !(` + reserved("oldObject") + ` && has(oldObject.status.admission) && has(object.status.admission)) && !(` + plainAdmission + `)`,
}, " ||\n")

func parent(object string) string {
	return object + `.metadata.?labels[?'` + kueue.ConcurrentAdmissionParentLabel + `'].orValue('')`
}

func reserved(object string) string {
	return object + `.?status.?conditions.orValue([]).exists(c, c.type == 'QuotaReserved' && c.status == 'True')`
}

// plainAdmission is true if the admission names existing pod sets, and if each amount is written as a multiple of
// the count: 8Gi for 4 pods is, by the 8 alone. Thousandths are exact for processors only; other
// resources round them up.
const plainAdmission = `has(object.status.admission) && object.status.admission.?podSetAssignments.orValue([]).all(a,
  object.spec.podSets.exists(p, p.name == a.name) && (a.?count.orValue(0) == 0 || a.?resourceUsage.orValue({}).all(r,
    string(a.resourceUsage[r]).matches(r == 'cpu' ? '^[0-9]{1,12}m?$' : '^[0-9]{1,6}([kMGT]|[KMGT]i)$|^[0-9]{1,15}$') &&
    int(string(a.resourceUsage[r]).find('^[0-9]+')) % a.count == 0)))`

// defaulted is true if defaultWorkload might change a new Workload, or if its spec is missing. It is evaluated before the
// schema: && is false where one side is, whatever the other one is, so that malformed objects count as to be defaulted.
const defaulted = `!(has(object.spec) && type(object.spec) == map && (!has(object.spec.podSets) ||
  type(object.spec.podSets) == list && object.spec.podSets.all(p, type(p) == map && !has(p.minCount))))`
