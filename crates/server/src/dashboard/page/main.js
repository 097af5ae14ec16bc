// The page: asks, follows, and has the parts show what is known.

import * as api from "./api.js";
import { Changes } from "./actions.js";
import { Lanes, clientCharts } from "./lanes.js";
import { Heat, Regions } from "./maps.js";
import { zone } from "./format.js";
import * as panels from "./panels.js";
import { Events, POINTS, Past } from "./state.js";

const byId = (id) => document.getElementById(id);
/** Shortest times between two readings of the history, and of the regions. */
const HISTORY_EVERY_MS = 10_000;
const REGIONS_EVERY_MS = 2000;
/** Pages of events that are read at the start, at most, and events of a page. */
const EVENT_PAGES_MAX = 50;
const EVENT_PAGE = 500;
const LINKS = { live: "live", poll: "live, every second", lost: "no answer", closed: "not open", wait: "connecting" };

for (const place of document.querySelectorAll(".zone")) place.textContent = zone();

const lanes = new Lanes(byId("lanes"));
const clients = clientCharts();
const heat = new Heat(byId("heat"));
const regions = new Regions(byId("regions"));
const events = new Events();
const changes = new Changes();
let past = new Past(900);
/** The last seconds: what "now" means. */
const recent = new Past(5);
let status = null;
let drawn = 0;
let readHistoryAt = 0;
let readRegionsAt = 0;

for (const { chart } of clients) {
  const title = document.createElement("h3");
  title.textContent = chart.figure.getAttribute("aria-label").split(",")[0];
  const place = document.createElement("div");
  place.append(title, chart.figure);
  byId("clients").append(place);
}

/** Returns true for who wants things to move less: charts are then drawn every five seconds. */
const isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function draw() {
  drawn = Date.now();
  const times = past.times.map((at) => at / 1000);
  lanes.show(past);
  for (const { chart, columns } of clients) chart.show([times, ...columns(past)], past.range());
}

function onStatus(fresh) {
  status = fresh;
  const at = fresh.at_ms ?? Date.now();
  const isNew = past.add(fresh, at);
  panels.verdict(fresh);
  recent.add(fresh, at);
  panels.glance(fresh, recent, past);
  panels.work(fresh);
  panels.drives(fresh.legs ?? []);
  panels.standbys(fresh.standbys ?? []);
  lanes.legs(fresh.legs ?? []);
  changes.show(fresh);
  if (document.hidden) return;
  if (isNew && Date.now() - drawn >= (isCalm() ? 5000 : 950)) draw();
  const now = Date.now();
  if (now - readHistoryAt > Math.max(HISTORY_EVERY_MS, past.stepMs * 2)) readHistory();
  if (now - readRegionsAt > REGIONS_EVERY_MS) readRegions();
}

/** Runs a reading that the page can do without. */
async function quietly(reading) {
  try {
    await reading();
  } catch (error) {
    // The stream tells when hemi is gone.
    console.debug(error);
  }
}

const readHistory = () => quietly(async () => {
  readHistoryAt = Date.now();
  const span = past.span;
  const history = await api.get(`v1/history?span=${span}&points=${POINTS}`);
  if (span !== past.span || (!history && !past.isKept)) return;
  const before = past;
  past = new Past(span, history);
  past.last = before.last;
  heat.show(past.heat);
  draw();
});

const readRegions = () => quietly(async () => {
  readRegionsAt = Date.now();
  const map = await api.get(`v1/regions?cells=${regions.room()}`);
  regions.show(map, status?.legs ?? []);
});

const showEvents = () => panels.events(events.isKept ? events.list : null, Number(byId("severity").value));

const readEvents = () => quietly(async () => {
  // Without an id, the server tells the newest.
  let after = events.list[0]?.id;
  for (let page = 0; page < EVENT_PAGES_MAX; page += 1) {
    const read = await api.get(`v1/events?limit=${EVENT_PAGE}${after === undefined ? "" : `&after=${after}`}`);
    events.isKept ||= read !== null;
    if (!read?.events?.length) break;
    for (const event of read.events) events.add(event);
    if (after === undefined || !(read.next > after)) break;
    after = read.next;
  }
  showEvents();
});

function onLink(link) {
  const place = byId("link");
  if (place.dataset.state === link) return;
  const isBack = ["lost", "closed"].includes(place.dataset.state);
  place.dataset.state = link;
  place.textContent = LINKS[link];
  if (link === "lost") panels.lost();
  if (isBack) {
    readEvents();
    readHistory();
  }
}

/** Says why the volume is not open. The figures are the last ones. */
function onClosed({ message, wayOut }) {
  onLink("closed");
  panels.verdict({ name: status?.name, summary: { state: "not-serving", text: message, advice: wayOut } });
}

/** Asks for the token, where figures need it. */
function gate(text = "") {
  byId("gate").hidden = false;
  byId("figures").hidden = true;
  byId("verdict").hidden = true;
  byId("gate-wrong").textContent = text;
  byId("gate-token").focus();
}

byId("gate-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  api.token.set(byId("gate-token").value.trim());
  begin("That is not the token.");
});

byId("spans").addEventListener("change", (event) => {
  past = new Past(Number(event.target.value));
  readHistory();
});
byId("layers").addEventListener("change", (event) => regions.choose(event.target.value));
byId("severity").addEventListener("change", showEvents);
document.addEventListener("visibilitychange", () => !document.hidden && status && readHistory());

function recolour() {
  lanes.recolour();
  for (const { chart } of clients) chart.recolour();
  heat.draw();
  regions.draw();
  showEvents();
  if (status) lanes.legs(status.legs ?? []);
}
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", recolour);

/** Begins to follow the volume. `wrong`: what to say if the token is refused. */
async function begin(wrong = "") {
  let access;
  for (;;) {
    try {
      access = await changes.ask();
      break;
    } catch {
      onLink("lost");
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
  if (access.read === "token" && !access.granted) return gate(wrong);
  byId("gate").hidden = true;
  byId("figures").hidden = false;
  byId("verdict").hidden = false;
  readEvents();
  readHistory();
  return api.follow({
    status: onStatus,
    event: (event) => events.add(event) && showEvents(),
    link: onLink,
    closed: onClosed,
    denied: (error) => (error.status === 401 ? gate("The token is refused. It may have been changed.") : gate(error.message)),
  });
}

await quietly(api.takeFromAddress);
begin();
