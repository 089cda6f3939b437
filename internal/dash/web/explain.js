// The page that explains why a workload waits: what is short, at which level of its cohort tree, and what has to end for it.

export function explainPages({ h, to, escaped, single, table, number, reason, starts, clock, plural, clusterQueueLink, queueLink, cohortLink, flavorLink, workloadName }) {
  const verdicts = { admitted: ["holds quota", "good"], preempts: ["preempts others", "wait"], waits: ["waits", "wait"], withdrawn: ["withdrawn", "off"] };

  // lacking is what is missing of one quota, in words.
  const lacking = (q) => `${q.missing} ${q.resource} ${q.never ? "more than can ever be had" : "missing"}`;

  // level is one node of the tree. The one that is short says so in words as well.
  function level(l) {
    if (l.hidden) return h("section", { class: "level" }, h("h3", {}, l.kind, h("span", { class: "quiet" }, " that you may not see")));
    const short = (l.quotas ?? []).filter((q) => q.missing);
    const rows = (l.quotas ?? []).map((q) => [
      flavorLink(q.flavor), q.resource, number(q.nominal), number(q.quota), number(q.used), number(q.borrowable),
      [q.borrowingLimit !== undefined ? `borrows at most ${q.borrowingLimit}` : "", q.lendingLimit !== undefined ? `lends at most ${q.lendingLimit}` : ""].filter(Boolean).join(", "),
      q.missing ? h("b", { class: "bad" }, lacking(q)) : "",
    ]);
    return h("section", { class: short.length > 0 ? "level short" : "level", "aria-label": `${l.kind} ${l.name}` },
      h("h3", {}, l.kind, " ", l.kind === "Cohort" ? cohortLink(l.name) : clusterQueueLink(l.name),
        short.length > 0 ? h("span", { class: "bad" }, " short here: ", short.map(lacking).join(", ")) : ""),
      table(["Flavor", "Resource", "Own quota", "With what is shared", "Used", "Can borrow", "Limits", "Short by"], rows, "It has no quota of these flavors."));
  }

  // tree nests the levels, the root outside.
  function tree(levels) {
    let inner = "";
    for (const l of levels) inner = h("li", {}, level(l), inner ? h("ul", {}, inner) : "");
    return h("ul", { class: "levels" }, inner);
  }

  function ends(e) {
    const head = `${e.flavor}, ${e.resources.join(" and ")}: `;
    if (!e.known) return h("p", {}, head, "too many workloads run to tell.");
    if (!e.enough) return h("p", { class: "wait" }, head, `the end of ${e.count === 0 ? "no workload" : "all that run"} leaves enough.`);
    if (e.count === 0) return h("p", {}, head, "enough is free by now.");
    const rest = e.count - e.others - e.workloads.length;
    return [h("p", {}, head, h("b", {}, plural(e.count, "workload")), e.count === 1 ? " has to end" : " have to end, in the order of their expected ends",
      e.by ? `, ${e.count === 1 ? "" : "the last one "}about ${clock(e.by)}.` : e.count === 1 ? "; when is unknown." : "; when the last one does is unknown."),
    e.workloads.length > 0 ? table(["Workload", "Expected to end"], e.workloads.map((w) => [workloadName(w.namespace, w.name), w.end ? "~" + clock(w.end) : "unknown"]), "") : "",
    e.others > 0 ? h("p", { class: "quiet" }, `${e.others} of them ${e.others === 1 ? "is" : "are"} in namespaces that you may not see.`) : "",
    rest > 0 ? h("p", { class: "quiet" }, `and ${rest} more`) : ""];
  }

  function preempted(victims) {
    if (victims.length === 0) return [];
    const named = victims.filter((v) => v.name);
    return [h("h2", {}, "What is preempted for it"), table(["Workload", "Cluster queue", "Reason"], named.map((v) => [workloadName(v.namespace, v.name), clusterQueueLink(v.clusterQueue), v.reason]), "No workload that you may see."),
      named.length < victims.length ? h("p", { class: "quiet" }, `${plural(victims.length - named.length, "workload")} of namespaces that you may not see`) : ""];
  }

  // tried is what the search for flavors found.
  function tried(e) {
    const got = (e.flavors ?? []).map((f) => [f.podSet, f.resource, flavorLink(f.flavor), number(f.amount), "", "", f.borrowingLevel > 0 ? `${f.mode}, borrows ${f.borrowingLevel} up` : f.mode]);
    const not = (e.shortfalls ?? []).map((s) => [s.podSet, s.resource ?? "", s.flavor ? flavorLink(s.flavor) : "", number(s.requested ?? ""), number(s.available ?? ""), number(s.potential ?? ""), reason(s.message)]);
    return table(["Pod set", "Resource", "Flavor", "Requested", "Available", "At most, ever", "Result"], [...got, ...not], "No flavor was tried.");
  }

  function line(e) {
    const n = e.positionInClusterQueue;
    if (n === undefined) return "not in line";
    return n === 0 ? "the next one" : `behind ${plural(n, "other")}`;
  }

  function explanation(namespace, name) {
    return single(`Why ${namespace}/${name} waits`, escaped("ws", "workload", namespace, name, "explanation"), (e) => [
      h("p", {}, to(escaped("workload", namespace, name), "All about this workload")),
      h("p", { class: "lead" }, verdicts[e.verdict] ? h("span", { class: "badge " + verdicts[e.verdict][1] }, verdicts[e.verdict][0]) : "", " ", e.reason ? h("b", {}, e.reason, ": ") : "", e.message),
      e.verdict && !e.traced ? h("p", { class: "quiet" }, "The figures of its last evaluation are not kept, only those of the last ones of each queue. This evaluates it now: ",
        h("code", {}, `berth explain workload ${name} -n ${namespace}`)) : "",
      h("div", { class: "card" }, h("dl", {},
        h("dt", {}, "Cluster queue"), h("dd", {}, clusterQueueLink(e.clusterQueue) || "none"),
        h("dt", {}, "Local queue"), h("dd", {}, queueLink(namespace, e.localQueue)),
        h("dt", {}, "Place in line"), h("dd", {}, line(e)),
        e.start ? [h("dt", {}, "Starts"), h("dd", {}, starts({ expectedStart: e.start }), e.start.unknown ? `: ${e.start.unknown}` : "", e.start.by ? `; by ${clock(e.start.by)} at the latest` : "")] : [],
        e.runTime ? [h("dt", {}, "Run time"), h("dd", {}, e.runTime)] : [],
        h("dt", {}, "Priority"), h("dd", {}, String(e.priority)))),
      h("h2", {}, "Flavors that were tried"), tried(e),
      h("h2", {}, "Its cluster queue and the cohorts above"),
      e.levels.length > 0 ? tree(e.levels) : h("p", { class: "quiet" }, "It is in no cluster queue."),
      e.ends.length > 0 ? [h("h2", {}, "What has to end for it"), h("p", { class: "quiet small" }, "If nothing that is before it in line takes the quota first."), e.ends.map(ends)] : [],
      preempted(e.preempts ?? []),
      (e.wakesOn ?? []).length > 0 ? h("p", {}, "It is evaluated again when one of these is released: ", e.wakesOn.join(", ")) : "",
      h("h2", {}, "In words"), h("pre", { tabindex: "0", "aria-label": "The whole trace" }, e.text),
    ]);
  }

  return explanation;
}
