// What is known of the volume: the newest status, its past in columns, events.
//
// The past comes from /v1/history. Between two readings, and where the server keeps none, the page adds points
// of its own from the statuses it is sent.

const NS = 1e9;
/** Points that the page asks for, and keeps. */
export const POINTS = 300;
/** Events that the page keeps. */
const EVENTS_MAX = 500;
export const SEVERITIES = ["info", "notice", "warning", "critical"];

const CLIENT_COLUMNS = ["reads", "writes", "read_bytes", "written_bytes", "in_flight", "p50_ns", "p99_ns", "p999_ns", "max_ns"];
const EXPOSURE_COLUMNS = ["bytes", "age_ns", "throttled_permille"];
const LEG_COLUMNS = ["p50_ns", "p99_ns", "frozen_permille", "out_permille", "owed_bytes", "in_flight", "reads", "writes", "read_bytes", "written_bytes"];

const columnsOf = (names, source, length) =>
  Object.fromEntries(names.map((name) => [name, padded(source?.[name], length)]));

function padded(column, length) {
  const known = Array.isArray(column) ? column.slice(0, length) : [];
  while (known.length < length) known.push(null);
  return known;
}

/** The past: one value for each time in each column; `null` where nothing is known. */
export class Past {
  constructor(span, history = null) {
    this.span = span;
    this.stepMs = Math.max(1000, history?.step_ms ?? (span * 1000) / POINTS);
    this.times = Array.isArray(history?.times_ms) ? history.times_ms.slice() : [];
    const length = this.times.length;
    this.clients = columnsOf(CLIENT_COLUMNS, history?.clients, length);
    this.exposure = columnsOf(EXPOSURE_COLUMNS, history?.exposure, length);
    this.legs = new Map();
    for (const leg of history?.legs ?? []) this.legs.set(leg.leg, columnsOf(LEG_COLUMNS, leg, length));
    this.heat = history?.heat?.bounds_ns ? { ...history.heat, times: this.times.slice() } : null;
    this.isKept = history !== null;
    this.last = null;
  }

  /** Adds a point from a status, if the last one is old enough. Returns true if it did. */
  add(status, at) {
    const before = this.last;
    const newest = this.times.at(-1) ?? 0;
    if (before && (at - before.at < this.stepMs || status.uptime_ns < before.status.uptime_ns)) {
      if (status.uptime_ns < before.status.uptime_ns) this.last = { status, at };
      return false;
    }
    this.last = { status, at };
    if (at - newest < this.stepMs) return false;
    // A gap is a gap: no line is drawn across it.
    if (newest && at - newest > 4 * this.stepMs) this.#push(newest + this.stepMs, null, null);
    this.#push(at, status, before && { status: before.status, seconds: (at - before.at) / 1000 });
    this.#forget(at - this.span * 1000);
    return true;
  }

  /** Returns the first and the last time shown, in seconds. */
  range() {
    const last = (this.times.at(-1) ?? Date.now()) / 1000;
    return [last - this.span, last];
  }

  #push(at, status, before) {
    this.times.push(at);
    append(this.clients, status && clientPoint(status, before));
    append(this.exposure, status?.exposure && {
      bytes: status.exposure.bytes,
      age_ns: status.exposure.age_ns,
      throttled_permille: status.exposure.throttling ? 1000 : 0,
    });
    for (const leg of status?.legs ?? []) {
      if (!this.legs.has(leg.leg)) this.legs.set(leg.leg, columnsOf(LEG_COLUMNS, null, this.times.length - 1));
    }
    for (const [slot, columns] of this.legs) {
      const leg = status?.legs?.find((leg) => leg.leg === slot);
      const earlier = before?.status.legs?.find((leg) => leg.leg === slot);
      append(columns, leg && legPoint(leg, earlier && { leg: earlier, seconds: before.seconds }));
    }
  }

  #forget(before) {
    let old = 0;
    while (old < this.times.length && this.times[old] < before) old += 1;
    if (old === 0) return;
    this.times.splice(0, old);
    for (const columns of [this.clients, this.exposure, ...this.legs.values()]) {
      for (const column of Object.values(columns)) column.splice(0, old);
    }
  }
}

