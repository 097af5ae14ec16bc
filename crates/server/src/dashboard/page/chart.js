// Charts: uPlot with the page's colours, one time axis and one cursor for all of them, keys, and the same
// figures as a table.

import { UNKNOWN, clock } from "./format.js";

const { uPlot } = globalThis;
/** One cursor for all charts. */
const SYNC = uPlot.sync("hemi");
/** Rows of the table behind a chart. */
const ROWS = 60;
/** Seconds for which the newest values count as those of now. */
const NOW_SECONDS = 5;
const AXIS_FONT = "11px system-ui, sans-serif";

/** Returns a colour of the style sheet. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Returns a leg's colour, which depends on its slot only. */
export const legColour = (slot) => colour(`leg-${slot % 8}`);

/** Returns the same for the style of an element, which follows the style sheet. */
export const legTint = (slot) => `var(--leg-${slot % 8})`;

/** Returns a colour with another opacity. */
export function faint(hex, alpha) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${alpha})`;
}

/** Returns a canvas pattern of diagonal lines. */
export function hatch(context, stroke, gap) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = gap;
  const pen = tile.getContext("2d");
  pen.strokeStyle = stroke;
  pen.lineWidth = Math.max(1, gap / 6);
  pen.beginPath();
  for (const shift of [-gap, 0, gap]) {
    pen.moveTo(shift, gap);
    pen.lineTo(shift + gap, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

/** Returns an axis: `show` turns a value into text. */
export function axis(scale, show, more = {}) {
  return {
    scale, stroke: () => colour("ink-2"), font: AXIS_FONT, size: 62, gap: 6,
    grid: { stroke: () => colour("line"), width: 1 }, ticks: { show: false },
    values: (_, splits) => splits.map((value) => (value === null ? "" : show(value))), ...more,
  };
}

const isAtEdge = (plot, at) => {
  const { min, max } = plot.scales.x;
  return (max - at) * plot.bbox.width < 18 * devicePixelRatio * (max - min);
};

/** Returns the time axis. */
export const timeAxis = (isShown) => ({
  stroke: () => colour("ink-2"), font: AXIS_FONT, size: isShown ? 26 : 6, space: 76,
  grid: { stroke: () => colour("line"), width: 1 }, ticks: { show: false },
  // A label at the edge would be cut.
  values: isShown ? (plot, splits, _, __, step) => splits.map((at) => (isAtEdge(plot, at) ? "" : tick(at, step))) : () => [],
});

const decimal = [...Array(19).keys()].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power));
/** Steps of an axis, round in the unit of its marks: of counts, of bytes in units of 1024, and of times. */
export const steps = {
  count: decimal,
  bytes: [...Array(61).keys()].map((power) => 2 ** power),
  time: [...decimal.filter((step) => step <= 1e10), ...[15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400].map((seconds) => seconds * 1e9)],
};

/** Returns a time of day for an axis whose marks are so many seconds apart. */
export function tick(at, step) {
  const date = new Date(at * 1000);
  if (step >= 86400) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const options = { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }) };
  return date.toLocaleTimeString("en-GB", options);
}

/** Decades that a logarithmic axis names. */
export const decades = (_, __, low, high) => {
  const splits = [];
  for (let value = 10 ** Math.floor(Math.log10(low)); value <= high * 1.001; value *= 10) {
    if (value >= low * 0.999) splits.push(value);
  }
  return splits;
};

/** Returns whole decades around all values of some columns. */
export function decadesAround(columns, low = 1e5, high = 1e6) {
  for (const column of columns) {
    for (const value of column ?? []) {
      if (value > 0) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
  }
  return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high))];
}

/** Zero has no place on a logarithmic axis. */
export const positive = (column) => (column ?? []).map((value) => (value > 0 ? value : null));

/** A figure with a chart, a line that says what is under the cursor, and a table. */
export class Chart {
  /**
   * `columns`: what to say of each series, as `{label, show}`, the time left out. `options(chart)`: uPlot's,
   * made anew when colours change.
   */
  constructor(title, columns, options, height = 150) {
    this.columns = columns;
    this.options = options;
    this.height = height;
    this.data = [[], ...columns.map(() => [])];
    this.range = [0, 1];
    this.figure = document.createElement("figure");
    this.figure.className = "chart";
    this.figure.tabIndex = 0;
    this.figure.setAttribute("role", "group");
    this.figure.setAttribute("aria-label", `${title}, a chart. Left and right read its values.`);
    this.place = document.createElement("div");
    this.readout = document.createElement("p");
    this.readout.className = "readout";
    this.table = new Table(title, columns);
    this.figure.append(this.place, this.readout, this.table.details);
    this.figure.addEventListener("keydown", (event) => this.#key(event));
    this.figure.addEventListener("blur", () => this.readout.removeAttribute("aria-live"));
    new ResizeObserver(() => this.#resize()).observe(this.place);
  }

  #make() {
    this.plot?.destroy();
    this.place.replaceChildren();
    const options = this.options(this);
    this.plot = new uPlot({
      width: this.place.clientWidth || 300, height: this.height, legend: { show: false },
      padding: [6, 4, 0, 0], ...options,
      scales: { x: { time: true, range: () => this.range }, ...options.scales },
      cursor: { sync: { key: SYNC.key, scales: ["x", null] }, y: false, points: { size: 6 }, drag: { x: false, y: false } },
      hooks: { ...options.hooks, setCursor: [(plot) => this.#say(plot.cursor.idx)] },
    }, this.data, this.place);
    this.plot.root.setAttribute("aria-hidden", "true");
  }

  #resize() {
    const width = this.place.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  /** Shows these columns: time in seconds, then the series. `range`: the first and last time of the axis. */
  show(data, range) {
    this.data = data;
    this.range = range;
    if (this.plot) this.plot.setData(data);
    else if (this.place.clientWidth > 0) this.#make();
    this.table.show(data);
    if (this.plot?.cursor.idx === null || this.plot?.cursor.idx === undefined) this.#say(null);
  }

  /** Takes the style sheet's colours again. */
  recolour() {
    if (this.plot) this.#make();
  }

  /** Returns the index of the newest values. The very last time may be one that nobody has told of yet. */
  #newest() {
    const [times, ...columns] = this.data;
    const last = times.length - 1;
    const isKnown = (at) => columns.some((column) => column[at] !== null && column[at] !== undefined);
    for (let at = last; at >= 0 && times[last] - times[at] <= NOW_SECONDS; at -= 1) if (isKnown(at)) return at;
    return last;
  }

  /** Says the values at one time; without one the newest. */
  #say(index) {
    const at = index ?? this.#newest();
    const parts = this.columns
      .map(({ label, show }, series) => {
        const value = this.data[series + 1][at];
        return value === null || value === undefined ? null : `${label} ${show(value)}`;
      })
      .filter(Boolean);
    const when = this.data[0][at] === undefined ? "" : index === null || index === undefined ? "now" : clock(this.data[0][at] * 1000);
    const text = parts.length ? `${when}: ${parts.join(", ")}` : when ? `${when}: ${UNKNOWN}` : UNKNOWN;
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  #key(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined || event.target !== this.figure || !this.plot) return;
    event.preventDefault();
    this.readout.setAttribute("aria-live", "polite");
    const last = this.data[0].length - 1;
    const from = this.plot.cursor.idx ?? last;
    const index = Math.min(last, Math.max(0, from + move));
    this.plot.setCursor({ left: this.plot.valToPos(this.data[0][index], "x"), top: 10 });
  }
}

/** The figures of a chart as a table, made when it is opened. */
class Table {
  constructor(title, columns) {
    this.title = title;
    this.columns = columns;
    this.details = document.createElement("details");
    this.details.className = "figures";
    const summary = document.createElement("summary");
    summary.textContent = "As a table";
    this.details.append(summary);
    this.details.addEventListener("toggle", () => this.#fill());
  }

  show(data) {
    this.data = data;
  }

  #fill() {
    this.details.querySelector("div")?.remove();
    if (!this.details.open || !this.data) return;
    const table = document.createElement("table");
    table.createCaption().textContent = this.title;
    const head = table.createTHead().insertRow();
    for (const label of ["time", ...this.columns.map((column) => column.label)]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = label;
      head.append(cell);
    }
    const body = table.createTBody();
    const length = this.data[0].length;
    const step = Math.max(1, Math.ceil(length / ROWS));
    for (let at = length - 1; at >= 0; at -= step) {
      const row = body.insertRow();
      row.insertCell().textContent = clock(this.data[0][at] * 1000);
      this.columns.forEach(({ show }, series) => {
        const value = this.data[series + 1][at];
        row.insertCell().textContent = value === null || value === undefined ? UNKNOWN : show(value);
      });
    }
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.append(table);
    this.details.append(scroll);
  }
}
