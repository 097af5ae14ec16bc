// The parts of the page that are text: the sentence, the figures at a glance, work, events, drives.

import { legTint } from "./chart.js";
import { UNKNOWN, bytes, clock, count, day, flow, permille, time, zone } from "./format.js";
import { SEVERITIES, nameOf, stateOf, summaryOf } from "./state.js";

const byId = (id) => document.getElementById(id);
/** The sentence is spoken when the state changes, and else not more often than this. */
const SPOKEN_EVERY_MS = 20_000;
/** Shapes of the sign: a circle with a tick, a triangle, a square. The shape says what the colour does. */
const SIGNS = {
  healthy: "M24 4a20 20 0 1 1 0 40a20 20 0 1 1 0-40zm-3.2 29.4L36 18.200l-3.100-3.100-12.100 12.100-5.600-5.600-3.100 3.100z",
  degraded: "M24 4L46 43H2zM22 18v13h4V18zm0 16v4h4v-4z",
  "not-serving": "M5 5h38v38H5zm10.500 7.700l-2.800 2.800 8.500 8.500-8.500 8.500 2.800 2.800 8.500-8.500 8.500 8.500 2.800-2.800-8.500-8.500 8.500-8.500-2.800-2.800-8.500 8.500z",
  unknown: "M24 4a20 20 0 1 1 0 40a20 20 0 1 1 0-40zm0 5a15 15 0 1 0 0 30a15 15 0 1 0 0-30z",
};
const STATES = { healthy: "Healthy", degraded: "Degraded", "not-serving": "Not serving", unknown: "Not known" };

function set(id, text) {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
}

/** Shows a large figure; what is not known is no figure, and smaller. */
function big(id, text) {
  set(id, text);
  byId(id).parentElement.classList.toggle("blank", text === UNKNOWN);
}

/** Shows those figures of a list that are known, each with its unit. */
function known(id, figures) {
  const parts = figures.filter(([figure]) => figure !== UNKNOWN).map(([figure, unit]) => figure + unit);
  set(id, parts.join(", "));
}

/** Shows a share of a bound as a bar. */
function meter(id, share, isHigh) {
  const bar = document.getElementById(id);
  bar.style.width = `${Math.min(100, (share || 0) * 100)}%`;
  bar.dataset.level = share >= 0.9 || isHigh ? "high" : "";
}

/** Makes an element with properties and children. */
export function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

let spoken = { state: "", at: 0 };

/** Says in one sentence how the volume is, and what to do. */
export function verdict(status) {
  const { state, text, advice } = summaryOf(status);
  const known = state in SIGNS ? state : "unknown";
  byId("verdict").dataset.state = known;
  if (byId("sign").getAttribute("d") !== SIGNS[known]) byId("sign").setAttribute("d", SIGNS[known]);
  set("sentence", text);
  byId("advice").hidden = !advice;
  set("advice", advice ?? "");
  // The worst condition is the sentence above, and is not said twice.
  const others = (status.risks ?? []).filter((risk) => risk.text !== text);
  const risks = others.map((risk) => `${risk.promise}: ${risk.text}`);
  if (byId("risks").dataset.said !== risks.join()) {
    byId("risks").dataset.said = risks.join();
    byId("risks").replaceChildren(...risks.map((risk) => make("li", { textContent: risk })));
    byId("risks").hidden = risks.length === 0;
  }
  document.title = `${known === "healthy" ? "" : `${STATES[known]}: `}${status.name || "hemi"}`;
  const now = Date.now();
  if (known !== spoken.state || now - spoken.at > SPOKEN_EVERY_MS) {
    spoken = { state: known, at: now };
    set("spoken", `${STATES[known]}. ${text} ${advice ?? ""}`);
  }
}

/** Says that nothing is known any more. */
export function lost() {
  byId("verdict").dataset.state = "unknown";
  byId("sign").setAttribute("d", SIGNS.unknown);
  set("sentence", "hemi does not answer.");
  byId("advice").hidden = false;
  set("advice", "The figures below are the last ones. This page goes on by itself as soon as hemi answers.");
  document.title = "Not known: hemi";
  if (spoken.state !== "lost") set("spoken", "hemi does not answer.");
  spoken = { state: "lost", at: Date.now() };
}

