// Two maps drawn by hand on a canvas: latencies over time as heat, and the volume's regions.

import { colour, decades, faint, legColour, legTint, steps as roundSteps, tick } from "./chart.js";
import { nameOf } from "./state.js";
import { bytes, clock, count, mark, permille, time } from "./format.js";

/** Places of the legs' latency axis left of the heat, and of time under it, in pixels. */
const LEFT = 62;
const BELOW = 24;
const HEAT_HEIGHT = 260;
/** Size of a cell of the region map, with the gap, and most cells. */
const CELL = 13;
const CELLS_MAX = 1024;

/** A canvas in a figure, a line that says what is under the pointer, and a text for who does not see it. */
class Picture {
  constructor(figure, title) {
    this.figure = figure;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.readout = document.createElement("p");
    this.readout.className = "readout";
    figure.setAttribute("role", "group");
    figure.setAttribute("aria-label", title);
    figure.replaceChildren(this.canvas, this.readout);
    this.at = null;
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.#leave());
    figure.addEventListener("keydown", (event) => this.#key(event));
    figure.addEventListener("blur", () => this.#leave());
    new ResizeObserver(() => this.draw()).observe(figure);
  }

  #leave() {
    this.at = null;
    this.readout.removeAttribute("aria-live");
    this.draw();
  }

  #key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step || event.target !== this.figure) return;
    event.preventDefault();
    this.readout.setAttribute("aria-live", "polite");
    this.move(...step);
    this.draw();
  }

  /** Makes the canvas fit, and returns its context in pixels of the page. */
  begin(height) {
    const width = this.figure.clientWidth;
    if (width === 0) return null;
    const scale = devicePixelRatio;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    return pen;
  }

  say(text) {
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }
}

/** Time × logarithmic latency: how many of the clients' requests took how long. */
export class Heat extends Picture {
  constructor(figure) {
    super(figure, "Requests by time and latency, a heat map. Arrow keys read its cells.");
    this.heat = null;
  }

  show(heat) {
    this.heat = heat;
    this.draw();
  }

  point(x, y) {
    if (!this.heat) return;
    const { width, rows } = this.#size();
    const column = Math.floor(((x - LEFT) / width) * this.heat.times.length);
    this.at = [column, Math.floor((1 - y / (HEAT_HEIGHT - BELOW)) * rows)];
    this.draw();
  }

  move(right, down) {
    if (!this.heat) return;
    const [column, row] = this.at ?? [this.heat.times.length - 1, 0];
    const { rows } = this.#size();
    this.at = [clamp(column + right, this.heat.times.length), clamp(row - down, rows)];
  }