function append(columns, point) {
  for (const [name, column] of Object.entries(columns)) column.push(point?.[name] ?? null);
}

const rate = (now, before, seconds) => (before === undefined || now < before ? null : (now - before) / seconds);
/** The larger of the figures that are known; `null` without any. Zero means that nothing was measured. */
const most = (...values) => values.reduce((most, value) => (value > (most ?? 0) ? value : most), null);

function clientPoint(status, before) {
  const { reads, writes } = status.clients ?? {};
  const earlier = before?.status.clients;
  const perSecond = (kind) => earlier
    && rate(status.clients?.[kind]?.total?.count, earlier[kind]?.total?.count, before.seconds);
  const quantile = (name) => most(reads?.recent?.[name], writes?.recent?.[name]);
  return {
    reads: perSecond("reads"), writes: perSecond("writes"),
    read_bytes: before && rate(status.clients?.read_bytes, earlier?.read_bytes, before.seconds),
    written_bytes: before && rate(status.clients?.written_bytes, earlier?.written_bytes, before.seconds),
    in_flight: status.clients?.requests,
    p50_ns: quantile("p50_ns"), p99_ns: quantile("p99_ns"), p999_ns: quantile("p999_ns"), max_ns: quantile("max_ns"),
  };
}

function legPoint(leg, before) {
  const perSecond = (kind) => before && rate(leg[kind]?.total?.count, before.leg[kind]?.total?.count, before.seconds);
  const quantile = (name) => most(leg.reads?.recent?.[name], leg.writes?.recent?.[name]);
  const frozen = before && rate(leg.frozen_ns, before.leg.frozen_ns, before.seconds);
  return {
    p50_ns: quantile("p50_ns"), p99_ns: quantile("p99_ns"),
    frozen_permille: leg.state && Math.min(1000, Math.max(((frozen ?? 0) / NS) * 1000, leg.state === "frozen" ? 1000 : 0)),
    out_permille: leg.state && (leg.state === "out" || leg.state === "gone" ? 1000 : 0),
    owed_bytes: leg.owed_bytes, in_flight: leg.in_flight,
    reads: perSecond("reads"), writes: perSecond("writes"),
    read_bytes: before && rate(leg.read_bytes, before.leg.read_bytes, before.seconds),
    written_bytes: before && rate(leg.written_bytes, before.leg.written_bytes, before.seconds),
  };
}

/** The log of why: newest first, each once. */
export class Events {
  constructor() {
    this.list = [];
    /** False until a server has told any, or that there are none. */
    this.isKept = false;
    this.ids = new Set();
  }

  /** Adds an event; false if it is known. */
  add(event) {
    this.isKept = true;
    if (this.ids.has(event.id)) return false;
    this.ids.add(event.id);
    const after = this.list.findIndex((known) => known.id < event.id);
    this.list.splice(after < 0 ? this.list.length : after, 0, event);
    for (const old of this.list.splice(EVENTS_MAX)) this.ids.delete(old.id);
    return true;
  }
}

/** Returns a leg's name, for people: of a path its last part. */
export const nameOf = (leg) => (leg.name || `leg ${leg.leg}`).replace(/^\/.*\/(?=[^/])/, "");

/** Returns a leg's condition in a word or two, as `hemi status` says it. */
export function stateOf(leg) {
  const out = {
    joining: "filling", unresponsive: "out: unresponsive", removed: "out: removed",
    "write-errors": "out: write errors", detached: "detached",
  };
  if (leg.stalled && ["healthy", "lagging"].includes(leg.state)) return "stalled";
  const word = leg.state === "out" ? out[leg.out_reason] ?? "out" : leg.state ?? "not known";
  return leg.slow && ["healthy", "lagging"].includes(leg.state) ? `${word}, slow` : word;
}

/** Returns hemi's judgement of the volume. */
export const summaryOf = (status) =>
  status.summary?.text ? status.summary : { state: "unknown", text: "hemi answers, and does not tell how the volume is.", advice: null };
