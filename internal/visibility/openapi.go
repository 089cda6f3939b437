package visibility

import (
	"slices"
	"strings"
)

// title is the name of the server in its documents. spec: 70 §4.6.
const title = "Kueue visibility-server"

// The names of schemas. Their prefix is the group in reverse and the version, as in Kubernetes' own.
const (
	summarySchema     = "PendingWorkloadsSummary"
	explanationSchema = "Explanation"
	usageSchema       = "TopologyUsage"
	activitySchema    = "QueueActivityList"
)

// property is a field of an object.
type property struct {
	name, kind, format string // kind is a type of JSON, or the name of a schema
	list, optional     bool
	text               string
}

// object is the schema of one kind or of a part of it.
type object struct {
	text       string
	top        bool // it has apiVersion and kind
	properties []property
}

// metadata does not refer to Kubernetes' own schema, which the API server would have to distinguish from this server's copy.
var metadata = object{text: "What of an object's metadata is known here.", properties: []property{
	{name: "name", kind: "string", optional: true, text: "Name of the object."},
	{name: "namespace", kind: "string", optional: true, text: "Namespace of the object."},
	{name: "uid", kind: "string", optional: true, text: "UID of the object."},
	{name: "creationTimestamp", kind: "string", format: "date-time", optional: true, text: "When the object was made."},
	{name: "ownerReferences", kind: "OwnerReference", list: true, optional: true, text: "Owners of the object."},
}}

var owner = object{text: "An owner of a Workload.", properties: []property{
	{name: "apiVersion", kind: "string", text: "Group and version of the owner."},
	{name: "kind", kind: "string", text: "Kind of the owner."},
	{name: "name", kind: "string", text: "Name of the owner."},
	{name: "uid", kind: "string", text: "UID of the owner."},
}}

var expectedStart = object{text: "When a pending Workload is expected to start.", properties: []property{
	{name: "p10", kind: "string", format: "date-time", optional: true, text: "It starts earlier with a probability of 10 percent; absent if that is after until."},
	{name: "p50", kind: "string", format: "date-time", optional: true, text: "The median; likewise."},
	{name: "p90", kind: "string", format: "date-time", optional: true, text: "It starts later with a probability of 10 percent; likewise."},
	{name: "until", kind: "string", format: "date-time", optional: true, text: "How far the forecast looks ahead."},
	{name: "endless", kind: "integer", format: "int32", optional: true, text: "Workloads in the cohorts whose run times are unknown, and that are taken to run on."},
	{name: "unknown", kind: "string", optional: true, text: "Why the start is unknown."},
}}

// amountProperties are the fields of an amount of one resource.
var amountProperties = []property{
	{name: "resource", kind: "string", text: "Name of the resource."},
	{name: "capacity", kind: "quantity", text: "What the nodes that count have, less what pods outside of placements use."},
	{name: "used", kind: "quantity", text: "What placed pods use."},
	{name: "free", kind: "quantity", text: "What is left."},
}

