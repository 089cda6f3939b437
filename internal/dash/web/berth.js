// The pages of the dashboard. Each opens the views that it shows as WebSockets, and is drawn again when one of them changes.

import { charts } from "/assets/charts.js";
import { explainPages } from "/assets/explain.js";
import { topologyPages } from "/assets/topology.js";
import { whatIfPages } from "/assets/whatif.js";

const page = document.getElementById("page");
const link = document.getElementById("link");
const leave = document.getElementById("leave");
const tokenKey = "berth.token";
const pageSize = 100;
const soon = 5; // workloads that start next, on the first page
let authMode = "TokenReview";
let open = []; // the views of the page that is shown

// h makes an element. Texts are only ever set as texts.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
  return element;
}

const token = () => sessionStorage.getItem(tokenKey) ?? "";

function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

// merge applies a JSON merge patch (RFC 7386).
function merge(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const out = target !== null && typeof target === "object" && !Array.isArray(target) ? target : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete out[key];
    else out[key] = merge(out[key], value);
  }
  return out;
}

// socketTo opens a WebSocket.
function socketTo(path, parameters) {
  const url = new URL(path, location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const protocols = ["kueueviz.v1"];
  if (token()) protocols.push("kueueviz.auth." + base64url(token()));
  return new WebSocket(url, protocols);
}

const toLogin = () => go("/login?to=" + encodeURIComponent(location.pathname + location.search));

// ask sends a question and calls replied with each reply, the last of which ends it, or lost if there is none. It ends when the page is left,
// and returns a function that ends it before.
function ask(path, question, replied, lost) {
  const socket = socketTo(path, {});
  let closed = false;
  const close = () => { closed = true; socket.close(); };
  socket.onopen = () => socket.send(JSON.stringify(question));
  socket.onmessage = (message) => { if (!closed) replied(JSON.parse(message.data)); };
  socket.onclose = async () => {
    if (closed) return;
    if (!await identified()) return toLogin();
    if (!closed) lost();
  };
  open.push(close);
  return close;
}

// view follows a view of the back end until the page is left, and calls changed with all of it. It returns a function that ends it before.
function view(path, changed) {
  const state = { closed: false, socket: null, pause: 500 };
  const connect = () => {
    if (state.closed) return;
    const socket = socketTo(path, { delta: "true" });
    let whole;
    state.socket = socket;
    socket.onmessage = (message) => {
      if (state.closed) return;
      state.pause = 500;
      online(true);
      whole = whole === undefined ? JSON.parse(message.data) : merge(whole, JSON.parse(message.data));
      changed(whole);
    };
    socket.onclose = async (end) => {
      if (state.closed) return;
      if (end.code === 1008) {
        if (!await identified()) return toLogin();
        changed({ error: end.reason || "you may not see this" });
        return;
      }
      online(false);
      if (!await identified()) return toLogin();
      setTimeout(connect, state.pause);
      state.pause = Math.min(2 * state.pause, 15000);
    };
  };
  const close = () => { state.closed = true; state.socket?.close(); };
  open.push(close);
  connect();
  return close;
}

function online(is) {
  link.className = is ? "link live" : "link lost";
  link.textContent = is ? "live" : "connecting…";
}

// identified tells whether the back end wants no token, or takes ours. While it cannot be asked that is assumed.
async function identified() {
  try {
    const headers = token() ? { Authorization: "Bearer " + token() } : {};
    const answer = await fetch("/auth/status", { headers });
    if (!answer.ok) return true;
    const status = await answer.json();
    authMode = status.authMode;
    leave.hidden = authMode === "Disabled" || !token();
    if (status.user) leave.title = status.user;
    return authMode === "Disabled" || status.authenticated === true;
  } catch {
    return true;
  }
}

// What is read out of objects.

// values are the items of a list in its order, by name if it has none.
const values = (list) => (list?.order ?? Object.keys(list?.items ?? {}).sort()).map((key) => list.items?.[key]).filter(Boolean);
const condition = (o, type) => o.status?.conditions?.find((c) => c.type === type);
const holds = (o, type) => condition(o, type)?.status === "True";

function status(w) {
  if (holds(w, "Finished")) return condition(w, "Finished").reason === "Failed" ? ["failed", "bad"] : ["finished", "off"];
  if (w.spec?.active === false) return ["inactive", "off"];
  if (holds(w, "Admitted")) return holds(w, "PodsReady") ? ["running", "good"] : ["admitted", "good"];
  if (holds(w, "QuotaReserved")) return ["quota reserved", "wait"];
  if (w.preemption?.preempted) return ["preempted", "bad"];
  return holds(w, "Evicted") ? ["evicted", "bad"] : ["pending", "wait"];
}

// why is what a Workload waits for, or how it ended.
function why(w) {
  if (holds(w, "Finished")) return condition(w, "Finished").message ?? "";
  if (holds(w, "Admitted")) return "";
  const checks = (w.status?.admissionChecks ?? []).filter((c) => c.state !== "Ready");
  if (holds(w, "QuotaReserved")) return checks.map((c) => `waits for ${c.name}: ${c.message || c.state}`).join("; ");
  return condition(w, "QuotaReserved")?.message || condition(w, "Evicted")?.message || place(w);
}

// place is where a Workload is in the line of its cluster queue.
function place(w) {
  if (!w.position) return "behind others in its queue";
  const n = w.position.before;
  return n === 0 ? `the next of ${w.position.clusterQueue}` : `behind ${n === 1 ? "one other" : n + " others"} in ${w.position.clusterQueue}`;
}

const plural = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

const units = { n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };
function amount(quantity) {
  const parts = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$/.exec(String(quantity ?? "0"));
  return parts ? Number(parts[1]) * (units[parts[2]] ?? 1) : 0;
}

function age(since) {
  const seconds = Math.max(0, (Date.now() - Date.parse(since)) / 1000);
  if (!Number.isFinite(seconds)) return "";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["m", 60]]) if (seconds >= length) return Math.floor(seconds / length) + unit;
  return Math.floor(seconds) + "s";
}

