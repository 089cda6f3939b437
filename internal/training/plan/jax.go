package plan

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

const (
	jaxProcesses   = "JAX_NUM_PROCESSES"
	jaxProcessID   = "JAX_PROCESS_ID"
	jaxCoordinator = "JAX_COORDINATOR_ADDRESS"
)

// applyJAX sets the variables of JAX (spec: 50 §4.6). The user's variables override them.
func (b *builder) applyJAX() {
	for _, c := range b.trainerContainers() {
		setEnv(&c.Env,
			corev1.EnvVar{Name: jaxProcesses, Value: itoa(b.nodes())},
			corev1.EnvVar{Name: jaxProcessID, ValueFrom: index()},
			corev1.EnvVar{Name: jaxCoordinator, Value: b.master() + ":" + strconv.Itoa(rendezvousPort)},
		)
		openPort(c)
	}
}