// schemas are the schemas of each group, by name.
var schemas = map[string]map[string]object{
	"visibility.kueue.x-k8s.io": {
		"Metadata": metadata, "OwnerReference": owner,
		summarySchema: {text: "A page of the Workloads that wait in a queue, in the order of the queue.", top: true, properties: []property{
			{name: "items", kind: "PendingWorkload", list: true, text: "The page; empty when nothing waits."},
		}},
		"PendingWorkload": {text: "A Workload that waits in a queue.", properties: []property{
			{name: "metadata", kind: "Metadata", optional: true, text: "Name, namespace, creation time and owners of the Workload."},
			{name: "priority", kind: "integer", format: "int32", text: "Priority that orders the queue."},
			{name: "localQueueName", kind: "string", text: "The LocalQueue that it names, in its own namespace."},
			{name: "positionInClusterQueue", kind: "integer", format: "int32", text: "Place in the ClusterQueue, from 0."},
			{name: "positionInLocalQueue", kind: "integer", format: "int32", text: "Place among the Workloads of its LocalQueue, from 0."},
			{name: "reason", kind: "string", optional: true, text: "Why it waits, in a word; absent before it was evaluated."},
			{name: "message", kind: "string", optional: true, text: "Why it waits, in a sentence."},
			{name: "requests", kind: "quantities", optional: true, text: "The requests of all its pods together, by resource."},
			{name: "expectedStart", kind: "ExpectedStart", optional: true, text: "When it is expected to start."},
		}},
		"ExpectedStart": expectedStart,
	},
	"visibility.berth.dev": {
		"Metadata": metadata, "OwnerReference": owner,
		explanationSchema: {text: "Why a Workload waits, or what it holds.", top: true, properties: []property{
			{name: "text", kind: "string", text: "The whole decision trace in words, a line a fact."},
			{name: "clusterQueue", kind: "string", optional: true, text: "ClusterQueue that it waits in or holds quota of."},
			{name: "localQueue", kind: "string", optional: true, text: "LocalQueue that it names."},
			{name: "priority", kind: "integer", format: "int64", text: "Priority that orders the queue."},
			{name: "verdict", kind: "string", optional: true, text: "The result of the last evaluation: admitted, preempts, waits or withdrawn."},
			{name: "reason", kind: "string", optional: true, text: "Why it waits, in a word."},
			{name: "message", kind: "string", text: "One sentence: what is short and what would help."},
			{name: "positionInClusterQueue", kind: "integer", format: "int32", optional: true, text: "Place in line from 0; absent for one that is not in line."},
			{name: "flavors", kind: "FlavorChoice", list: true, optional: true, text: "Flavors that it holds or would get."},
			{name: "shortfalls", kind: "Shortfall", list: true, optional: true, text: "What did not work out, flavor by flavor."},
			{name: "preempts", kind: "Victim", list: true, optional: true, text: "Workloads that it preempts."},
			{name: "wakesOn", kind: "string", list: true, optional: true, text: "Flavors and resources whose release requeues it."},
			{name: "start", kind: "ExpectedStart", optional: true, text: "When it is expected to start; absent for one that is not in line."},
			{name: "runTime", kind: "string", optional: true, text: "How long it is expected to run, and how that is known, in words."},
		}},
		"ExpectedStart": expectedStart,
		"FlavorChoice": {text: "A flavor for one resource of a pod set.", properties: []property{
			{name: "podSet", kind: "string", text: "Name of the pod set."},
			{name: "resource", kind: "string", text: "Name of the resource."},
			{name: "flavor", kind: "string", text: "Name of the ResourceFlavor."},
			{name: "amount", kind: "quantity", text: "What all pods of the pod set take."},
			{name: "mode", kind: "string", text: "How it is obtained, such as held."},
			{name: "borrowingLevel", kind: "integer", format: "int32", text: "How far up the cohorts it borrows; 0 is not at all."},
		}},
		"Shortfall": {text: "A flavor that does not match, or is short of a resource.", properties: []property{
			{name: "podSet", kind: "string", text: "Name of the pod set."},
			{name: "resource", kind: "string", optional: true, text: "Name of the resource."},
			{name: "flavor", kind: "string", optional: true, text: "Name of the ResourceFlavor."},
			{name: "reason", kind: "string", text: "What is wrong, in a word."},
			{name: "message", kind: "string", text: "What is wrong, as a clause."},
			{name: "requested", kind: "quantity", optional: true, text: "How much is asked for."},
			{name: "available", kind: "quantity", optional: true, text: "How much can be had now."},
			{name: "potential", kind: "quantity", optional: true, text: "How much can ever be had."},
			{name: "limitedBy", kind: "string", optional: true, text: "The ClusterQueue or Cohort whose quota is exhausted."},
		}},
		"Victim": {text: "A Workload that is preempted for another.", properties: []property{
			{name: "namespace", kind: "string", text: "Its namespace; empty for callers who may not list Workloads there."},
			{name: "name", kind: "string", text: "Its name; empty like the namespace."},
			{name: "clusterQueue", kind: "string", text: "The ClusterQueue whose quota it holds."},
			{name: "reason", kind: "string", text: "Why it and not another, as in its condition Preempted."},
			{name: "ranSeconds", kind: "integer", format: "int64", optional: true, text: "How long it had run when it was chosen, if that is less than minRunSeconds."},
			{name: "minRunSeconds", kind: "integer", format: "int64", optional: true, text: "How long it asks to run; absent if it had run that long."},
		}},
		usageSchema: {text: "What is free and used in the domains of a Topology.", top: true, properties: []property{
			{name: "flavors", kind: "FlavorUsage", list: true, text: "The ResourceFlavors that use the Topology."},
		}},
		"FlavorUsage": {text: "The nodes of one ResourceFlavor.", properties: []property{
			{name: "flavor", kind: "string", text: "Name of the ResourceFlavor."},
			{name: "nodes", kind: "NodeCounts", text: "The nodes that count as capacity, and the others."},
			{name: "levels", kind: "LevelUsage", list: true, text: "Levels of the Topology, the broadest first."},
			{name: "shapes", kind: "ShapeUsage", list: true, optional: true, text: "Pods of equal requests and constraints, of Workloads that run or wait."},
		}},
		"NodeCounts": {text: "Numbers of nodes.", properties: []property{
			{name: "counted", kind: "integer", format: "int32", text: "Nodes that count as capacity."},
			{name: "notReady", kind: "integer", format: "int32", text: "Nodes that are not ready."},
			{name: "cordoned", kind: "integer", format: "int32", text: "Nodes that are ready and cordoned."},
			{name: "unlabeled", kind: "integer", format: "int32", text: "Nodes with the labels of the flavor that lack one of a level."},
		}},
		"LevelUsage": {text: "The domains of one level.", properties: []property{
			{name: "level", kind: "string", text: "Label key of the level."},
			{name: "count", kind: "integer", format: "int32", text: "Number of domains."},
			{name: "resources", kind: "LevelResource", list: true, text: "All domains together."},
			{name: "domains", kind: "DomainUsage", list: true, optional: true, text: "Each domain; hosts only with hosts=true."},
		}},
		"LevelResource": {text: "One resource in all domains of a level.", properties: slices.Concat(amountProperties, []property{
			{name: "largestFree", kind: "quantity", text: "What is free in the domain that has most."},
			{name: "fragmentationPercent", kind: "integer", format: "int32", text: "How far that is below what it would be if all that is free were packed together."},
		})},
		"ResourceUsage": {text: "An amount of one resource.", properties: amountProperties},
		"DomainUsage": {text: "One domain.", properties: []property{
			{name: "values", kind: "string", list: true, text: "Values of all levels down to its own."},
			{name: "nodes", kind: "integer", format: "int32", text: "Nodes that count as capacity."},
			{name: "excludedNodes", kind: "integer", format: "int32", text: "Nodes that do not."},
			{name: "pods", kind: "integer", format: "int32", text: "Pods that are placed in it."},
			{name: "resources", kind: "ResourceUsage", list: true, text: "What it has of each resource."},
		}},
		"ShapeUsage": {text: "Pods of equal requests and constraints.", properties: []property{
			{name: "requests", kind: "quantities", text: "Requests of one pod."},
			{name: "constrained", kind: "boolean", optional: true, text: "A node selector or affinity restricts the nodes."},
			{name: "running", kind: "integer", format: "int32", text: "Pod sets that hold places."},
			{name: "waiting", kind: "integer", format: "int32", text: "Pod sets that wait."},
			{name: "largest", kind: "LargestGang", list: true, text: "The biggest gang of further pods that fits into one domain, by level."},
		}},
		activitySchema: {text: "What happened lately in ClusterQueues, without those in which nothing did.", top: true, properties: []property{
			{name: "items", kind: "QueueActivity", list: true, text: "One for each ClusterQueue, in the order of their names."},
		}},
		"QueueActivity": {text: "What happened lately to the Workloads of a ClusterQueue.", top: true, properties: []property{
			{name: "lastHour", kind: "Activity", text: "Within 60 minutes before the request; it may be some seconds old."},
		}},
		"Activity": {text: "Numbers of Workloads, by their conditions: of what happened to one several times, the last time counts.", properties: []property{
			{name: "admitted", kind: "integer", format: "int32", text: "Workloads that were admitted."},
			{name: "finished", kind: "integer", format: "int32", text: "Workloads that ended with success."},
			{name: "failed", kind: "integer", format: "int32", text: "Workloads that failed."},
			{name: "evicted", kind: "integer", format: "int32", text: "Workloads that were evicted, and have neither been admitted again nor ended."},
		}},
		"LargestGang": {text: "The most pods that fit into one domain of a level.", properties: []property{
			{name: "level", kind: "string", text: "Label key of the level."},
			{name: "pods", kind: "integer", format: "int64", text: "Number of pods."},
			{name: "domain", kind: "string", list: true, optional: true, text: "Values of the domain that has room for most."},
		}},
	},
}

