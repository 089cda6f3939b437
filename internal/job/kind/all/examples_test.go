package all_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	decide    = "internal/job/plan/decide/decide_test.go: "
	judge     = "internal/job/gate_test.go: "
	sets      = "internal/job/plan/decide/sets_test.go: "
	slice     = "internal/job/plan/decide/slice_test.go: "
	group     = "internal/job/plan/podgroup/group_test.go: "
	suite     = "internal/job/jobtest/run.go: "
	owners    = "internal/job/jobtest/owners.go: "
	groups    = "internal/job/jobtest/groups.go: "
	live      = "internal/job/controller/jobs_test.go: "
	live2     = "internal/job/controller/examples_test.go: "
	hooks     = "internal/admission/server_test.go: "
	rules     = "internal/job/webhook/jobrules_test.go: "
	podHooks  = "internal/admission/pods_test.go: "
	batchKind = "internal/job/kind/job/job_test.go: "
	trainKind = "internal/job/kind/trainjob/trainjob_test.go: "
	gateE2E   = "test/e2e/gate_test.go: "
	jobsE2E   = "test/e2e/jobs_test.go: "
	podsE2E   = "test/e2e/groups_test.go: "
)

// examples are the acceptance examples of spec 30 §7 by number, with their tests: a file, and a text in it. Examples 48 to 58 and
// 69, of RayService, have a list of their own.
var examples = map[int][]string{
	// Ours or not.
	1:  {gateE2E + "func TestHardGate", "internal/job/jobtest/unmanaged.go: func RunUnmanaged"},
	2:  {gateE2E + `labelled.Labels = queued`},
	3:  {gateE2E + "web.Spec.Template.Annotations", podHooks + "the template was changed in an unmanaged namespace"},
	4:  {"internal/job/webhook/gate_test.go: func TestGateInTheWebhook", gateE2E + "lark.Spec.RuntimePatches", hooks + `"an unmanaged namespace is not called for"`},
	5:  {gateE2E + `"a Job in a managed namespace"`, live + `w.newJob("free")`, jobsE2E + `"a Job without a queue is left alone"`},
	6:  {owners + "func oneForAll", judge + `"two owners without labels, all"`},
	7:  {owners + "func queuedBelow", judge + `"owner without a queue, child with"`},
	8:  {podsE2E + "func overQuota"},
	9:  {suite + "func namespaceChanges", gateE2E + "func (c *cluster) testRelabelled"},
	10: {live + "func TestUnmanagedNamespace", gateE2E + "func (c *cluster) testRelabelled"},
	11: {owners + "func tooDeep", judge + `"eleven owners"`},
	12: {hooks + `"default queue and class"`},
	// Generic lifecycle.
	13: {live + "func TestLifeOfAJob", live + "func TestFailedToStart", suite + "func contradiction"},
	14: {live + "func TestEvictionRestoresWhatTheUserWrote", suite + "func preempted"},
	15: {live + "func TestEditsOfAWaitingJob", decide + `"5: an edited waiting job updates its workload"`}, // the image of a batch Job is fixed
	16: {live + "func TestEditsOfAWaitingJob", suite + "func byHand"},
	17: {live + "func TestEditsOfAWaitingJob", rules + `"queue changes while it runs"`},
	18: {decide + `"5: a surplus workload goes"`},
	19: {live2 + "func TestRecreated"},
	20: {live + "func TestDeletedWorkload"},
	21: {live2 + "func TestKilledWhileReplacing"},
	22: {live + "func TestPrebuiltWorkload", decide + `"of somebody else"`},
	23: {live + "the wrong one is out of sync", decide + `"not equivalent"`},
	24: {live + "func TestPriorityClasses"},
	25: {rules + `"class is removed"`, rules + `"time while it starts"`},
	26: {decide + `"14: deactivated by Berth, kept for now"`, decide + `"14: deactivated by Berth, deleted"`},
	27: {live2 + "func TestFinishedEventIsRecordedOnce"},
	28: {jobsE2E + "func (c *cluster) testGated", rules + `"gates later"`},
	// Batch Job.
	29: {jobsE2E + "func (c *cluster) testPartialAdmission"},
	30: {batchKind + `"indexes, failed and repeated"`},
	31: {batchKind + `"minimum is all"`, batchKind + `"minimum and elastic"`},
	32: {live + "func TestInterruptedStop", batchKind + "func TestStopFromAnywhere"},
	// Pods.
	33: {podsE2E + "func podGroup", group + `"from the first pod to the end"`},
	34: {group + `"one too many"`, groups + "a fourth is one too many"},
	35: {group + `"a pod fails and is replaced"`, groups + "a2 takes its place"},
	36: {group + `"the last pod fails and does not want a replacement"`},
	37: {groups + "all pods, before there is a workload", group + `"all are deleted before there is a workload"`},
	38: {groups + "a foreign workload of the group's name", group + `"a workload of that name is another's"`},
	39: {group + `"fast admission"`},
	// Serving kinds.
	40: {podsE2E + "func onHold", podHooks + "forbidden(t, resize(5), path)"},
	41: {sets + "func TestLeaderWorkerSet(", "test/e2e/lws_test.go: func TestLeaderWorkerSet"},
	42: {podsE2E + "func rollOut", sets + "func TestStatefulSetRollsOut"},
	// TrainJob.
	43: {suite + "func life", trainKind + "future: {field: kept}"},
	44: {trainKind + "tolerations: [{key: T1, operator: Exists}, {key: T2, operator: Exists}]"},
	45: {trainKind + "func TestRuntimes"},
	46: {trainKind + "func TestStartAndStop"}, // its job has no entry before the start
	47: {trainKind + "the patch is emptied once no Job is active", "test/training/trainjobs_test.go: func TestStartRace"},
	// Elastic, external, start-up.
	59: {slice + `"grows, and is admitted"`, slice + `"shrinks"`, "test/e2e/elastic_test.go: func TestElasticJobs"},
	60: {"internal/wire/kinds_test.go: func testChildrenOfFlows", "internal/options/validate_test.go: spec: 30 §7 example 60"},
	61: {"internal/wire/kinds_test.go: func TestConfiguredKinds", "internal/options/validate_test.go: needs featureGates.SparkApplicationIntegration"},
	62: {"internal/job/kind/appwrapper/appwrapper_test.go: func TestStartAndRestore", decide + `"15a: too many pod sets"`},
	63: {"internal/job/kind/ray/ray_test.go: \"less than least\"", "internal/job/kind/ray/ray_test.go: \"cluster: starting\""},
	64: {"internal/job/kind/kubeflow/kubeflow_test.go: func TestOffsetOfWorkers"},
	65: {live2 + "func TestAdmissionTakenBack", decide + `"16: lost its admission"`},
	66: {live + "func TestWithoutWebhook"},
	67: {live + "func TestStatusOfOthersIsRemoved"},
	68: {group + "func TestPrebuilt"},
	70: {"internal/job/kind/spark/spark_test.go: \"example 70\""},
	71: {podHooks + "A parent that is not ours", groups + "func joinLater"},
	72: {jobsE2E + "func (c *cluster) testPartialAdmission", batchKind + `"size fixed while it runs"`},
	73: {slice + `"is preempted, and comes back as it is"`, "internal/workload/plan/slices/slices_test.go: func TestGranting"},
	74: {podsE2E + "it is on hold while it is queued"},
}

// TestExamples finds examples without a test, and tests that are not there any more.
func TestExamples(t *testing.T) {
	for n := 1; n <= 74; n++ {
		if ofRayService := (n >= 48 && n <= 58) || n == 69; ofRayService {
			continue
		}
		if len(examples[n]) == 0 {
			t.Errorf("example %d has no test", n)
		}
		for _, where := range examples[n] {
			file, text, _ := strings.Cut(where, ": ")
			raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", filepath.FromSlash(file)))
			if err != nil || !strings.Contains(string(raw), text) {
				t.Errorf("example %d: %s has no %q (%v)", n, file, text, err)
			}
		}
	}
}
