// Package topology places pods on nodes: the engine of topology aware scheduling.
//
// A Space has all nodes, a tree of domains for each TAS flavor, and the usage of the placed pods. It knows no Kubernetes.
//
//	s := topology.New(table, gates)
//	s.SetTree(flavor, topology.Tree{...})              // RemoveTree
//	s.SetNode(topology.Node{...})                      // RemoveNode; SetForeign: pods that Berth did not place
//	key := ledger.Extend(s.Dimension())
//
//	placed, failure := s.Place(podSets, options)       // charges nothing; one placement for each pod set
//	usage = usage.With(key, s.Part([]topology.Charge{{placed[0], podSets[0].Requests}, …}))
//	ledger.Charge(node, usage)                         // Fits, Release, Mark and Rollback as for quota
//
// A PodSet with an Earlier placement is resized by Place, and Replace moves its pods from failed nodes. A Failure is data,
// and its String a sentence; Options.Explain adds what excludes nodes, and how much each level holds. Leaves, Largest and
// Unlabeled are for readers.
//
// A placement of the API becomes a Placement with the same fields, and a Part in the same way: the usage of a domain that
// no tree has is kept, and counts once the domain is there.
//
// # How it is fast
//
// How much fits into each domain is kept for each shape: requests of one pod, filter of nodes, layers of slices. Edits,
// charges and rollbacks note the leaves that they change in a journal, and a shape brings its counts up to date along the
// paths of just these leaves when it is next used. The number of shapes is bounded; the one that was not used for longest is dropped.
// What a refused gang waits for has a bound, which grows by what fits on the leaves that change. Only a bound that reaches what the gang
// needs costs another count.
//
// # Words
//
//   - Domain: a value of a level below a domain of the broader level. A leaf is a domain of the lowest level.
//   - Hosts: where the lowest level is the hostname, a leaf is a host, and its usage is shared by all such trees.
//   - Account: the usage of a leaf; it outlives the leaf.
//   - Foreign: of pods that Berth did not place.
//   - Shape: what the counts of domains depend on.
//   - Slice: pods that stay together in one domain. Layers nest.
//   - Leader, workers: the two pod sets of a placement group.
package topology
