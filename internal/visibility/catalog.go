package visibility

import (
	"context"
	"mime"
	"net/http"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
)

var schemaless schema.GroupResource

// group is a served API group.
type group struct {
	name      string
	versions  []string // the preferred one first
	resources []*endpoint
}

// endpoint is a parent without content of its own, and its one subresource; or, without a subresource, a list.
type endpoint struct {
	name, singular, kind string
	namespaced           bool
	sub, subKind         string // of a list: "", and the kind of the list
	schema               string // of the answer, in schemas
	paged                bool   // it takes offset and limit
	hosts                bool   // it takes hosts
	read                 func(ctx context.Context, s *Server, a *ask) (runtime.Object, error)
}

// verb is the one that the endpoint answers.
func (e *endpoint) verb() string {
	if e.sub == "" {
		return "list"
	}
	return "get"
}

// ownVerbs are the verbs of the resource itself, without its subresource.
func (e *endpoint) ownVerbs() []string {
	if e.sub == "" {
		return []string{e.verb()}
	}
	return []string{}
}

// depth is the number of parts of the endpoint's path: the resource, and for a subresource the name and that.
func (e *endpoint) depth() int {
	if e.sub == "" {
		return 1
	}
	return 3
}

// groups is everything that is served. spec: 70 §2.4.
var groups = []group{
	{
		name: visibilityv1beta2.GroupVersion.Group, versions: []string{visibilityv1beta2.GroupVersion.Version, visibilityv1beta2.VersionV1Beta1},
		resources: []*endpoint{
			{
				name: "clusterqueues", singular: "clusterqueue", kind: "ClusterQueue",
				sub: "pendingworkloads", subKind: "PendingWorkloadsSummary", schema: summarySchema, paged: true, read: ofClusterQueue,
			},
			{
				name: "localqueues", singular: "localqueue", kind: "LocalQueue", namespaced: true,
				sub: "pendingworkloads", subKind: "PendingWorkloadsSummary", schema: summarySchema, paged: true, read: ofLocalQueue,
			},
		},
	},
	{
		name: berthv1alpha1.GroupVersion.Group, versions: []string{berthv1alpha1.GroupVersion.Version},
		resources: []*endpoint{
			{
				name: "workloads", singular: "workload", kind: "Workload", namespaced: true,
				sub: "explanation", subKind: "Explanation", schema: explanationSchema, read: explanation,
			},
			{
				name: "topologies", singular: "topology", kind: "Topology",
				sub: "usage", subKind: "TopologyUsage", schema: usageSchema, hosts: true, read: topologyUsage,
			},
			{
				name: "queueactivities", singular: "queueactivity", kind: "QueueActivity",
				subKind: "QueueActivityList", schema: activitySchema, read: queueActivities,
			},
		},
	},
}

// GroupVersions lists the served versions, the preferred one of a group first.
func GroupVersions() (all []schema.GroupVersion) {
	for _, g := range groups {
		for _, v := range g.versions {
			all = append(all, schema.GroupVersion{Group: g.name, Version: v})
		}
	}
	return all
}

// find returns a resource, or nil.
func find(in, version, name string) *endpoint {
	for _, g := range groups {
		for _, v := range g.versions {
			for _, r := range g.resources {
				if g.name == in && v == version && r.name == name {
					return r
				}
			}
		}
	}
	return nil
}

// aggregated is the format of discovery in one document.
const aggregated = formatJSON + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// documents are the discovery and OpenAPI documents by path; made at the first request.
var documents = sync.OnceValue(func() map[string]*static {
	docs := map[string]*static{}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, g := range groups {
		one := g.discovery()
		list.Groups = append(list.Groups, *one)
		one.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		docs["/apis/"+g.name] = newStatic(one, formatJSON)
		for _, v := range g.versions {
			docs["/apis/"+g.name+"/"+v] = newStatic(g.resourceList(v), formatJSON)
		}
	}
	docs["/apis"] = newStatic(list, formatJSON)
	addOpenAPI(docs)
	return docs
})

var allAggregated = sync.OnceValue(func() *static {
	list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, g := range groups {
		list.Items = append(list.Items, g.aggregated())
	}
	return newStatic(list, aggregated)
})

// document serves a discovery or OpenAPI document; false if the path has none.
func (s *Server) document(w http.ResponseWriter, r *http.Request, path string) bool {
	doc := documents()[strings.TrimSuffix(path, "/")]
	if doc == nil {
		return false
	}
	accept := r.Header.Get("Accept")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", http.MethodGet)
		s.refuse(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schemaless, "", "only GET is served at "+path, 0, true))
	case path == "/apis" && wantsAggregated(accept):
		allAggregated().serve(w, r)
	case accepted(accept) == "":
		s.refuse(w, r, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schemaless, "", "only application/json is served", 0, true))
	default:
		doc.serve(w, r)
	}
	return true
}

func wantsAggregated(accept string) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		kind, p, err := mime.ParseMediaType(clause)
		if err == nil && kind == formatJSON && p["g"] == "apidiscovery.k8s.io" && p["v"] == "v2" && p["as"] == "APIGroupDiscoveryList" {
			return true
		}
	}
	return false
}

func (g *group) discovery() *metav1.APIGroup {
	out := &metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.name + "/" + v, Version: v})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func (g *group) resourceList(version string) *metav1.APIResourceList {
	out := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: g.name + "/" + version,
	}
	for _, r := range g.resources {
		out.APIResources = append(out.APIResources,
			metav1.APIResource{Name: r.name, SingularName: r.singular, Namespaced: r.namespaced, Kind: r.kind, Verbs: r.ownVerbs()})
		if r.sub != "" {
			out.APIResources = append(out.APIResources,
				metav1.APIResource{Name: r.name + "/" + r.sub, Namespaced: r.namespaced, Kind: r.subKind, Verbs: metav1.Verbs{r.verb()}})
		}
	}
	return out
}

func (g *group) aggregated() apidiscoveryv2.APIGroupDiscovery {
	out := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		kind := func(k string) *metav1.GroupVersionKind {
			return &metav1.GroupVersionKind{Group: g.name, Version: v, Kind: k}
		}
		version := apidiscoveryv2.APIVersionDiscovery{Version: v, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for _, r := range g.resources {
			scope := apidiscoveryv2.ScopeCluster
			if r.namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			one := apidiscoveryv2.APIResourceDiscovery{
				Resource: r.name, SingularResource: r.singular, Scope: scope, ResponseKind: kind(r.kind), Verbs: r.ownVerbs(),
			}
			if r.sub != "" {
				one.Subresources = []apidiscoveryv2.APISubresourceDiscovery{{Subresource: r.sub, ResponseKind: kind(r.subKind), Verbs: []string{r.verb()}}}
			}
			version.Resources = append(version.Resources, one)
		}
		out.Versions = append(out.Versions, version)
	}
	return out
}