// clock is a time of day, with the day unless that is today. A start that was expected earlier is expected now.
function clock(time) {
  const at = new Date(Math.max(Date.parse(time), Date.now()));
  const day = at.toDateString() === new Date().toDateString() ? {} : { month: "short", day: "numeric" };
  return at.toLocaleString([], { ...day, hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

// Parts of pages.

const to = (path, ...text) => h("a", { href: path }, text);
const escaped = (...parts) => "/" + parts.map(encodeURIComponent).join("/");
const workloadLink = (w) => to(escaped("workload", w.metadata.namespace, w.metadata.name), w.metadata.name);
const queueLink = (namespace, name) => name ? to(escaped("local-queue", namespace, name), name) : "";
const clusterQueueLink = (name) => name ? to(escaped("cluster-queue", name), name) : "";
const flavorLink = (name) => to(escaped("resource-flavor", name), name);
const cohortLink = (name) => name ? to(escaped("cohort", name), name) : "";
const badge = ([text, kind]) => h("span", { class: "badge " + kind }, text);
const activity = (q) => badge(holds(q, "Active") ? ["active", "good"] : [condition(q, "Active")?.reason ?? "inactive", "bad"]);
const figure = (label, value, path) => h(path ? "a" : "div", { class: "figure", href: path }, h("b", {}, String(value)), h("span", { class: "quiet small" }, label));
const inState = (state) => "/workloads?" + new URLSearchParams({ state });

function table(heads, rows, nothing) {
  if (rows.length === 0) return h("p", { class: "quiet" }, nothing);
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => cell instanceof HTMLTableCellElement ? cell : h("td", {}, cell)))))));
}

const number = (value) => h("td", { class: "number" }, String(value ?? 0));
const reason = (...text) => h("td", { class: "why small" }, text);

// starts is when a pending workload is expected to start: the median, and the window that 8 of 10 starts are in.
function starts(w) {
  const e = w.expectedStart;
  if (!e) return "";
  if (e.unknown || !e.until) return h("span", { class: "quiet", title: e.unknown }, "unknown");
  const end = (time) => time ? clock(time) : "after " + clock(e.until);
  return [e.p50 ? "~" + clock(e.p50) : end(), e.p10 ? h("div", { class: "quiet small" }, `${clock(e.p10)} to ${e.p90 ? "" : "some time "}${end(e.p90)}`) : ""];
}

// explained is the link to what a pending workload waits for.
const explained = (w) => ["wait", "bad"].includes(status(w)[1]) && !holds(w, "Finished")
  ? h("a", { href: escaped("workload", w.metadata.namespace, w.metadata.name, "explanation"), class: "explain", "aria-label": `explain why ${w.metadata.name} waits` }, "explain") : "";

