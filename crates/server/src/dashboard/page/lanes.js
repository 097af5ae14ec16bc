// The lanes: a leg's latency, freezes and debt over time, with the clients' latency on the same axis; and the
// charts of the clients below them.

import { Chart, axis, colour, decades, decadesAround, faint, hatch, legColour, legTint, positive, steps, timeAxis } from "./chart.js";
import { UNKNOWN, bytes, count, flow, mark, permille, time } from "./format.js";
import { nameOf, stateOf } from "./state.js";

const LANE_HEIGHT = 132;
/** The top part of a lane where a freeze is a solid bar, in pixels. */
const BAR = 5;
/** Opacity of a freeze's shade over the whole lane, at most. */
const SHADE = 0.28;

const element = (name, className, text = "") => {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
};

/** All legs' lanes. */
export class Lanes {
  constructor(place) {
    this.place = place;
    this.lanes = new Map();
    this.range = [1e4, 1e8];
    this.most = 0;
  }

  /** Makes the lanes fit the legs that there are. */
  legs(legs) {
    const slots = legs.map((leg) => leg.leg).join();
    if (slots !== this.slots) {
      this.slots = slots;
      for (const [slot, lane] of this.lanes) if (!legs.some((leg) => leg.leg === slot)) this.#remove(slot, lane);
      for (const leg of legs) if (!this.lanes.has(leg.leg)) this.lanes.set(leg.leg, new Lane(leg, this));
      this.place.replaceChildren(...legs.map((leg) => this.lanes.get(leg.leg).article));
      if (legs.length === 0) this.place.replaceChildren(element("p", "empty", "No legs are known yet."));
    }
    for (const leg of legs) this.lanes.get(leg.leg).tell(leg);
  }

  #remove(slot, lane) {
    lane.article.remove();
    this.lanes.delete(slot);
  }

  /** Draws the past. All lanes have the same axes, so that legs can be compared. */
  show(past) {
    const shown = [...past.legs.values()];
    this.range = decadesAround([past.clients.p999_ns, ...shown.flatMap((leg) => [leg.p50_ns, leg.p99_ns])]);
    this.most = Math.max(1, ...shown.flatMap((leg) => leg.owed_bytes.map((owed) => owed ?? 0)));
    for (const [slot, lane] of this.lanes) lane.show(past, past.legs.get(slot));
  }

  recolour() {
    for (const lane of this.lanes.values()) lane.recolour();
  }
}

class Lane {
  constructor(leg, lanes) {
    this.slot = leg.leg;
    this.article = element("article", "lane");
    this.head = element("div", "lane-head");
    this.title = element("h3", "");
    this.swatch = element("i", "swatch");
    this.name = element("span", "");
    this.title.append(this.swatch, this.name);
    this.state = element("p", "state");
    this.since = element("p", "fine");
    this.owed = element("p", "fine");
    this.now = element("p", "fine");
    this.verdict = element("p", "fine warn");
    this.head.append(this.title, this.state, this.since, this.owed, this.now, this.verdict);
    this.chart = new Chart(`Leg ${nameOf(leg)}`, [
      { label: "99 %", show: time }, { label: "median", show: time }, { label: "clients 99.9 %", show: time },
      { label: "owed", show: bytes }, { label: "frozen", show: permille }, { label: "out", show: permille },
    ], () => this.#options(lanes), LANE_HEIGHT);
    this.article.append(this.head, this.chart.figure);
  }

  #options(lanes) {
    const own = legColour(this.slot);
    const quiet = { scale: "share", show: false };
    return {
      scales: {
        ns: { distr: 3, range: () => lanes.range },
        // Debt stays in the lower part, out of the latencies' way.
        debt: { range: () => [0, lanes.most * 1.6] }, share: { range: [0, 1000] },
      },
      axes: [
        timeAxis(true), axis("ns", mark, { splits: decades }),
        axis("debt", bytes, { side: 1, grid: { show: false }, size: 66, stroke: () => colour("debt-ink"), incrs: steps.bytes, space: 30, filter: (_, splits) => splits.map((owed) => (lanes.most > 1 && owed <= lanes.most ? owed : null)) }),
      ],
      series: [
        {},
        { scale: "ns", stroke: own, width: 1, points: { show: false }, spanGaps: false },
        { scale: "ns", stroke: own, width: 2, points: { show: false }, spanGaps: false },
        { scale: "ns", stroke: colour("ink"), width: 1.5, dash: [5, 3], points: { show: false }, spanGaps: false },
        { scale: "debt", stroke: colour("debt"), width: 1, fill: faint(colour("debt"), 0.3), points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) },
        quiet, quiet,
      ],
      bands: [{ series: [1, 2], fill: faint(own, 0.22) }],
      hooks: { drawClear: [(plot) => this.#bars(plot)] },
    };
  }

  /** Draws freezes and outages behind the lines. */
  #bars(plot) {
    const { ctx: pen } = plot;
    const { left, top, width, height } = plot.bbox;
    const [times, , , , , frozen, out] = plot.data;
    const x = (at) => Math.min(left + width, Math.max(left, plot.valToPos(at, "x", true)));
    pen.save();
    const lines = hatch(pen, faint(colour("ink"), 0.28), Math.round(7 * devicePixelRatio));
    for (let at = 0; at < times.length; at += 1) {
      const from = x(at === 0 ? times[0] : times[at - 1]);
      const wide = Math.max(2, x(times[at]) - from);
      if (out[at] > 0) {
        pen.fillStyle = lines;
        pen.fillRect(from, top, wide, height);
      }
      if (frozen[at] > 0) {
        pen.fillStyle = faint(colour("freeze"), 0.08 + SHADE * Math.min(1, frozen[at] / 1000));
        pen.fillRect(from, top, wide, height);
        pen.fillStyle = colour("freeze");
        pen.fillRect(from, top, wide, BAR * devicePixelRatio);
      }
    }
    pen.restore();
  }

