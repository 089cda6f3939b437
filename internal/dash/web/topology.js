// The pages of topologies: a map of domains, coloured by use. Broad domains are there at once, hosts when their domain is chosen.

export function topologyPages({ h, view, go, to, escaped, single, table, values, amount, number, workloadName, yaml }) {
  const percent = (share) => Math.round(100 * share) + "%";
  const used = (r) => { const all = amount(r?.capacity); return all > 0 ? Math.min(1, 1 - amount(r.free) / all) : 0; };
  const key = (d) => d.values.join("/");
  const short = (level) => level.split("/").pop();

  const plural = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const unit = (need) => need.unit.replace("(s)", "");

  // kept draws into an element, and keeps the keyboard where it was.
  function kept(element, ...children) {
    const had = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    element.replaceChildren(...children.flat(Infinity));
    if (had !== undefined) element.querySelector(`[data-key="${CSS.escape(had)}"]`)?.focus();
  }

  // moved moves the focus among the tiles of a map by the arrow keys.
  function moved(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const tiles = [...event.currentTarget.querySelectorAll("button.tile")];
    const at = tiles.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    tiles[(at + step + tiles.length) % tiles.length].focus();
  }

  // tile is one domain: how much of a resource is in use, whose pods are there, and what the chosen workload lacks.
  function tile(d, name, need, chosen, choose) {
    const r = d.resources?.[name];
    const share = d.nodes > 0 ? used(r) : 0;
    const lack = need?.domains?.[key(d)];
    const said = [
      d.nodes > 0 ? `${r?.free ?? 0} of ${r?.capacity ?? 0} free` : "no node counts",
      d.excluded > 0 ? `${d.excluded} of ${d.nodes + d.excluded} nodes excluded` : "",
      d.pods > 0 ? plural(d.pods, "pod") : "",
      lack ? (lack.lacks > 0 ? `holds ${lack.fit}, lacks ${plural(lack.lacks, unit(need))}` : `holds all ${need.needed}`) : "",
    ].filter(Boolean);
    const look = "tile" + (d.nodes === 0 ? " out" : d.excluded > 0 ? " part" : "") + (lack ? (lack.lacks > 0 ? " lacks" : " holds") : "");
    const fill = h("span", { class: "fill" });
    fill.style.width = percent(share);
    const body = [fill, h("b", {}, d.values[d.values.length - 1] ?? "all nodes"), h("span", { class: "small" }, percent(share)),
      said.map((line) => h("span", { class: "line" }, line)),
      (d.occupants ?? []).map((o) => h("span", { class: "line who" }, `${o.namespace}/${o.name}` + (o.pods > 1 ? ` ×${o.pods}` : ""))),
      d.others > 0 ? h("span", { class: "line who" }, `${plural(d.others, "pod")} of other namespaces`) : ""];
    if (!choose) return h("div", { class: look, role: "listitem" }, body);
    return h("button", { type: "button", class: look, "data-key": "tile " + key(d), "aria-pressed": String(chosen === key(d)), onclick: () => choose(key(d)) }, body);
  }

  // nested draws the domains of several levels: the narrowest as tiles, the others as groups around them.
  function nested(all, depth, draw) {
    if (depth <= 1) return h("div", { class: "tiles" }, all.map(draw));
    const groups = all.filter((d) => d.values.length === 1);
    const within = (prefix, level) => {
      const at = all.filter((d) => d.values.length === level && prefix.every((v, i) => d.values[i] === v));
      if (level === depth) return h("div", { class: "tiles" }, at.map(draw));
      return at.map((d) => h("section", { class: "group" }, h("h3", {}, d.values[level - 1], h("span", { class: "quiet small" }, ` ${plural(d.nodes, "node")}, ${plural(d.pods, "pod")}`)), within(d.values, level + 1)));
    };
    return groups.length > 0 ? within([], 1) : h("p", { class: "quiet" }, "There are no domains.");
  }

  function fragmentation(sums) {
    const rows = [];
    for (const level of sums.levels ?? []) {
      for (const [name, r] of Object.entries(level.resources ?? {}).sort()) {
        rows.push([short(level.level), number(level.count), name, number(r.free), number(r.used), number(r.capacity), number(r.largestFree), number(percent(r.fragmentation))]);
      }
    }
    return table(["Level", "Domains", "Resource", "Free", "Used", "Total", "Largest free", "Fragmented"], rows, "There are no nodes.");
  }

  function nodes(n) {
    const out = [[n?.notReady, "not ready"], [n?.cordoned, "cordoned"], [n?.unlabeled, "without a label of the topology"]].filter(([count]) => count > 0);
    return `${n?.counted ?? 0} nodes count` + (out.length > 0 ? "; not: " + out.map(([count, why]) => `${count} ${why}`).join(", ") : "");
  }

  // needed says what the chosen workload lacks.
  function needed(asked) {
    if (!asked) return "";
    if (!asked.pending) return h("p", { class: "quiet" }, `${asked.workload} is not pending in a queue that offers this flavor.`);
    return asked.needs.map((n) => h("p", { class: n.why || (n.one ? n.enough === 0 : n.fit < n.needed) ? "wait" : "good" },
      n.why || `${asked.workload}, ${n.podSets.join(" and ")}: ${plural(n.needed, unit(n))} ` + (n.one ? `in one ${short(n.level)}: ` +
        (n.enough > 0 ? `${n.enough} of them hold that` : `the best holds ${Math.max(0, ...Object.values(n.domains ?? {}).map((d) => d.fit))}`) : `over several of ${short(n.level)}: all hold ${n.fit} together`)));
  }

  function topologies() {
    return single("Topologies", "/ws/topologies", (all) => table(["Topology", "Levels", "Flavor", "Nodes", "Domains"], values(all).flatMap((t) => {
      const levels = (t.spec?.levels ?? []).map((l) => short(l.nodeLabel)).join(" › ");
      const link = to(`/topology/${encodeURIComponent(t.metadata.name)}`, t.metadata.name);
      if (t.flavors.length === 0) return [[link, levels, h("span", { class: "quiet" }, "no flavor uses it"), "", ""]];
      return t.flavors.map((f) => [to(`/topology/${encodeURIComponent(t.metadata.name)}?flavor=${encodeURIComponent(f.flavor)}`, t.metadata.name), levels, f.flavor, nodes(f.nodes),
        f.levels.map((l) => `${l.count} ${short(l.level)}`).join(", ")]);
    }), "There are no topologies."));
  }

  function topology(name) {
    const asked = new URLSearchParams(location.search);
    const at = (change) => {
      const q = new URLSearchParams(location.search);
      for (const [k, v] of Object.entries(change)) v === "" || v === undefined ? q.delete(k) : q.set(k, v);
      return `/topology/${encodeURIComponent(name)}` + (q.size > 0 ? "?" + q : "");
    };
    const flavor = asked.get("flavor") ?? "";
    const workload = asked.get("workload") ?? "";
    let resource = asked.get("resource") ?? "";
    let chosen = asked.get("within") ?? undefined;
    let last;
    let hosts = { error: "" };
    let stop = () => {};
    const head = h("div", {});
    const map = h("div", { class: "map", onkeydown: moved });
    const detail = h("div", { onkeydown: moved, "aria-live": "off" });
    const sums = h("div", {});
    const choice = (label, all, now, change) => h("select", { "aria-label": label, "data-key": label, onchange: (e) => change(e.target.value) },
      all.map(([value, text]) => h("option", { value, selected: value === now }, text)));
    const need = () => last?.asked?.needs?.[0];

    function choose(k) {
      chosen = k;
      history.replaceState(null, "", at({ within: k === "" ? "/" : k }));
      follow(0);
      draw();
      detail.scrollIntoView({ block: "nearest" });
    }

    function follow(offset) {
      stop();
      hosts = undefined;
      const query = new URLSearchParams({ flavor, within: chosen === "/" ? "" : chosen, offset, limit: 128 });
      stop = view(escaped("ws", "topology", name, "domains") + "?" + query, (all) => { hosts = all; drawHosts(offset); });
    }

    function drawHosts(offset) {
      const k = chosen === "/" ? "" : chosen;
      if (!hosts) return kept(detail, h("p", { class: "quiet" }, "Connecting…"));
      if (hosts.error) return kept(detail, h("h2", {}, k || "All nodes"), h("p", { class: "bad" }, hosts.error));
      const all = values(hosts);
      const lowest = all.every((d) => d.values.length === (last?.sums?.levels?.length ?? 0));
      const turn = (label, to, off) => h("button", { type: "button", "data-key": label, disabled: off, onclick: () => follow(to) }, label);
      const more = (hosts.total ?? all.length) > all.length ? h("div", { class: "bar" }, turn("Previous", Math.max(0, offset - 128), offset === 0),
        turn("Next", offset + 128, offset + all.length >= hosts.total), h("span", { class: "quiet" }, `${offset + 1} to ${offset + all.length} of ${hosts.total}`)) : "";
      kept(detail, h("h2", {}, k || "All nodes"), more,
        lowest ? h("div", { class: "tiles hosts", role: "list" }, all.map((d) => tile(d, resource, need()))) : h("div", { class: "tiles" }, all.map((d) => tile(d, resource, need(), chosen, choose))),
        lowest ? occupants(all) : "");
    }

    // occupants is the same as a table, with links.
    function occupants(all) {
      const rows = all.flatMap((d) => (d.occupants ?? []).map((o) => [d.values[d.values.length - 1], workloadName(o.namespace, o.name), o.podSet, o.queue, number(o.pods)]));
      return [h("h2", {}, "Whose pods are there"), table(["Node", "Workload", "Pod set", "Cluster queue", "Pods"], rows, "No workload that you may see.")];
    }

    function draw() {
      if (!last) return;
      if (last.error) return kept(head, h("p", { class: "bad" }, last.error));
      if (last.names.length === 0) return kept(head, h("p", { class: "quiet" }, "No ResourceFlavor uses this topology."));
      const all = values(last.domains);
      const names = Object.keys(last.sums.levels?.[0]?.resources ?? {}).sort();
      if (!names.includes(resource)) resource = names.find((n) => n.includes("/")) ?? names[0] ?? "";
      kept(head, h("p", { class: "quiet" }, nodes(last.sums.nodes)), h("div", { class: "bar" },
        choice("Flavor", last.names.map((n) => [n, "flavor " + n]), last.sums.flavor, (v) => go(at({ flavor: v, within: "" }))),
        choice("Resource", names.map((n) => [n, n]), resource, (v) => { resource = v; history.replaceState(null, "", at({ resource: v })); draw(); if (chosen !== undefined) drawHosts(0); }),
        choice("What a pending workload needs", [["", "what a pending workload needs…"], ...[...new Set([...(workload ? [workload] : []), ...last.waiting])].map((w) => [w, w])], workload,
          (v) => go(at({ workload: v })))),
      needed(last.asked),
      h("p", { class: "small legend" }, h("span", { class: "swatch used" }), " in use ", h("span", { class: "swatch" }), " free ", h("span", { class: "swatch part" }), " some nodes excluded ",
        h("span", { class: "swatch out" }), " no node counts"));
      kept(map, nested(all, last.depth, (d) => tile(d, resource, need(), chosen === "/" ? "" : chosen, choose)));
      kept(sums, h("h2", {}, "Free and fragmented"), fragmentation(last.sums));
    }

    view(escaped("ws", "topology", name) + "?" + new URLSearchParams({ flavor, ...(workload ? { workload } : {}) }), (all) => {
      const first = last === undefined;
      last = all;
      draw();
      if (first && chosen !== undefined && !all.error) follow(0);
    });
    return [h("h1", {}, name), head, map, detail, sums, yaml("topology", name)];
  }

  return { topologies, topology };
}