function workloadTable(found, nothing = "There are no workloads.") {
  return table(["Workload", "Namespace", "Queue", "Status", "Starts", "Why", "Priority", "Pods", "Age"], found.map((w) => [
    workloadLink(w), w.metadata.namespace, queueLink(w.metadata.namespace, w.spec?.queueName),
    [badge(status(w)), w.position ? h("div", { class: "quiet small place", title: place(w) }, `no. ${w.position.before + 1} in line`) : ""], starts(w), reason([why(w), " ", explained(w)]),
    number(w.spec?.priority), number(w.pods?.length), age(w.metadata.creationTimestamp),
  ]), nothing);
}

// bar shows how much of a quota is in use, and how much of that is borrowed.
function bar(label, used, borrowed, nominal) {
  const whole = Math.max(amount(nominal), amount(used), 1e-9);
  const part = (kind, value) => {
    const element = h("span", { class: kind });
    element.style.width = (100 * value) / whole + "%";
    return element;
  };
  const lent = amount(borrowed);
  const text = `${used ?? 0} of ${nominal ?? 0}` + (lent > 0 ? `, ${borrowed} borrowed` : "");
  return h("div", { class: "usage" }, h("div", { class: "what" }, h("span", {}, label), h("span", {}, text)),
    h("div", { class: "track", role: "img", "aria-label": `${text}` }, part("used", amount(used) - lent), part("borrowed", lent)));
}

// bars are those of a ClusterQueue: what has quota against what there is.
function bars(queue, only) {
  const used = {};
  for (const f of queue.status?.flavorsReservation ?? []) for (const r of f.resources ?? []) used[f.name + "/" + r.name] = r;
  const out = [];
  for (const group of queue.spec?.resourceGroups ?? []) {
    for (const f of group.flavors ?? []) {
      if (only && f.name !== only) continue;
      for (const r of f.resources ?? []) {
        const u = used[f.name + "/" + r.name];
        out.push(bar(`${f.name} · ${r.name}`, u?.total, u?.borrowed, r.nominalQuota));
      }
    }
  }
  return out.length > 0 ? out : [h("p", { class: "quiet small" }, "no quota")];
}

function clusterQueueCard(queue, only) {
  const s = queue.status ?? {};
  return h("section", { class: "card" }, h("h3", {}, clusterQueueLink(queue.metadata.name), " ", activity(queue)),
    h("div", { class: "quiet small" }, `${s.pendingWorkloads ?? 0} pending, ${s.reservingWorkloads ?? 0} with quota, ${s.admittedWorkloads ?? 0} admitted`,
      queue.spec?.cohortName ? [", cohort ", cohortLink(queue.spec.cohortName)] : ""),
    bars(queue, only));
}

const clusterQueueCards = (queues, only) => queues.length > 0
  ? h("div", { class: "cards" }, queues.map((q) => clusterQueueCard(q, only))) : h("p", { class: "quiet" }, "There are none that you may see.");

function queueTable(queues) {
  return table(["Queue", "Namespace", "Cluster queue", "State", "Pending", "With quota", "Admitted"], queues.map((q) => [
    queueLink(q.metadata.namespace, q.metadata.name), q.metadata.namespace, clusterQueueLink(q.spec?.clusterQueue), activity(q),
    number(q.status?.pendingWorkloads), number(q.status?.reservingWorkloads), number(q.status?.admittedWorkloads),
  ]), "There are no local queues.");
}

function conditions(o) {
  return table(["Condition", "Status", "Reason", "Message", "Since"], (o.status?.conditions ?? []).map((c) =>
    [c.type, c.status, c.reason, reason(c.message), age(c.lastTransitionTime)]), "There are no conditions yet.");
}

// yaml shows an object as YAML when asked.
function yaml(kind, name, namespace) {
  const out = h("div", {});
  const button = h("button", { type: "button", onclick: async () => {
    if (out.children.length > 0) return out.replaceChildren();
    const query = new URLSearchParams({ output: "yaml", ...(namespace ? { namespace } : {}) });
    const headers = token() ? { Authorization: "Bearer " + token() } : {};
    const answer = await fetch(`/api/${kind}/${encodeURIComponent(name)}?${query}`, { headers }).catch((e) => ({ text: () => e.message }));
    out.replaceChildren(h("pre", {}, await answer.text()));
  } }, "YAML");
  return [h("h2", {}, button), out];
}

