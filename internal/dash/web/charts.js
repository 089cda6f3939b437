// Charts: the timeline of a cluster queue, and the use of quotas over time. Each has its figures as a table as well.

const minute = 60e3;
const past = 60 * minute;
const ahead = 120 * minute;
const row = 30; // pixels
const top = 22;

export function charts({ h, view, redraw, every, escaped, table, number, short, workloadName }) {
  // s makes an SVG element. Texts are only ever set as texts.
  function s(tag, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.flat(Infinity).filter((c) => c !== "" && c !== undefined));
    return element;
  }

  // of is a time of day.
  const of = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const at = (time, now) => (100 * (Math.min(Math.max(time, now - past), now + ahead) - (now - past))) / (past + ahead);
  const percent = (x) => x.toFixed(2) + "%";

  function axis(now, height) {
    const out = [];
    for (let t = Math.ceil((now - past) / (30 * minute)) * 30 * minute; t < now + ahead; t += 30 * minute) {
      out.push(s("line", { class: "grid", x1: percent(at(t, now)), x2: percent(at(t, now)), y1: top - 4, y2: height }),
        s("text", { class: t % (60 * minute) === 0 ? "tick" : "tick half", x: percent(at(t, now)), y: 12 }, of(t)));
    }
    return out;
  }

  const span = (kind, from, to, y, now) => s("rect", { class: kind, x: percent(at(from, now)), width: percent(Math.max(0.3, at(to, now) - at(from, now))), y: y + 15, height: 10, rx: 2 });

  // lane is one workload: its name above its bars. It is a link for the mouse and for the keyboard.
  const lane = (w, y, said, bars) => s("a", { href: escaped("workload", w.namespace, w.name), "aria-label": `${w.namespace}/${w.name}: ${said}` },
    s("title", {}, `${w.namespace}/${w.name}: ${said}`), s("rect", { class: "lane", x: 0, width: "100%", y, height: row }), s("text", { x: 4, y: y + 11 }, `${w.namespace}/${w.name}, ${said}`), bars);

  function ran(r, y, now) {
    const start = Date.parse(r.start);
    const bars = [span("run " + (r.outcome ?? "running"), start, r.end ? Date.parse(r.end) : now, y, now)];
    if (r.expected && Date.parse(r.expected) > now) bars.push(span("expected", now, Date.parse(r.expected), y, now));
    return lane(r, y, runs(r), bars);
  }

  const runs = (r) => r.end ? `${r.outcome} at ${of(r.end)}` : "runs since " + of(r.start) + (r.expected ? `, until about ${of(r.expected)}` : "");

  // window is when a pending workload starts, in words.
  function window(start) {
    if (!start || start.unknown || !start.until) return "start unknown";
    const end = (time) => time ? of(time) : "after " + of(start.until);
    if (!start.p10) return `starts ${end()}`;
    return "starts " + (start.p50 ? `about ${of(start.p50)}, ` : "") + `between ${of(start.p10)} and ${start.p90 ? "" : "some time "}${end(start.p90)}`;
  }

  function waits(w, y, now) {
    const e = w.start;
    const from = e.p10 ? Date.parse(e.p10) : now + ahead;
    const to = e.p90 ? Date.parse(e.p90) : now + ahead;
    const bars = from < now + ahead ? [span(e.p90 ? "window" : "window open", from, to, y, now)] : [s("text", { class: "later", x: "99.5%", y: y + 24 }, "later →")];
    if (e.p50 && Date.parse(e.p50) < now + ahead) bars.push(s("line", { class: "median", x1: percent(at(Date.parse(e.p50), now)), x2: percent(at(Date.parse(e.p50), now)), y1: y + 12, y2: y + 28 }));
    return lane(w, y, window(e), bars);
  }

  function drawn(t, now) {
    const known = t.waiting.filter((w) => w.start && !w.start.unknown && w.start.until);
    const height = top + row * (t.runs.length + known.length) + 6;
    if (t.runs.length + known.length === 0) return h("p", { class: "quiet" }, "Nothing ran in the last hour, and no start is known.");
    let y = top - row;
    const next = () => (y += row);
    return s("svg", { class: "timeline", width: "100%", height, role: "group", "aria-label": `From ${of(now - past)} to ${of(now + ahead)}: ${t.runs.length} runs, and ${known.length} expected starts` },
      axis(now, height), t.runs.map((r) => ran(r, next(), now)), known.map((w) => waits(w, next(), now)),
      s("line", { class: "now", x1: percent(at(now, now)), x2: percent(at(now, now)), y1: top - 4, y2: height }));
  }

  const legend = () => h("p", { class: "small legend" }, [["running", "runs"], ["expected", "expected to"], ["finished", "finished"], ["failed", "failed"], ["evicted", "evicted or deleted"], ["window", "starts in this window, 8 of 10 times"]]
    .map(([kind, text]) => h("span", { class: "place" }, h("span", { class: "key " + kind }), " ", text)));

  // hidden says what a timeline leaves out.
  function hidden(t) {
    const out = [
      t.moreRuns > 0 ? `${t.moreRuns} more runs are not shown` : "", t.otherRuns > 0 ? `${t.otherRuns} runs are in namespaces that you may not see` : "",
      t.moreWaiting > 0 ? `${t.moreWaiting} more wait` : "", t.otherWaiting > 0 ? `${t.otherWaiting} that wait are in namespaces that you may not see` : "",
      Date.parse(t.since) > Date.now() - past + 5 * minute ? `runs that ended before ${of(t.since)} are not all known` : "",
    ].filter(Boolean);
    return out.length > 0 ? h("p", { class: "quiet small" }, out.join("; "), ".") : "";
  }

  function asTable(t) {
    return h("details", {}, h("summary", { tabindex: "0" }, "The same as a table"), table(["Workload", "From", "To", "What"], [
      ...t.runs.map((r) => [workloadName(r.namespace, r.name), of(r.start), r.end ? of(r.end) : "", runs(r)]),
      ...t.waiting.map((w) => [workloadName(w.namespace, w.name), w.start?.p10 ? of(w.start.p10) : "", w.start?.p90 ? of(w.start.p90) : "", `no. ${w.position + 1} in line, ${window(w.start)}`]),
    ], "There is nothing."));
  }

  function unknown(t) {
    const rest = t.waiting.filter((w) => !w.start || w.start.unknown || !w.start.until);
    if (rest.length === 0) return "";
    return [h("h3", {}, "Starts that are unknown"), table(["Workload", "Place", "Why its start is unknown"], rest.map((w) => [
      workloadName(w.namespace, w.name), number(w.position + 1), w.start?.unknown ?? w.reason ?? "there are no forecasts",
    ]), "")];
  }

  // timeline is the last hour of a cluster queue and its next two, which goes on as time does.
  function timeline(queue) {
    const body = h("div", {});
    let last;
    const draw = () => {
      if (!last || last.error) return redraw(body, last?.error ? h("p", { class: "quiet" }, last.error) : "");
      const open = body.querySelector("details")?.open;
      redraw(body, drawn(last, Date.now()), legend(), hidden(last), asTable(last), unknown(last));
      if (open) body.querySelector("details").open = true;
    };
    view(escaped("ws", "cluster-queue", queue, "timeline"), (t) => { last = t; draw(); });
    every(30e3, draw);
    return [h("h2", {}, "The last hour, and the next two"), body];
  }

  // spark is the use of one resource over time.
  function spark(use, times) {
    const known = use.used.filter((u) => u >= 0);
    const most = Math.max(...use.used, ...use.quota, 1e-9);
    const label = (use.flavor ? use.flavor + " · " : "") + use.resource;
    const said = known.length === 0 ? `${label}: unknown` : `${label} since ${of(times[0])}: ${short(use.resource, known[known.length - 1])} of ${short(use.resource, use.quota[use.quota.length - 1])} now, ` +
      `between ${short(use.resource, Math.min(...known))} and ${short(use.resource, Math.max(...known))}`;
    const first = Date.parse(times[0]);
    const length = Math.max(1, Date.parse(times[times.length - 1]) - first);
    const x = (i) => ((100 * (Date.parse(times[i]) - first)) / length).toFixed(2);
    const y = (v) => (30 - (28 * v) / most).toFixed(2);
    const points = use.used.map((u, i) => [i, u]).filter(([, u]) => u >= 0);
    const line = points.map(([i, u]) => `${x(i)},${y(u)}`).join(" ");
    return h("figure", { class: "spark" }, h("figcaption", { class: "small" }, said),
      s("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": said },
        points.length > 1 ? [s("polygon", { class: "area", points: `${x(points[0][0])},30 ${line} ${x(points[points.length - 1][0])},30` }), s("polyline", { class: "use", points: line })] : "",
        s("polyline", { class: "quota", points: use.quota.map((q, i) => `${x(i)},${y(q)}`).join(" ") })));
  }

  // usage is an element with the use of quotas over time, from a view.
  function usage(path) {
    const body = h("div", { class: "usages" });
    view(path, (u) => redraw(body, u.error ? "" : [
      u.at.length < 2 ? h("p", { class: "quiet small" }, "Its course is drawn after two minutes: a sample is taken every minute.") : u.series.map((use) => spark(use, u.at)),
      u.left > 0 ? h("p", { class: "quiet small" }, `${u.left} flavors and resources are not sampled: there are too many.`) : "",
    ]));
    return body;
  }

  return { timeline, usage };
}