  #size() {
    return { width: this.figure.clientWidth - LEFT - 4, rows: this.heat.bounds_ns.length };
  }

  draw() {
    const isKnown = this.heat?.times?.length > 0;
    const pen = this.begin(isKnown ? HEAT_HEIGHT : 28);
    if (!pen) return;
    if (!isKnown) {
      pen.fillStyle = colour("ink-2");
      pen.fillText("Not known: this server keeps no history of latencies.", 0, 20);
      return this.say("");
    }
    const { times, bounds_ns: bounds, counts } = this.heat;
    const { width, rows } = this.#size();
    const high = HEAT_HEIGHT - BELOW;
    const most = Math.max(1, ...counts.map((column) => Math.max(0, ...(column ?? []))));
    const ramp = steps(["heat-0", "heat-1", "heat-2", "heat-3"]);
    const cell = { width: width / times.length, height: high / rows };
    pen.fillStyle = colour("paper-2");
    pen.fillRect(LEFT, 0, width, high);
    counts.forEach((column, x) => column?.forEach((value, y) => {
      if (!(value > 0)) return;
      // A single slow request among thousands must be seen: the logarithm of the count.
      pen.fillStyle = ramp(0.12 + 0.88 * (Math.log1p(value) / Math.log1p(most)));
      const left = LEFT + Math.floor(x * cell.width);
      const right = LEFT + Math.ceil((x + 1) * cell.width);
      pen.fillRect(left, high - Math.ceil((y + 1) * cell.height), right - left, Math.ceil(cell.height));
    }));
    this.#axes(pen, width, high, rows, cell);
    this.#tell(pen, cell, high);
  }

  #axes(pen, width, high, rows, cell) {
    const { times, bounds_ns: bounds } = this.heat;
    pen.fillStyle = colour("ink-2");
    pen.textAlign = "right";
    // A row ends at its bound, and the last has none.
    const known = bounds.filter((bound) => bound !== null);
    const rowsUp = (value) => {
      const row = known.findIndex((bound) => bound >= value);
      return row + (row > 0 ? Math.log(value / known[row - 1]) / Math.log(known[row] / known[row - 1]) : 1);
    };
    for (const value of decades(null, null, known[0], known.at(-1))) {
      const y = high - rowsUp(value) * cell.height;
      pen.fillText(mark(value), LEFT - 8, y + 4);
      pen.fillRect(LEFT - 4, y, 4, 1);
    }
    pen.textAlign = "center";
    const [first, last] = [times[0] / 1000, times.at(-1) / 1000];
    const step = roundSteps.time.find((step) => step >= 1e9 && (step / 1e9) * width >= 90 * (last - first)) / 1e9;
    const shift = new Date().getTimezoneOffset() * 60;
    for (let at = Math.ceil((first - shift) / step) * step + shift; at <= last; at += step) {
      const x = ((at - first) / (last - first || 1)) * width;
      if (x < width - 18) pen.fillText(tick(at, step), LEFT + x, HEAT_HEIGHT - 6);
    }
  }

  #tell(pen, cell, high) {
    const { times, bounds_ns: bounds, counts } = this.heat;
    if (!this.at || !(this.at[0] in times) || !(this.at[1] in bounds)) {
      const newest = counts.at(-1) ?? [];
      const slowest = newest.findLastIndex((value) => value > 0);
      return this.say(slowest < 0 ? "now: no requests" : `now: the slowest within ${time(bounds[slowest])}`);
    }
    const [x, y] = this.at;
    pen.strokeStyle = colour("ink");
    pen.strokeRect(LEFT + x * cell.width, high - (y + 1) * cell.height, Math.max(2, cell.width), cell.height);
    const long = `${y === 0 ? "up" : time(bounds[y - 1])} ${y === bounds.length - 1 ? "and more" : `to ${time(bounds[y])}`}`;
    return this.say(`${clock(times[x])}: ${count(counts[x]?.[y] ?? 0)} requests took ${long}`);
  }
}

/** The volume as cells: who decides each, and how much of it is armed, touched or owed. */
export class Regions extends Picture {
  constructor(figure) {
    super(figure, "The volume's regions, a map. Arrow keys read its cells.");
    this.layer = "authority";
    this.map = null;
    this.names = {};
    this.key = document.createElement("p");
    this.key.className = "key";
    figure.prepend(this.key);
  }

  /** Returns how many cells there is room for. */
  room() {
    const columns = this.#columns();
    return Math.min(CELLS_MAX, columns * 16);
  }

  show(map, legs) {
    this.map = map;
    this.names = Object.fromEntries(legs.map((leg) => [leg.leg, nameOf(leg)]));
    this.draw();
  }

  choose(layer) {
    this.layer = layer;
    this.draw();
  }

