// Figures as text: the same words and units as the hemi commands use.

/** Text for a figure that hemi did not tell. */
export const UNKNOWN = "not known";

const isKnown = (value) => typeof value === "number" && Number.isFinite(value);

/** Returns three digits at most: 0.12, 3.1, 31, 310. */
function short(value) {
  if (value === 0) return "0";
  const digits = value < 1 ? 2 : value < 10 ? 1 : 0;
  return value.toFixed(digits).replace(/\.0+$/, "");
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Returns a size in bytes with a unit of 1024. */
export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  let unit = 0;
  while (value >= 1000 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${short(value)} ${SIZES[unit]}`;
}

/** Returns bytes a second. */
export const flow = (value) => (isKnown(value) ? `${bytes(value)}/s` : UNKNOWN);

/** Returns a time in nanoseconds: 80 µs, 1.2 ms, 12 s, 3 min 12 s, 2 h 5 min, 3 d 4 h. */
export function time(value) {
  if (!isKnown(value)) return UNKNOWN;
  if (value === 0) return "0 s";
  if (value < 1e3) return `${short(value)} ns`;
  if (value < 1e6) return `${short(value / 1e3)} µs`;
  if (value < 1e9) return `${short(value / 1e6)} ms`;
  const seconds = value / 1e9;
  if (seconds < 60) return `${short(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (large, name, small, unit) => (small ? `${large} ${name} ${small} ${unit}` : `${large} ${name}`);
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return two(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

/** Returns a time for an axis: one figure and one unit. */
export function mark(value) {
  return value >= 6e10 && value < 3.6e12 ? `${short(value / 1e9)} s` : time(value);
}

/** Returns a number, thousands apart. */
export function count(value) {
  if (!isKnown(value)) return UNKNOWN;
  if (value > 0 && value < 10) return short(value);
  return Math.round(value).toLocaleString("en");
}

/** Returns a share of a thousand in per cent. */
export function permille(value) {
  if (!isKnown(value)) return UNKNOWN;
  return `${value > 0 && value < 100 ? (value / 10).toFixed(1) : Math.round(value / 10)} %`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const ZONE = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Returns the time of day of unix milliseconds, with the day unless it is today. */
export function clock(milliseconds) {
  if (!isKnown(milliseconds)) return UNKNOWN;
  const at = new Date(milliseconds);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at)}`;
}

/** Returns the time zone of times of day. */
export const zone = () => ZONE.formatToParts().find((part) => part.type === "timeZoneName").value;

/** Returns the day of unix milliseconds, with its year. */
export function day(milliseconds) {
  if (!isKnown(milliseconds)) return UNKNOWN;
  return new Date(milliseconds).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}