type doc = map[string]any

// dialect is the difference between the versions 2 and 3 of OpenAPI.
type dialect struct {
	refs   string // where schemas are
	schema func(typed doc) doc
	body   func(schema doc) doc
}

var (
	v2 = dialect{
		refs:   "#/definitions/",
		schema: func(typed doc) doc { return typed },
		body:   func(schema doc) doc { return doc{"description": "OK", "schema": schema} },
	}
	v3 = dialect{
		refs:   "#/components/schemas/",
		schema: func(typed doc) doc { return doc{"schema": typed} },
		body: func(schema doc) doc {
			return doc{"description": "OK", "content": doc{formatJSON: doc{"schema": schema}, formatYAML: doc{"schema": schema}}}
		},
	}
)

// addOpenAPI adds one document of version 2, one of version 3 for each group and version, and the list of the latter.
func addOpenAPI(docs map[string]*static) {
	all, definitions, list := doc{}, doc{}, doc{}
	about := doc{"title": title, "version": "unversioned"}
	token := doc{"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"}
	secured := []any{doc{"BearerToken": []any{}}}
	for i := range groups {
		g := &groups[i]
		for _, version := range g.versions {
			own, components := doc{}, doc{}
			v2.add(g, version, all, definitions)
			v3.add(g, version, own, components)
			body := newStatic(doc{
				"openapi": "3.0.0", "info": about, "paths": own, "security": secured,
				"components": doc{"schemas": components, "securitySchemes": doc{"BearerToken": token}},
			}, formatJSON)
			path := "apis/" + g.name + "/" + version
			docs["/openapi/v3/"+path] = body
			list[path] = doc{"serverRelativeURL": "/openapi/v3/" + path + "?hash=" + strings.Trim(body.etag, `"`)}
		}
	}
	docs["/openapi/v3"] = newStatic(doc{"paths": list}, formatJSON)
	docs["/openapi/v2"] = newStatic(doc{
		"swagger": "2.0", "info": about, "paths": all, "definitions": definitions,
		"securityDefinitions": doc{"BearerToken": token}, "security": secured,
	}, formatJSON)
}