// redraw replaces the content of an element, and keeps the keyboard on the same link or control.
function redraw(element, ...children) {
  const like = (e) => `${e.tagName} ${e.getAttribute("href") ?? e.dataset.key ?? e.textContent}`;
  const had = element.contains(document.activeElement) && document.activeElement !== element ? document.activeElement : undefined;
  const focusable = "a[href], button, select, input, [tabindex]";
  const alike = had ? [...element.querySelectorAll(focusable)].filter((e) => like(e) === like(had)) : [];
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false));
  if (had) [...element.querySelectorAll(focusable)].filter((e) => like(e) === like(had))[alike.indexOf(had)]?.focus();
}

// single follows one object and draws it below its title.
function single(title, path, draw, extra = []) {
  const body = h("div", {}, h("p", { class: "quiet" }, "Connecting…"));
  view(path, (o) => redraw(body, o.error ? h("p", { class: "bad" }, o.error) : draw(o)));
  return [h("h1", {}, title), body, extra];
}

// Pages, by path.

// short is an amount of a resource.
const short = (name, n) => name === "memory" || name.endsWith("storage") ? `${+(n / units.Gi).toFixed(1)}Gi` : String(+n.toFixed(2));

// full are bars of all quota together, by resource.
function full(queues) {
  const sums = new Map();
  const sum = (name, key, quantity) => {
    if (!sums.has(name)) sums.set(name, { used: 0, nominal: 0 });
    sums.get(name)[key] += amount(quantity);
  };
  for (const q of queues) {
    for (const f of (q.spec?.resourceGroups ?? []).flatMap((g) => g.flavors ?? [])) for (const r of f.resources ?? []) sum(r.name, "nominal", r.nominalQuota);
    for (const f of q.status?.flavorsReservation ?? []) for (const r of f.resources ?? []) sum(r.name, "used", r.total);
  }
  return [...sums].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, { used, nominal }]) =>
    bar(nominal > 0 ? `${name} · ${Math.round((100 * used) / nominal)} %` : name, short(name, used), 0, short(name, nominal)));
}

function overview() {
  const course = usage("/ws/usage");
  return single("Queues", `/ws/workloads/dashboard?order=state&limit=${pageSize}`, (d) => {
    const all = values(d.workloads);
    const { pending, quotareserved, admitted, lastHour } = d.summary;
    const waiting = all.filter((w) => ["wait", "bad"].includes(status(w)[1]) && !holds(w, "Finished"));
    const next = waiting.filter((w) => w.expectedStart?.p50).sort((a, b) => Date.parse(a.expectedStart.p50) - Date.parse(b.expectedStart.p50)).slice(0, soon);
    const more = pending + quotareserved - waiting.length;
    const queues = values(d.clusterQueues);
    const bars = full(queues);
    return [
      h("div", { class: "figures" }, figure("pending", pending, inState("pending")), quotareserved > 0 ? figure("wait for checks", quotareserved, inState("quotareserved")) : "",
        figure("admitted", admitted, inState("admitted")), figure("local queues", values(d.queues).length, "/local-queues")),
      h("div", { class: "cards" },
        h("section", { class: "card" }, h("h3", {}, "How full"), bars.length > 0 ? [bars, course, h("p", { class: "small" }, to("/what-if", "What if a quota changed, or a workload came?"))] : h("p", { class: "quiet" }, "There is no quota that you may see.")),
        h("section", { class: "card" }, h("h3", {}, "In the last hour"), h("div", { class: "figures" },
          figure("started", lastHour.admitted, inState("admitted")), figure("finished", lastHour.finished, inState("finished")),
          figure("failed", lastHour.failed, inState("finished")), figure("evicted", lastHour.evicted, inState("pending")))),
        h("section", { class: "card" }, h("h3", {}, "What starts next"), table(["Starts", "Workload", "Queue"], next.map((w) =>
          [starts(w), workloadLink(w), queueLink(w.metadata.namespace, w.spec?.queueName)]), pending > 0 ? "Nothing whose start is known." : "Nothing waits."))),
      h("h2", {}, "What waits, and why"), workloadTable(waiting, "Nothing waits."),
      more > 0 ? h("p", { class: "quiet" }, to(inState("pending"), `and ${more} more`)) : "",
      h("h2", {}, "Cluster queues"), clusterQueueCards(queues),
    ];
  });
}

