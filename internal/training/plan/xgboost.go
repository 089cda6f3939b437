package plan

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Reserved variables of XGBoost's tracker.
var xgboostReserved = []string{"DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"}

// applyXGBoost sets the variables of the tracker: one worker for each GPU, or one for each node (spec: 50 §4.6).
func (b *builder) applyXGBoost() {
	b.setTrainerEnv()
	r := b.resources()
	workers := int64(b.nodes()) * int64(max(b.Config.gpus(&r), 1))
	for _, c := range b.trainerContainers() {
		setEnv(&c.Env,
			corev1.EnvVar{Name: xgboostReserved[0], Value: b.master()},
			corev1.EnvVar{Name: xgboostReserved[1], Value: strconv.Itoa(rendezvousPort)},
			corev1.EnvVar{Name: xgboostReserved[2], ValueFrom: index()},
			corev1.EnvVar{Name: xgboostReserved[3], Value: strconv.FormatInt(workers, 10)},
		)
		openPort(c)
	}
}