func (d dialect) add(g *group, version string, paths, definitions doc) {
	prefix := schemaPrefix(g.name, version)
	for name, o := range schemas[g.name] {
		definition := d.object(prefix, o)
		if o.top {
			definition["x-kubernetes-group-version-kind"] = []any{doc{"group": g.name, "version": version, "kind": name}}
		}
		definitions[prefix+name] = definition
	}
	for _, r := range g.resources {
		path := "/apis/" + g.name + "/" + version + "/"
		var params []any
		at, action, summary := r.name, r.verb(), "list objects of kind "+r.kind
		if r.sub != "" {
			at, action, summary = r.name+"/{name}/"+r.sub, "read", "read "+r.sub+" of the specified "+r.kind
			params = append(params, d.parameter("name", "path", "string", "Name of the "+r.kind+"."))
		}
		scope := ""
		if r.namespaced {
			path += "namespaces/{namespace}/"
			params = append(params, d.parameter("namespace", "path", "string", "Namespace of the "+r.kind+"."))
			scope = "Namespaced"
		}
		if r.paged {
			params = append(params,
				d.parameter("limit", "query", "integer", "Size of the page: 1000 by default, at most 100000."),
				d.parameter("offset", "query", "integer", "How many to skip."))
		}
		if r.hosts {
			params = append(params, d.parameter("hosts", "query", "string", "If true, each host is listed."))
		}
		params = append(params, d.parameter("pretty", "query", "string", "If true, the answer is indented."))
		get := doc{
			"operationId": action + camel(g.name) + camel(version) + scope + r.kind + camel(r.sub), "tags": []any{camel(g.name) + "_" + version},
			"description": summary,
			"responses": doc{
				"200": d.body(doc{"$ref": d.refs + prefix + r.schema}),
				"401": doc{"description": "Unauthorized"},
			},
			"x-kubernetes-action":             r.verb(),
			"x-kubernetes-group-version-kind": doc{"group": g.name, "version": version, "kind": r.subKind},
		}
		if d.refs == v2.refs {
			get["produces"], get["consumes"], get["schemes"] = []any{formatJSON, formatYAML}, []any{"*/*"}, []any{"https"}
		}
		paths[path+at] = doc{"get": get, "parameters": params}
	}
}