// pagesOf shows a view of workloads page by page. at(offset) is the address of another page. It returns the elements that turn the pages,
// and the table.
function pagesOf(path, parameters, at) {
  const offset = Number(new URLSearchParams(location.search).get("offset") ?? 0) || 0;
  const filter = h("input", { type: "search", placeholder: "filter this page", "aria-label": "Filter", oninput: () => draw() });
  const count = h("span", { class: "quiet" });
  const turn = (label, to) => h("button", { type: "button", onclick: () => go(at(to)) }, label);
  const before = turn("Previous", Math.max(0, offset - pageSize));
  const after = turn("Next", offset + pageSize);
  const body = h("div", {});
  let shown = { items: {} };
  const draw = () => {
    if (shown.error) return body.replaceChildren(h("p", { class: "bad" }, shown.error));
    const all = values(shown);
    const text = filter.value.toLowerCase();
    redraw(body, workloadTable(all.filter((w) => `${w.metadata.namespace}/${w.metadata.name} ${w.spec?.queueName} ${status(w)[0]}`.includes(text))));
    count.textContent = all.length > 0 ? `${offset + 1} to ${offset + all.length} of ${shown.total ?? all.length}` : "";
    before.disabled = offset === 0;
    after.disabled = offset + all.length >= (shown.total ?? 0);
  };
  view(`${path}?${new URLSearchParams({ ...parameters, order: "state", limit: pageSize, offset })}`, (all) => { shown = all; draw(); });
  return [[filter, before, after, count], body];
}

function workloads() {
  const asked = new URLSearchParams(location.search);
  const namespace = asked.get("namespace") ?? "";
  const state = asked.get("state") ?? "";
  const at = (change) => "/workloads?" + new URLSearchParams({ namespace, state, ...change });
  const wanted = h("select", { "aria-label": "State", onchange: (e) => go(at({ state: e.target.value })) },
    [["", "all states"], ["pending", "pending"], ["quotareserved", "quota reserved"], ["admitted", "admitted"], ["finished", "finished"]].map(([value, text]) =>
      h("option", { value, selected: value === state }, text)));
  const choice = h("select", { "aria-label": "Namespace", onchange: (e) => go(at({ namespace: e.target.value })) });
  view("/ws/namespaces", (all) => choice.replaceChildren(...["", ...values(all).map((n) => n.metadata.name)].map((n) =>
    h("option", { value: n, selected: n === namespace }, n || "all namespaces"))));
  const [turns, body] = pagesOf("/ws/workloads", { namespace, state }, (offset) => at({ offset }));
  return [h("h1", {}, "Workloads"), h("div", { class: "bar" }, choice, wanted, turns), body];
}

function workload(namespace, name, part) {
  if (part === "explanation") return explanation(namespace, name);
  const happened = h("div", {});
  view(escaped("ws", "workload", namespace, name, "events"), (all) => happened.replaceChildren(all.error ? h("p", { class: "quiet" }, all.error)
    : table(["Last seen", "Type", "Reason", "Message", "Times"], values(all)
      .map((e) => [e.series?.lastObservedTime ?? e.lastTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp, e])
      .sort((a, b) => Date.parse(b[0]) - Date.parse(a[0]))
      .map(([when, e]) => [age(when), e.type, e.reason, reason(e.message), number(e.series?.count ?? e.count ?? 1)]), "There are no events.")));
  return single(`${namespace}/${name}`, escaped("ws", "workload", namespace, name), (w) => [
    h("p", {}, badge(status(w)), " ", why(w), w.position && why(w) !== place(w) ? ` (${place(w)})` : "", " ", explained(w)),
    w.expectedStart?.unknown ? h("p", { class: "quiet" }, `When it starts is unknown: ${w.expectedStart.unknown}`) : "",
    w.preemption.preempted ? h("p", { class: "bad" }, `It was preempted: ${w.preemption.reason}`) : "",
    h("div", { class: "card" }, h("dl", {},
      h("dt", {}, "Queue"), h("dd", {}, queueLink(namespace, w.spec?.queueName)),
      h("dt", {}, "Cluster queue"), h("dd", {}, clusterQueueLink(w.status?.admission?.clusterQueue) || "none yet"),
      h("dt", {}, "Priority"), h("dd", {}, String(w.spec?.priority ?? 0)),
      h("dt", {}, "Of"), h("dd", {}, (w.metadata.ownerReferences ?? []).map((o) => `${o.kind} ${o.name}`).join(", ") || "nobody"),
      w.expectedStart ? [h("dt", {}, "Starts"), h("dd", {}, starts(w))] : [],
      h("dt", {}, "Age"), h("dd", {}, age(w.metadata.creationTimestamp)))),
    h("h2", {}, "Pod sets"), table(["Pod set", "Pods", "Flavors", "Charged"], (w.spec?.podSets ?? []).map((p) => {
      const a = w.status?.admission?.podSetAssignments?.find((x) => x.name === p.name);
      return [p.name, number(a?.count ?? p.count), Object.entries(a?.flavors ?? {}).map(([r, f]) => [`${r}: `, flavorLink(f), " "]),
        Object.entries(a?.resourceUsage ?? {}).map(([r, q]) => `${r} ${q}`).join(", ")];
    }), "There are no pod sets."),
    h("h2", {}, "Conditions"), conditions(w),
    h("h2", {}, "Pods"), table(["Pod", "Phase", "Node", "Age", ""], (w.pods ?? []).map((p) => [
      p.metadata.name, p.status?.phase, p.spec?.nodeName ?? "", age(p.metadata.creationTimestamp), reason([p.status?.reason, p.status?.message].filter(Boolean).join(": ")),
    ]), "There are no pods."),
  ], [h("h2", {}, "Events"), happened, yaml("workload", name, namespace)]);
}