  #columns() {
    return Math.max(8, Math.floor(this.figure.clientWidth / CELL));
  }

  point(x, y) {
    const index = Math.floor(y / CELL) * this.#columns() + Math.floor(x / CELL);
    this.at = index < (this.map?.cells ?? 0) ? index : null;
    this.draw();
  }

  move(right, down) {
    if (this.map) this.at = clamp((this.at ?? 0) + right + down * this.#columns(), this.map.cells);
  }

  draw() {
    const cells = this.map?.cells ?? 0;
    const columns = this.#columns();
    const pen = this.begin(Math.max(1, Math.ceil(cells / columns)) * CELL + 8);
    if (!pen) return;
    if (!cells) {
      pen.fillStyle = colour("ink-2");
      pen.fillText("Not known: this server tells nothing of its regions.", 0, 16);
      this.key.replaceChildren();
      return this.say("");
    }
    const tint = { armed: colour("series-a"), touched: colour("series-a"), owed: colour("debt") }[this.layer];
    for (let cell = 0; cell < cells; cell += 1) {
      const x = (cell % columns) * CELL;
      const y = Math.floor(cell / columns) * CELL;
      pen.fillStyle = colour("cell");
      pen.fillRect(x, y, CELL - 2, CELL - 2);
      const share = this.map[this.layer]?.[cell] ?? 0;
      const leg = this.map.authority?.[cell] ?? null;
      if (this.layer === "authority" && leg !== null) {
        pen.fillStyle = legColour(leg);
        pen.fillRect(x, y, CELL - 2, CELL - 2);
      } else if (this.layer !== "authority" && share > 0) {
        pen.fillStyle = faint(tint, 0.25 + 0.75 * (share / 1000));
        pen.fillRect(x, y, CELL - 2, CELL - 2);
      }
      // What is owed is marked on every layer: a corner, so that colour alone does not say it.
      if (this.map.owed?.[cell] > 0 && this.layer !== "owed") {
        pen.fillStyle = colour("debt-mark");
        pen.fillRect(x + CELL - 7, y + CELL - 7, 5, 5);
      }
      if (cell === this.at) {
        pen.strokeStyle = colour("ink");
        pen.lineWidth = 2;
        pen.strokeRect(x - 0.5, y - 0.5, CELL - 1, CELL - 1);
      }
    }
    this.#legend();
    return this.#tell();
  }

  #legend() {
    const entry = (background, text) => {
      const swatch = document.createElement("span");
      swatch.className = "k square";
      swatch.style.background = background;
      return [swatch, `${text} `];
    };
    const entries = this.layer === "authority"
      ? [...Object.entries(this.names).flatMap(([slot, name]) => entry(legTint(slot), name)), ...entry("var(--cell)", "any leg")]
      : entry(this.layer === "owed" ? "var(--debt)" : "var(--series-a)", `${this.layer}, the fuller the more`);
    this.key.replaceChildren(...entries, ...(this.layer === "owed" ? [] : entry("var(--debt-mark)", "some is owed")));
  }

  #tell() {
    const { regions, region_bytes: size, cells, authority, armed, touched, owed } = this.map;
    if (this.at === null) {
      const any = (column) => (column ?? []).filter((share) => share > 0).length;
      const decided = (authority ?? []).filter((leg) => leg !== null).length;
      return this.say(`${count(regions)} regions of ${bytes(size)} in ${count(cells)} cells; a leg decides in ${count(decided)}, something is owed in ${count(any(owed))}`);
    }
    const from = Math.floor((this.at * regions) / cells);
    const to = Math.max(from + 1, Math.floor(((this.at + 1) * regions) / cells));
    const leg = authority?.[this.at] ?? null;
    const who = leg === null ? "any leg" : this.names[leg] ?? `leg ${leg}`;
    const part = (name, column) => `${name} ${permille(column?.[this.at])}`;
    const where = `${bytes(from * size)} to ${bytes(to * size)}`;
    return this.say(`${where}: decided by ${who}; ${part("armed", armed)}, ${part("touched", touched)}, ${part("owed", owed)}`);
  }
}

const clamp = (value, length) => Math.min(length - 1, Math.max(0, value));

/** Returns a colour between the named ones, for 0 to 1. */
function steps(names) {
  const stops = names.map((name) => [1, 3, 5].map((at) => parseInt(colour(name).slice(at, at + 2), 16)));
  return (share) => {
    const place = Math.min(0.9999, Math.max(0, share)) * (stops.length - 1);
    const low = stops[Math.floor(place)];
    const high = stops[Math.floor(place) + 1];
    return `rgb(${low.map((value, part) => Math.round(value + (high[part] - value) * (place % 1))).join(" ")})`;
  };
}