func (d dialect) parameter(name, in, kind, text string) doc {
	typed := doc{"type": kind}
	if kind == "integer" {
		typed["format"] = "int64"
	} else {
		typed["uniqueItems"] = true
	}
	out := d.schema(typed)
	out["name"], out["in"], out["description"] = name, in, text
	if in == "path" {
		out["required"] = true
	}
	return out
}

func (d dialect) object(prefix string, o object) doc {
	fields, required := doc{}, []any{}
	all := o.properties
	if o.top {
		all = append([]property{
			{name: "apiVersion", kind: "string", optional: true, text: "Group and version of this answer."},
			{name: "kind", kind: "string", optional: true, text: "Kind of this answer."},
			{name: "metadata", kind: "Metadata", optional: true, text: "Metadata of the answer; empty for a list."},
		}, all...)
	}
	for _, p := range all {
		fields[p.name] = d.field(prefix, p)
		if !p.optional {
			required = append(required, p.name)
		}
	}
	out := doc{"type": "object", "description": o.text, "properties": fields}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func (d dialect) field(prefix string, p property) doc {
	of := doc{"type": p.kind}
	switch p.kind {
	case "string", "integer", "boolean":
		if p.format != "" {
			of["format"] = p.format
		}
	case "quantity":
		of = doc{"type": "string"}
	case "quantities":
		of = doc{"type": "object", "additionalProperties": doc{"type": "string"}}
	default:
		of = doc{"$ref": d.refs + prefix + p.kind}
	}
	switch {
	case p.list:
		of = doc{"type": "array", "items": of}
	case of["$ref"] != nil && d.refs == v3.refs:
		of = doc{"allOf": []any{of}} // other keys beside a reference are ignored
	}
	of["description"] = p.text
	return of
}

// schemaPrefix puts a group in reverse: io.k8s.x.kueue.visibility.v1beta2.
func schemaPrefix(group, version string) string {
	parts := strings.FieldsFunc(group, func(r rune) bool { return r == '.' })
	var b strings.Builder
	for _, part := range slices.Backward(parts) {
		b.WriteString(part + ".")
	}
	return b.String() + version + "."
}

// camel joins words that begin with capitals.
func camel(s string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '.' || r == '-' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
