package visibility

import (
	"encoding/base64"
	"fmt"
	"net"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServiceName is the Service that the API server calls. spec: 70 §4.6.
const ServiceName = "kueue-visibility-server"

// account is the service account of the manager, in its own namespace.
const account = "kueue-controller-manager"

// Target is the address of the server.
type Target struct {
	// Namespace of the manager.
	Namespace string
	// Host is the address or name of a manager outside of the cluster's network; "" is a manager in a pod, behind the Service.
	Host string
	// Port that the server listens on.
	Port int32
	// CABundle is the authority of its certificate, in PEM. Empty keeps the present one.
	CABundle []byte
}

// Hosts returns the names that its certificate must serve: the API server expects the Service's name at any address.
func Hosts(namespace string) []string {
	service := ServiceName + "." + namespace + ".svc"
	return []string{service, service + ".cluster.local"}
}

// Objects returns the objects to install: the Service, the right to read trustConfigMap, and an APIService for each group and version.
func Objects(t Target) ([]*unstructured.Unstructured, error) {
	service, port, err := t.service()
	if err != nil {
		return nil, err
	}
	out := []*unstructured.Unstructured{service, authReader(t.Namespace)}
	for _, gv := range GroupVersions() {
		spec := map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(100),
			// Equal priorities are ordered by the version: the API server prefers v1beta2.
			"versionPriority": int64(100),
			"service":         map[string]any{"namespace": t.Namespace, "name": ServiceName, "port": port},
		}
		if len(t.CABundle) > 0 {
			spec["caBundle"] = base64.StdEncoding.EncodeToString(t.CABundle)
		}
		u := made("apiregistration.k8s.io/v1", "APIService", "", apiServiceName(gv))
		u.Object["spec"] = spec
		out = append(out, u)
	}
	return out, nil
}

// service returns the Service and the port that the APIService names. A Service for a name outside of the cluster passes that port on.
func (t *Target) service() (*unstructured.Unstructured, int64, error) {
	u := made("v1", "Service", t.Namespace, ServiceName)
	u.SetLabels(map[string]string{"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "visibility-service"})
	if t.Host == "" {
		u.Object["spec"] = map[string]any{
			"type":     "ClusterIP",
			"selector": map[string]any{"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"},
			"ports":    []any{map[string]any{"name": "https", "protocol": "TCP", "port": int64(443), "targetPort": int64(t.Port)}},
		}
		return u, 443, nil
	}
	host := t.Host
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		if !ip.IsLoopback() {
			return nil, 0, fmt.Errorf("the API server cannot find the visibility API at the IPv6 address %s: give a name that stands for it", host)
		}
		host = "localhost"
	}
	u.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": host}
	return u, int64(t.Port), nil
}

// authReader lets the manager read the certificates and headers that the API server uses when it calls.
func authReader(namespace string) *unstructured.Unstructured {
	u := made("rbac.authorization.k8s.io/v1", "RoleBinding", trustNamespace, "kueue-visibility-server-auth-reader")
	u.Object["roleRef"] = map[string]any{
		"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "extension-apiserver-authentication-reader",
	}
	u.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": account, "namespace": namespace}}
	return u
}

func made(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func apiServiceName(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }
