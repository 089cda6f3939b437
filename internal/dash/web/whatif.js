// The page of what-ifs: a form of changes, and what they would do. Nothing is written.

const mostQuotas = 20;
const effects = {
  preempted: "bad", notStarted: "bad", stranded: "bad", later: "bad", moved: "wait", new: "good", removed: "off", starts: "good", earlier: "good", spared: "good",
};

export function whatIfPages({ h, view, ask, table, number, reason, badge, queueLink, clusterQueueLink, flavorLink, workloadName, plural }) {
  let count = 0; // of elements with an id

  // field is a labelled control with a place for its error. path is its name in the question.
  function field(path, label, control, hint) {
    const id = `what-if-${++count}`;
    const error = h("p", { class: "bad small", id: id + "-error", hidden: true });
    control.id = id;
    control.setAttribute("aria-describedby", (hint ? id + "-hint " : "") + error.id);
    const element = h("div", { class: "field" }, h("label", { for: id }, label), control, hint ? h("p", { class: "quiet small", id: id + "-hint" }, hint) : "", error);
    return { path, control, element, fault(text) {
      error.textContent = text;
      error.hidden = !text;
      if (text) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    } };
  }

  const value = (f) => f.control.value.trim();

  // suggested is an input with a list of names that are known; names replaces the list.
  function suggested(attributes) {
    const list = h("datalist", { id: `what-if-list-${++count}` });
    const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off", list: list.id, ...attributes });
    const names = (known) => list.replaceChildren(...[...new Set(known)].map((name) => h("option", { value: name })));
    return { input, list, names };
  }

  const plain = (attributes) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off", ...attributes });

  // quotaRow is one change of a quota.
  function quotaRow(known, queue, removed) {
    const [queues, flavors, resources] = [suggested({ value: queue }), suggested({ placeholder: "the only one" }), suggested({})];
    const fields = [
      field("queue", "Cluster queue", queues.input), field("flavor", "Flavor", flavors.input), field("resource", "Resource", resources.input),
      field("amount", "Change", plain({ placeholder: "+16" })),
    ];
    const suggest = () => {
      queues.names(known().clusterQueues.map((q) => q.name));
      const of = known().clusterQueues.find((q) => q.name === value(fields[0]))?.flavors ?? [];
      flavors.names(of.map((f) => f.name));
      resources.names(of.filter((f) => !value(fields[1]) || f.name === value(fields[1])).flatMap((f) => f.resources ?? []));
    };
    queues.input.addEventListener("input", suggest);
    flavors.input.addEventListener("input", suggest);
    const row = { fields, suggest, given: () => fields.slice(1).some((f) => value(f)) };
    row.element = h("div", { class: "fields", role: "group", "aria-label": "Change of a quota" }, fields.map((f) => f.element), queues.list, flavors.list, resources.list,
      h("button", { type: "button", class: "remove", "aria-label": "Remove this change of a quota", onclick: () => removed(row) }, "Remove"));
    return row;
  }

  function quotaPart(known, queue) {
    let rows = [];
    const body = h("div", {});
    const add = h("button", { type: "button", onclick: () => { append(""); rows.at(-1).fields[0].control.focus(); } }, "Add a quota");
    const update = () => { add.disabled = rows.length >= mostQuotas; };
    const append = (name) => {
      const row = quotaRow(known, name, (gone) => {
        rows = rows.filter((r) => r !== gone);
        gone.element.remove();
        update();
        add.focus();
      });
      rows.push(row);
      body.append(row.element);
      row.suggest();
      update();
    };
    append(queue);
    return {
      element: h("fieldset", { class: "card" }, h("legend", {}, "Quotas"), h("p", { class: "quiet small" }, "+16 and -8 change a quota, =32 sets it."), body, add),
      suggest: () => rows.forEach((r) => r.suggest()),
      // read returns the changes, and the fields by their paths. Rows without a change are left out.
      read: () => {
        const given = rows.filter((r) => r.given());
        return [given.map((r) => Object.fromEntries(r.fields.map((f) => [f.path, value(f)]))), given.flatMap((r, i) => r.fields.map((f) => [`quotas.${i}.${f.path}`, f]))];
      },
      fields: () => rows.flatMap((r) => r.fields),
    };
  }

  function submitPart(known) {
    const [namespaces, queues, classes, levels] = [suggested({}), suggested({}), suggested({}), suggested({})];
    const within = h("select", {}, [["", "anywhere"], ["required", "must be in one domain"], ["preferred", "should be in one domain"]].map(([v, text]) => h("option", { value: v }, text)));
    const fields = [
      field("namespace", "Namespace", namespaces.input), field("queue", "Local queue", queues.input), field("pods", "Pods", plain({ value: "1", inputmode: "numeric" })),
      field("requests", "Requests of a pod", plain({ placeholder: "cpu=2, memory=8Gi" })), field("runTime", "Runs for", plain({ placeholder: "1h30m" }), "unknown if empty"),
      field("priorityClass", "Priority class", classes.input), field("priority", "Priority", plain({ inputmode: "numeric", placeholder: "0" })),
      field("topology", "Placement of the pods", within), field("level", "Level of the domain", levels.input),
    ];
    const suggest = () => {
      const k = known();
      namespaces.names(k.localQueues.map((q) => q.namespace));
      queues.names(k.localQueues.filter((q) => !value(fields[0]) || q.namespace === value(fields[0])).map((q) => q.name));
      classes.names(k.priorityClasses);
      levels.names(k.levels);
      for (const f of fields.slice(7)) f.element.hidden = !k.topology;
    };
    namespaces.input.addEventListener("input", suggest);
    return {
      element: h("fieldset", { class: "card" }, h("legend", {}, "A new workload"),
        h("div", { class: "fields" }, fields.map((f) => f.element), [namespaces, queues, classes, levels].map((s) => s.list))),
      suggest,
      read: () => {
        const given = fields.some((f) => f.path !== "pods" && value(f)) || value(fields[2]) !== "1";
        return [given ? Object.fromEntries(fields.map((f) => [f.path, value(f)])) : undefined, fields.map((f) => ["submit." + f.path, f])];
      },
      fields: () => fields,
    };
  }

  function restPart(known) {
    const nodes = suggested({ placeholder: "node-1, node-2" });
    const yaml = h("textarea", { spellcheck: "false", autocapitalize: "off" });
    const [drains, objects] = [field("drains", "Nodes to drain", nodes.input, "with commas between them"), field("yaml", "Objects that are added, or replace those of the same kind and name", yaml)];
    const [horizon, runTime] = [field("horizon", "How far ahead", plain({ value: "2h" })), field("runTime", "Run time for the others", plain({ placeholder: "1h" }), "of workloads that do not say; up to the end if empty")];
    // Names behind the last comma are completed.
    const suggest = () => {
      const before = nodes.input.value.slice(0, nodes.input.value.lastIndexOf(",") + 1);
      nodes.names(known().nodes.map((n) => (before ? before.trim() + " " : "") + n));
      drains.element.hidden = !known().topology;
    };
    nodes.input.addEventListener("input", suggest);
    return {
      element: [h("fieldset", { class: "card" }, h("legend", {}, "More changes"), drains.element, nodes.list, h("details", {}, h("summary", {}, "Objects as YAML"), objects.element)),
        h("fieldset", { class: "card" }, h("legend", {}, "Time"), h("div", { class: "fields" }, horizon.element, runTime.element))],
      suggest,
      read: () => {
        const names = value(drains).split(",").map((n) => n.trim()).filter(Boolean);
        const paths = [["yaml", objects], ["horizon", horizon], ["runTime", runTime], ["drains", drains], ...names.map((n, i) => [`drains.${i}`, { ...drains, fault: (text) => drains.fault(`${n}: ${text}`) }])];
        return [{ drains: names, yaml: value(objects), horizon: value(horizon), runTime: value(runTime) }, paths];
      },
      fields: () => [drains, objects, horizon, runTime],
    };
  }

  const more = (n, noun) => n > 0 ? h("p", { class: "quiet" }, `and ${plural(n, noun)} more: berth whatif -o json has all`) : "";

  function answered(a) {
    return [
      h("p", { class: "lead" }, a.summary),
      a.workloads.length > 0 ? table(["Workload", "Queue", "Priority", "Effect", "Without the change", "With it", "Wait"], a.workloads.map((w) => [
        w.exists ? workloadName(w.namespace, w.name) : `${w.namespace}/${w.name}`, queueLink(w.namespace, w.localQueue), number(w.priority), badge([w.words, effects[w.effect] ?? "off"]),
        reason(w.before), reason(w.after), h("td", { class: "place" }, w.wait)])) : "",
      more(a.moreWorkloads, "workload"),
      (a.use ?? []).length > 0 ? [h("h3", {}, "Use of quotas"), table(["Cluster queue", "Flavor", "Resource", "Quota", "Mean use", "With the change"], a.use.map((u) =>
        [clusterQueueLink(u.clusterQueue), flavorLink(u.flavor), u.resource, u.quota, u.before, u.after]))] : "",
      more(a.moreUse, "quota"),
      a.runTimes ? h("p", { class: "quiet" }, a.runTimes) : "",
      (a.notes ?? []).map((n) => h("p", { class: "quiet" }, "Note: ", n)),
    ];
  }

  function form(known) {
    const quotas = quotaPart(known, new URLSearchParams(location.search).get("queue") ?? "");
    const [submit, rest] = [submitPart(known), restPart(known)];
    const parts = [quotas, submit, rest];
    const said = h("p", { class: "bad", role: "alert" });
    const status = h("p", { role: "status", class: "quiet" });
    const bar = h("progress", { max: 1, hidden: true, "aria-label": "Progress" });
    const title = h("h2", { tabindex: "-1" }, "What would happen");
    const body = h("div", {});
    const answer = h("section", { hidden: true, "aria-label": "Answer" }, title, body);
    const send = h("button", { type: "submit", class: "main" }, "Ask");
    const stop = h("button", { type: "button", hidden: true }, "Stop");
    let close = () => {};

    const idle = (text) => {
      close();
      send.disabled = false;
      stop.hidden = bar.hidden = true;
      status.textContent = text;
    };
    stop.addEventListener("click", () => { idle("Stopped."); send.focus(); });

    const refused = (errors, fields) => {
      let first;
      const rest = [];
      for (const e of errors) {
        const f = fields.get(e.field);
        if (!f) { rest.push(e.message); continue; }
        f.fault(e.message);
        f.control.closest("details")?.setAttribute("open", "");
        first ??= f;
      }
      said.textContent = [...rest, first ? `${plural(errors.length - rest.length, "field")} must be corrected, the first: ${errors.find((e) => fields.has(e.field)).message}` : ""].filter(Boolean).join(" ");
      (first?.control ?? send).focus();
    };

    const onsubmit = (e) => {
      e.preventDefault();
      if (send.disabled) return;
      for (const f of parts.flatMap((p) => p.fields())) f.fault("");
      said.textContent = "";
      answer.hidden = true;
      const [[changes, ofQuotas], [workload, ofSubmit], [others, ofRest]] = parts.map((p) => p.read());
      const fields = new Map([...ofQuotas, ...ofSubmit, ...ofRest]);
      send.disabled = true;
      stop.hidden = false;
      status.textContent = "Asking…";
      close = ask("/ws/what-if/answer", { quotas: changes, submit: workload, ...others }, (r) => {
        if (r.answer) {
          idle("");
          body.replaceChildren(...answered(r.answer).flat(Infinity).filter(Boolean));
          answer.hidden = false;
          title.focus();
          answer.scrollIntoView({ block: "start" });
        } else if (r.errors) {
          idle("");
          refused(r.errors, fields);
        } else if (r.error) {
          idle("");
          said.textContent = r.error;
          send.focus();
        } else if (r.waiting) {
          status.textContent = "Another what-if is being answered. Yours waits for its turn.";
        } else {
          bar.hidden = false;
          bar.value = r.done;
          status.textContent = `${Math.floor((100 * r.done) / 10) * 10} % done`; // in steps that a screen reader can follow
        }
      }, () => { idle(""); said.textContent = "The connection ended before there was an answer. Ask again."; send.focus(); });
    };
    const suggest = () => parts.forEach((p) => p.suggest());
    return { suggest, element: [h("form", { class: "whatif", novalidate: true, onsubmit }, parts.map((p) => p.element), h("div", { class: "bar" }, send, stop, status, bar), said), answer] };
  }

  function whatIf() {
    let known;
    let shown;
    const body = h("div", {}, h("p", { class: "quiet" }, "Connecting…"));
    view("/ws/what-if", (choices) => {
      if (choices.error) {
        shown = undefined;
        return body.replaceChildren(h("p", { class: "bad", role: "alert" }, choices.error),
          h("p", { class: "quiet" }, "An answer is about all queues: it takes the right to list Workloads in all namespaces, and to list ClusterQueues."));
      }
      known = choices;
      if (!shown) {
        shown = form(() => known);
        body.replaceChildren(...shown.element);
      }
      shown.suggest();
    });
    return [h("h1", {}, "What if"), h("p", {}, "What a change would do before it is made: who starts, who is preempted, who waits longer and by how much. Nothing is written."), body];
  }

  return { "what-if": whatIf };
}