function localQueue(namespace, name) {
  const at = (offset) => escaped("local-queue", namespace, name) + "?" + new URLSearchParams({ offset });
  const [turns, body] = pagesOf(escaped("ws", "local-queue", namespace, name, "workloads"), {}, at);
  return single(`${namespace}/${name}`, escaped("ws", "local-queue", namespace, name), (q) => [
    h("p", {}, activity(q), " leads to ", clusterQueueLink(q.spec?.clusterQueue)),
    h("div", { class: "figures" }, figure("pending", q.status?.pendingWorkloads ?? 0), figure("with quota", q.status?.reservingWorkloads ?? 0), figure("admitted", q.status?.admittedWorkloads ?? 0)),
    table(["Flavor", "In use"], (q.status?.flavorsReservation ?? []).map((f) => [flavorLink(f.name), (f.resources ?? []).map((r) => `${r.name} ${r.total}`).join(", ")]), "It uses nothing."),
    h("h2", {}, "Conditions"), conditions(q),
  ], [h("h2", {}, "Workloads"), h("div", { class: "bar" }, turns), body, yaml("localqueue", name, namespace)]);
}

// standings is the order of the local queues of a cluster queue by past usage.
function standings(q) {
  if (!q.standings) return [];
  return [h("h2", {}, "Who is next, by past usage"), table(["Place", "Local queue", "Namespace", "Usage", "Share", "Weight", "Pending", "Consumed"], q.standings.map((s) => [
    number(s.place), queueLink(s.namespace, s.localQueue), s.namespace, s.usage, s.share, s.weight, number(s.pending),
    Object.entries(s.consumed).map(([r, n]) => `${r} ${n.toPrecision(4)}`).join(", "),
  ]), "You may read none of its local queues.")];
}

const workloadName = (namespace, name) => to(escaped("workload", namespace, name), `${namespace}/${name}`);

const explanation = explainPages({
  h, to, escaped, single, table, number, reason, starts, clock, plural, clusterQueueLink, queueLink, cohortLink, flavorLink, workloadName,
});

// every calls a function again and again until the page is left.
function every(pause, f) {
  const timer = setInterval(f, pause);
  open.push(() => clearInterval(timer));
}

const { timeline, usage } = charts({ h, view, redraw, every, escaped, table, number, short, workloadName });