/** Shows the figures at a glance. `recent` gives the rates, and `past` those that a status does not tell. */
export function glance(status, recent, past) {
  set("name", status.name || "(unnamed)");
  set("about", [status.size_bytes && bytes(status.size_bytes), `${(status.legs ?? []).length} legs`, status.policy && `policy ${status.policy}`].filter(Boolean).join(", "));
  const hidden = status.hidden ?? {};
  big("hidden-week", time(hidden.week_ns));
  known("hidden-more", [[time(hidden.day_ns), " in 24 hours"], [time(hidden.total_ns), " in all"]]);
  const exposure = status.exposure ?? {};
  // Exposure counts what legs owe exactly. Regions that a leg owes, and a volume on one leg, come on top.
  const alone = status.one_copy_bytes ?? exposure.bytes;
  const everything = alone > 0 && alone >= status.size_bytes;
  const owed = status.one_copy_region_bytes ?? 0;
  const inRegions = `${owed === alone ? "" : `${bytes(owed)} of it `}in regions that a leg owes`;
  const bound = exposure.bound_bytes ? `of ${bytes(exposure.bound_bytes)}` : "";
  big("exposed", everything ? "everything" : bytes(alone));
  set("exposed-bound", everything ? "" : owed > 0 ? inRegions : bound);
  known("exposed-more", [[time(exposure.age_ns), " old at most"], [time(exposure.bound_age_ns), " allowed"], [bytes(exposure.peak_bytes), " at the peak"]]);
  meter("exposed-bar", exposure.bytes / exposure.bound_bytes, exposure.throttling);
  meter("exposed-age-bar", exposure.age_ns / exposure.bound_age_ns, exposure.throttling);
  const newest = (column) => column.findLast((value) => value !== null);
  // Between two statuses a rate is exact. Of the first one the newest seconds are known as a whole.
  const ofLast = (kind) => (status.recent_ns > 0 && status.clients?.[kind]?.recent ? [(status.clients[kind].recent.count * 1e9) / status.recent_ns] : []);
  const ofKind = (kind) => (newest(recent.clients[kind]) === undefined ? ofLast(kind) : recent.clients[kind]);
  const [reads, writes] = ["reads", "writes"].map(ofKind);
  const { read_bytes: read, written_bytes: written } = past.clients;
  const both = (one, other) => (newest(one) === undefined && newest(other) === undefined ? undefined : (newest(one) ?? 0) + (newest(other) ?? 0));
  big("iops", count(both(reads, writes)));
  known("rates", [[count(newest(reads)), " reads/s"], [count(newest(writes)), " writes/s"], [flow(both(read, written)), ""]]);
  const clients = status.clients ?? {};
  known("queue", [[count(clients.requests), " in flight"], [count(clients.connections?.open), " connected"], [count(clients.failed), " failed"]]);
  big("cpu", permille(status.process?.cpu_permille));
  known("memory", [[bytes(status.process?.resident_bytes), " of memory"], [bytes(status.buffers?.used_bytes), ` of ${bytes(status.buffers?.budget_bytes)} for payload`]]);
  set("serving", `served for ${time(status.uptime_ns)}, hemi ${status.version ?? "of a version that is not known"}`);
  set("foot", `Volume ${status.id ?? UNKNOWN}. Ledger: ${status.ledger?.path ?? status.ledger?.why_none ?? UNKNOWN}. ${status.device ? `Device ${status.device}.` : ""}`);
}

/** Work that runs: scrub, fills and drains, each with a share and the time left. */
export function work(status) {
  const rows = [];
  const scrub = status.scrub ?? {};
  if (scrub.running) {
    const done = scrub.permille ?? (scrub.compared_bytes * 1000) / scrub.total_bytes;
    const detail = [`${bytes(scrub.compared_bytes)} of ${bytes(scrub.total_bytes)} compared`, `${bytes(scrub.mismatched_bytes)} differ`, scrub.bytes_per_s && flow(scrub.bytes_per_s)];
    rows.push({ key: "scrub", title: "Scrub", done, left: scrub.remaining_ns, detail: detail.filter(Boolean).join(", ") });
  }
  for (const leg of status.legs ?? []) {
    if (!(leg.owed_bytes > 0)) continue;
    if (leg.state === "gone" || (leg.state === "out" && leg.out_reason !== "joining")) {
      const where = leg.state === "gone" ? "its device or server cannot be reached" : "it is out";
      rows.push({ key: `leg-${leg.leg}`, title: `Nothing goes to ${nameOf(leg)}`, done: null, share: where, detail: `${bytes(leg.owed_bytes)} are owed` });
      continue;
    }
    const fills = leg.out_reason === "joining" || leg.owed_region_bytes > 0;
    const done = leg.progress_permille ?? (fills && status.size_bytes ? 1000 - (leg.owed_bytes * 1000) / status.size_bytes : null);
    const detail = [`${bytes(leg.owed_bytes)} to go`, leg.drain_bytes_per_s && flow(leg.drain_bytes_per_s)];
    rows.push({ key: `leg-${leg.leg}`, title: `${fills ? "Rebuild" : "Drain"} of ${nameOf(leg)}`, done, left: leg.remaining_ns, detail: detail.filter(Boolean).join(", ") });
  }
  const place = byId("work");
  const keys = rows.map((row) => row.key).join();
  if (place.dataset.keys !== keys || rows.length === 0) {
    place.dataset.keys = keys;
    if (rows.length === 0) {
      const isKnown = status.scrub && (status.legs ?? []).every((leg) => leg.owed_bytes === 0);
      const idle = isKnown ? `Nothing is owed, and no scrub runs. ${lastScrub(scrub.last)}` : "Not known: this server does not tell what is owed.";
      if (place.textContent !== idle) place.replaceChildren(make("p", { className: "empty", textContent: idle }));
      return;
    }
    place.replaceChildren(...rows.map(({ key }) => make("div", { className: "job", id: `job-${key}` },
      make("h3"), make("p", { className: "share" }), make("progress", { max: 1000 }), make("p", { className: "fine" }))));
  }
  for (const { key, title, done, left, detail, share: said } of rows) {
    const [head, share, bar, fine] = byId(`job-${key}`).children;
    const isKnown = Number.isFinite(done);
    head.textContent = title;
    share.textContent = said ?? `${isKnown ? permille(done) : ""}${Number.isFinite(left) ? `, ${time(left)} left` : ", time left not known"}`.replace(/^, /, "");
    bar.hidden = !isKnown;
    if (isKnown) bar.value = done;
    bar.setAttribute("aria-label", title);
    fine.textContent = detail;
  }
}