  tell(leg) {
    const set = (place, text) => {
      if (place.textContent !== text) place.textContent = text;
      place.hidden = text === "";
    };
    this.swatch.style.background = legTint(leg.leg);
    set(this.name, nameOf(leg));
    set(this.state, stateOf(leg));
    const isSilent = leg.stalled && ["healthy", "lagging"].includes(leg.state);
    this.state.dataset.state = leg.out_reason === "joining" ? "lagging" : isSilent ? "frozen" : leg.state ?? "unknown";
    set(this.since, leg.state === "healthy" ? "" : Number.isFinite(leg.state_age_ns) ? `for ${time(leg.state_age_ns)}` : "");
    const left = Number.isFinite(leg.remaining_ns) ? `, ${time(leg.remaining_ns)} left` : "";
    set(this.owed, leg.owed_bytes === 0 ? "owes nothing" : leg.owed_bytes > 0 ? `owes ${bytes(leg.owed_bytes)}${left}` : `debt ${UNKNOWN}`);
    const answers = [["reads", leg.reads], ["writes", leg.writes]]
      .filter(([, kind]) => kind?.recent?.count > 0)
      .map(([name, kind]) => `${name} ${time(kind.recent.p50_ns)} / ${time(kind.recent.p99_ns)}`);
    if (Number.isFinite(leg.in_flight)) answers.push(`${count(leg.in_flight)} in flight`);
    set(this.now, answers.join(", "));
    set(this.verdict, leg.verdict?.text ?? leg.no_session ?? "");
  }

  show(past, leg) {
    const times = past.times.map((at) => at / 1000);
    const none = times.map(() => null);
    this.chart.show([
      times, positive(leg?.p99_ns ?? none), positive(leg?.p50_ns ?? none), positive(past.clients.p999_ns),
      leg?.owed_bytes ?? none, leg?.frozen_permille ?? none, leg?.out_permille ?? none,
    ], past.range());
  }

  recolour() {
    this.chart.recolour();
  }
}

const LINE = { width: 1.5, points: { show: false } };

/** Returns the charts of what clients get, each with the columns that it draws. */
export function clientCharts() {
  // Few enough marks for each to be exact in three digits.
  const linear = (show, incrs, least = 1) => ({ scales: { y: { range: (_, __, high) => [0, Math.max(least, high * 1.1)] } }, axes: [timeAxis(true), axis("y", show, { incrs, space: 30 })] });
  const pair = () => [{}, { ...LINE, stroke: colour("series-a"), fill: faint(colour("series-a"), 0.1) }, { ...LINE, stroke: colour("series-b"), dash: [6, 3] }];
  const range = { low: 1e4, high: 1e8 };
  return [
    {
      chart: new Chart("Latency of clients", [{ label: "median", show: time }, { label: "99 %", show: time }, { label: "99.9 %", show: time }, { label: "longest", show: time }], () => ({
        scales: { ns: { distr: 3, range: () => [range.low, range.high] } },
        axes: [timeAxis(true), axis("ns", mark, { splits: decades })],
        series: [{}, { ...LINE, scale: "ns", stroke: colour("series-a"), width: 2 }, { ...LINE, scale: "ns", stroke: colour("series-b") }, { ...LINE, scale: "ns", stroke: colour("ink"), dash: [5, 3] }, { scale: "ns", stroke: colour("ink-2"), width: 0, points: { show: true, size: 2.5 } }],
      })),
      columns: ({ clients }) => {
        const shown = [clients.p50_ns, clients.p99_ns, clients.p999_ns, clients.max_ns].map(positive);
        [range.low, range.high] = decadesAround(shown);
        return shown;
      },
    },
    {
      chart: new Chart("Requests a second", [{ label: "reads/s", show: count }, { label: "writes/s", show: count }], () => ({ ...linear(count, steps.count), series: pair() })),
      columns: ({ clients }) => [clients.reads, clients.writes],
    },
    {
      chart: new Chart("Throughput", [{ label: "read", show: flow }, { label: "written", show: flow }], () => ({ ...linear(flow, steps.bytes, 1 << 20), series: pair() })),
      columns: ({ clients }) => [clients.read_bytes, clients.written_bytes],
    },
    {
      chart: new Chart("Requests in flight", [{ label: "in flight", show: count }, { label: "time writers are held back", show: permille }], () => ({
        ...linear(count, steps.count),
        scales: { y: { range: (_, __, high) => [0, Math.max(1, high * 1.1)] }, share: { range: [0, 1000] } },
        series: [{}, { ...LINE, stroke: colour("series-a"), fill: faint(colour("series-a"), 0.1) }, { ...LINE, scale: "share", stroke: colour("freeze"), fill: faint(colour("freeze"), 0.2) }],
      })),
      columns: ({ clients, exposure }) => [clients.in_flight, exposure.throttled_permille],
    },
    {
      chart: new Chart("On one leg only", [{ label: "exposed", show: bytes }], () => ({ ...linear(bytes, steps.bytes, 1 << 20), series: pair().slice(0, 2) })),
      columns: ({ exposure }) => [exposure.bytes],
    },
    {
      chart: new Chart("Age of what is on one leg only", [{ label: "oldest", show: time }], () => ({ ...linear(time, steps.time, 1e9), series: pair().slice(0, 2) })),
      columns: ({ exposure }) => [exposure.age_ns],
    },
  ];
}