const pages = {
  "": overview,
  "workloads": workloads,
  "workload": workload,
  "local-queues": () => single("Local queues", "/ws/local-queues", (all) => queueTable(values(all))),
  "local-queue": localQueue,
  "cluster-queues": () => single("Cluster queues", "/ws/cluster-queues", (all) => clusterQueueCards(values(all))),
  "cluster-queue": (name) => single(name, escaped("ws", "cluster-queue", name), (q) => [
    h("div", { class: "cards" }, clusterQueueCard(q)), h("h2", {}, "Local queues"), queueTable(values(q.localQueues)), ...standings(q), h("h2", {}, "Conditions"), conditions(q),
  ], [h("h2", {}, "Use of its quota"), h("p", {}, to("/what-if?" + new URLSearchParams({ queue: name }), "What if its quota changed?")), usage(escaped("ws", "cluster-queue", name, "usage")), timeline(name), yaml("clusterqueue", name)]),
  "cohorts": () => single("Cohorts", "/ws/cohorts", (all) => table(["Cohort", "Below", "Cluster queues"], values(all).map((c) =>
    [cohortLink(c.metadata.name), cohortLink(c.spec?.parentName), c.clusterQueues.map((q) => [clusterQueueLink(q), " "])]), "There are no cohorts.")),
  "cohort": (name) => single(name, escaped("ws", "cohort", name), (c) => [
    c.spec?.parentName ? h("p", {}, "below ", cohortLink(c.spec.parentName)) : "", clusterQueueCards(values(c.clusterQueues)),
  ], yaml("cohort", name)),
  "resource-flavors": () => single("Resource flavors", "/ws/resource-flavors", (all) => table(["Flavor", "Node labels", "Taints"], values(all).map((f) => [
    flavorLink(f.metadata.name), Object.entries(f.spec?.nodeLabels ?? {}).map(([k, v]) => `${k}=${v}`).join(", "),
    (f.spec?.nodeTaints ?? []).map((t) => `${t.key}=${t.value ?? ""}:${t.effect}`).join(", "),
  ]), "There are no flavors.")),
  "resource-flavor": (name) => single(name, escaped("ws", "resource-flavor", name), (f) => [
    h("div", { class: "card" }, h("dl", {}, h("dt", {}, "Node labels"),
      h("dd", {}, Object.entries(f.spec?.nodeLabels ?? {}).map(([k, v]) => `${k}=${v}`).join(", ") || "none: any node"),
      h("dt", {}, "Topology"), h("dd", {}, f.spec?.topologyName ? to(escaped("topology", f.spec.topologyName) + "?" + new URLSearchParams({ flavor: name }), f.spec.topologyName) : "none"))),
    h("h2", {}, "Cluster queues with quota of it"), clusterQueueCards(values(f.clusterQueues), name),
  ], yaml("resourceflavor", name)),
  "login": login,
  ...whatIfPages({ h, view, ask, table, number, reason, badge, queueLink, clusterQueueLink, flavorLink, workloadName, plural }),
  ...topologyPages({
    h, view, go, to, escaped, single, table, values, amount, number, yaml, workloadName,
  }),
};

function login() {
  const text = h("textarea", { id: "token", autocomplete: "off", spellcheck: "false", required: true });
  const said = h("p", { class: "bad", role: "alert" });
  return h("form", { class: "login card", onsubmit: async (e) => {
    e.preventDefault();
    sessionStorage.setItem(tokenKey, text.value.trim());
    if (await identified()) {
      const path = new URLSearchParams(location.search).get("to") ?? "/";
      return go(path.startsWith("/") && !path.startsWith("//") ? path : "/");
    }
    sessionStorage.removeItem(tokenKey);
    said.textContent = "The API server does not know this token.";
  } },
  h("h1", {}, "Log in"), h("p", {}, h("label", { for: "token" }, "Show a token of the cluster. You see what its owner may read.")), text,
  h("p", { class: "quiet small" }, "Such as that of: kubectl create token ACCOUNT -n NAMESPACE. It is kept until this tab is closed."),
  said, h("button", { type: "submit" }, "Log in"));
}

function show() {
  for (const close of open) close();
  open = [];
  const [kind, ...rest] = location.pathname.split("/").slice(1).map(decodeURIComponent);
  for (const a of document.querySelectorAll("header nav a")) {
    if (a.pathname === location.pathname) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  document.title = [...rest.slice(0, 2).slice(-1), rest[2], "Berth"].filter(Boolean).join(" · ");
  page.replaceChildren(...[(pages[kind] ?? overview)(...rest)].flat(Infinity));
}

function go(path) {
  history.pushState(null, "", path);
  show();
}

document.addEventListener("click", (e) => {
  const a = e.target.closest?.("a");
  if (!a || a.origin !== location.origin || e.ctrlKey || e.metaKey || e.shiftKey || e.button !== 0) return;
  e.preventDefault();
  go(a.pathname + a.search);
});
window.addEventListener("popstate", show);
leave.addEventListener("click", () => {
  sessionStorage.removeItem(tokenKey);
  leave.hidden = true;
  go("/login");
});

if (location.pathname !== "/login" && !await identified()) toLogin();
else show();
