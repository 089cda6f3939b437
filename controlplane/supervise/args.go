package supervise

import (
	"fmt"
	"strconv"
)

// ports of a control plane, all on 127.0.0.1.
type ports struct{ apiServer, etcd, etcdPeer int }

func (p ports) server() string  { return fmt.Sprintf("https://127.0.0.1:%d", p.apiServer) }
func (p ports) etcdURL() string { return fmt.Sprintf("https://127.0.0.1:%d", p.etcd) }

func etcdArgs(d dir, p pki, ports ports) []string {
	peer := fmt.Sprintf("https://127.0.0.1:%d", ports.etcdPeer)
	return []string{
		"--name=berth",
		"--data-dir=" + d.path("etcd"),
		"--listen-client-urls=" + ports.etcdURL(),
		"--advertise-client-urls=" + ports.etcdURL(),
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=berth=" + peer,
		"--socket-reuse-port", // see Reservation
		"--cert-file=" + p.file("etcd.crt"), "--key-file=" + p.file("etcd.key"),
		"--client-cert-auth", "--trusted-ca-file=" + p.file("etcd-ca.crt"),
		"--peer-cert-file=" + p.file("etcd.crt"), "--peer-key-file=" + p.file("etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + p.file("etcd-ca.crt"),
		"--log-level=warn",
		// A single member still waits for its election: up to an election timeout at every start.
		"--heartbeat-interval=50", "--election-timeout=250",
		// Much faster. It gives up surviving a crash of the whole machine, which a control plane for development does not need.
		"--unsafe-no-fsync",
		"--quota-backend-bytes=" + strconv.Itoa(8<<30),
	}
}

func apiServerArgs(p pki, ports ports, bare bool) []string {
	// Nodes are Ready from the start: they need no taint until a controller has observed that.
	disabled := "TaintNodesByCondition"
	if bare {
		// A bare control plane has no controller that makes service accounts, and without them no pod could be created.
		disabled += ",ServiceAccount"
	}
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(ports.apiServer), "--permit-port-sharing", // see Reservation
		// Endpoints of the service kubernetes cannot be a loopback address, so there are none.
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--etcd-servers=" + ports.etcdURL(),
		"--etcd-cafile=" + p.file("etcd-ca.crt"), "--etcd-certfile=" + p.file("etcd-client.crt"), "--etcd-keyfile=" + p.file("etcd-client.key"),
		"--tls-cert-file=" + p.file("apiserver.crt"), "--tls-private-key-file=" + p.file("apiserver.key"),
		"--client-ca-file=" + p.file("ca.crt"),
		"--token-auth-file=" + p.file("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.file("service-account.key"),
		"--service-account-signing-key-file=" + p.file("service-account.key"),
		"--requestheader-client-ca-file=" + p.file("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.file("front-proxy.crt"), "--proxy-client-key-file=" + p.file("front-proxy.key"),
		"--disable-admission-plugins=" + disabled,
		"--allow-privileged=true",
		"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500",
	}
}

func controllerManagerArgs(p pki) []string {
	return []string{
		"--kubeconfig=" + p.file(ControllerManager+".kubeconfig"),
		"--secure-port=0",
		"--leader-elect=false",
		"--profiling=false",
		"--service-account-private-key-file=" + p.file("service-account.key"),
		"--root-ca-file=" + p.file("ca.crt"),
		"--cluster-signing-cert-file=" + p.file("ca.crt"), "--cluster-signing-key-file=" + p.file("ca.key"),
		// Jobs must progress as fast as they are admitted, not at a rate that protects a shared API server.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--concurrent-job-syncs=10",
		// Heartbeats are rare; see node.LeaseDuration. The period is the usual one: it is how soon a failed node gets its NoExecute taint.
		"--node-monitor-grace-period=5m", "--node-monitor-period=5s",
		// Controllers that only make sense with clouds, disks and kubelets are left out.
		"--controllers=*,-node-ipam-controller," +
			"-persistentvolume-attach-detach-controller,-persistentvolume-expander-controller,-ttl-controller," +
			"-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller," +
			"-legacy-serviceaccount-token-cleaner-controller,-selinux-warning-controller",
	}
}

func schedulerArgs(d dir) []string {
	return []string{"--config=" + d.path("pki", "scheduler.yaml"), "--secure-port=0"}
}

// schedulerConfig is the scheduler's configuration file: it takes the rate limits of its client from nowhere else.
func schedulerConfig(p pki) []byte {
	return fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 500, burst: 1000}
leaderElection: {leaderElect: false}
enableProfiling: false
enableContentionProfiling: false
parallelism: 4
`, p.file(Scheduler+".kubeconfig"))
}

func kwokArgs(p pki, opts options) []string {
	return []string{
		"--kubeconfig=" + p.file(Kwok+".kubeconfig"),
		"--nodes=" + strconv.Itoa(len(opts.nodes)),
		"--topology=" + opts.topology,
		"--node-capacity=" + opts.nodeCapacity,
		"--kubelet-version=" + KubernetesVersion,
	}
}
