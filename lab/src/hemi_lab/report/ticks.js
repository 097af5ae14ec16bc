// Labels of axes: values at which a line is drawn, chosen so that no two labels touch.
"use strict";
const ticks = (() => {
  const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const prefixed = (value, unit, most) => {
    const [factor, prefix] =
      PREFIXES.find(([size]) => size <= most && Math.abs(value) >= size * 0.9995) ?? PREFIXES.at(-1);
    return `${plain.format(value / factor)} ${prefix}${unit}`;
  };
  // Text of a value in an axis's unit.
  const text = (value, prefix, unit) => {
    if (value === 0) return unit ? `${prefix}0 ${unit}` : `${prefix}0`;
    if (unit === "s") return prefix + prefixed(value, unit, 1);
    if (unit === "B/s" || unit === "B") return prefix + prefixed(value, unit, 1e9);
    return `${prefix}${plain.format(value)}${unit}`;
  };
  const LOG = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3], [1]];
  // Values between two powers of ten, from many to few.
  function* ofLog(low, high) {
    for (const digits of LOG) {
      const values = [];
      for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
        for (const digit of digits) values.push(digit * 10 ** power);
      }
      yield values;
    }
    for (const every of [2, 3, 6]) {
      const values = [];
      for (let power = Math.ceil(low / every) * every; power <= high; power += every) values.push(10 ** power);
      yield values;
    }
  }
  function* ofLine(low, high) {
    const first = Math.floor(Math.log10(Math.max(high - low, 1e-300))) - 1;
    for (let power = first; power <= first + 2; power++) {
      for (const digit of [1, 2, 5]) {
        const step = digit * 10 ** power;
        const values = [];
        for (let n = Math.ceil(low / step - 1e-9); n <= Math.floor(high / step + 1e-9); n++) {
          values.push(Number((n * step).toPrecision(12)));
        }
        yield values;
      }
    }
  }
  // `axis`: log, low, high (of a logarithmic axis as powers of ten), length in pixels, across,
  // prefix, unit; `width` gives the pixels of a text. Returns the densest values that leave room.
  const choose = (axis, width) => {
    const { log, low, high, length, across } = axis;
    const place = (value) => (((log ? Math.log10(value) : value) - low) / (high - low)) * length;
    const labelled = (values) =>
      values
        .filter((value) => place(value) >= -0.5 && place(value) <= length + 0.5)
        .map((value) => ({ value, text: text(value, axis.prefix, axis.unit) }));
    const apart = (found) =>
      found.every(({ value, text: words }, n) => {
        if (!n) return true;
        const before = found[n - 1];
        const gap = place(value) - place(before.value);
        return gap >= (across ? (width(words) + width(before.text)) / 2 + 14 : 24);
      });
    // Labels closer than about an inch tell nothing more.
    const most = Math.max(3, Math.min(9, Math.round(length / (across ? 60 : 34))));
    const fits = (found) => found.length <= most && apart(found);
    const differ = (found) => new Set(found.map((one) => one.text)).size === found.length;
    const search = (candidates) => {
      for (const values of candidates) {
        const found = labelled(values);
        if (fits(found) && differ(found)) return found;
      }
      return [];
    };
    if (!log) return search(ofLine(low, high));
    const found = search(ofLog(low, high));
    if (high - low > 1.5) return found;
    // Of a decade or so, even steps may reach further than its digits.
    const even = search(ofLine(10 ** low, 10 ** high));
    const reach = (some) => (some.length < 2 ? 0 : place(some.at(-1).value) - place(some[0].value));
    return reach(even) > reach(found) ? even : found;
  };
  return { choose, text };
})();
if (typeof module !== "undefined") module.exports = ticks;