function lastScrub(last) {
  if (!last) return "";
  const finds = [last.mismatched_bytes > 0 && `${bytes(last.mismatched_bytes)} that differed`, last.unreadable_bytes > 0 && `${bytes(last.unreadable_bytes)} that a leg could not read`].filter(Boolean);
  const how = last.stopped ? "was stopped" : `found ${finds.join(" and ") || "no difference"}`;
  return `The last scrub ended ${clock(last.at_ms)} ${zone()}, took ${time(last.took_ns)} and ${how}.`;
}

const MARKS = { info: "·", notice: "○", warning: "△", critical: "■" };

/** Shows events of a severity or worse, newest first. `list` is `null` if the server keeps none. */
export function events(list, least) {
  if (!list) {
    byId("events").replaceChildren(make("tr", {}, make("td", { className: "empty", textContent: "Not known: this server keeps no log of events." })));
    return;
  }
  const shown = list.filter((event) => SEVERITIES.indexOf(event.severity) >= least);
  const place = byId("events");
  if (shown.length === 0) {
    place.replaceChildren(make("tr", {}, make("td", { className: "empty", textContent: "Nothing of this kind has happened." })));
    return;
  }
  place.replaceChildren(...shown.map((event) => {
    const leg = make("td");
    if (Number.isInteger(event.leg)) {
      const swatch = make("i", { className: "swatch" });
      swatch.style.background = legTint(event.leg);
      leg.append(swatch, nameOf(event));
    }
    const mark = make("td", { className: "mark-cell" }, make("span", { ariaHidden: "true", textContent: MARKS[event.severity] ?? "·" }), make("span", { className: "unseen", textContent: event.severity }));
    const row = make("tr", {}, make("td", { className: "when", textContent: clock(event.at) }), mark, leg, make("td", { textContent: event.text }));
    row.dataset.severity = event.severity;
    return row;
  }));
}

/** Drives whose model is not known. */
const KINDS = { hdd: "a hard disk", ssd: "an SSD", nvme: "an NVMe drive", network: "a network volume", virtual: "a virtual disk" };

let drivesSaid = "";

/** Shows the drives that wait to take the place of a leg. */
export function standbys(standbys) {
  const say = ({ name, why_not: why }) => make("li", { textContent: `Standby ${name}: ${why ? `cannot be used, ${why}` : "ready to take the place of a leg"}` });
  byId("standbys").replaceChildren(...standbys.map(say));
}

/** Shows what the legs lie on. */
export function drives(legs) {
  const said = JSON.stringify(legs.map((leg) => [leg.leg, leg.path, leg.drive, leg.verdict]));
  if (said === drivesSaid) return;
  drivesSaid = said;
  const table = byId("drives");
  const head = ["Leg", "Drive", "Serial, firmware", "Temperature", "Endurance used", "Written", "Powered on", "Media errors", "Verdict"];
  const rows = legs.map((leg) => {
    const drive = leg.drive ?? {};
    const known = (value, show) => (value === null || value === undefined ? UNKNOWN : show(value));
    const swatch = make("i", { className: "swatch" });
    swatch.style.background = legTint(leg.leg);
    const kind = drive.rotational === true ? ", turns" : drive.rotational === false ? ", flash" : "";
    const end = Number.isFinite(drive.rated_end_at_ms) ? `, rated to ${day(drive.rated_end_at_ms)}` : "";
    const cells = [
      drive.model ? `${drive.model}${kind}` : KINDS[drive.kind] ?? UNKNOWN,
      drive.serial ? [drive.serial, drive.firmware].filter(Boolean).join(", ") : UNKNOWN,
      known(drive.temperature_celsius, (value) => `${value} °C`), known(drive.used_permille, (value) => permille(value) + end),
      known(drive.written_bytes, bytes), known(drive.power_on_hours, (hours) => time(hours * 3.6e12)),
      known(drive.media_errors, count), [leg.verdict?.text, drive.why_unknown].filter(Boolean).join("; ") || (leg.verdict === undefined ? UNKNOWN : "nothing unusual"),
    ];
    const first = make("th", { scope: "row" }, swatch, nameOf(leg), make("small", { textContent: leg.path !== leg.name ? leg.path ?? "" : "" }));
    return make("tr", {}, first, ...cells.map((text) => make("td", { textContent: text, className: text === UNKNOWN ? "unknown" : "" })));
  });
  table.replaceChildren(make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col", textContent: text })))), make("tbody", {}, ...rows));
}
