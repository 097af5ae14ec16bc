// Draws every chart in the colours the page has, anew when they change or it is printed.
"use strict";
(async () => {
  const unpack = async (packed) => {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return await new Response(stream).text();
  };
  const elements = [...document.querySelectorAll(".chart")];
  const narrow = matchMedia("(max-width: 640px)");

  // Tables that are wider than the page say so.
  const scrolls = [...document.querySelectorAll(".scroll")];
  const mark = () => {
    for (const element of scrolls) {
      const wide = element.scrollWidth > element.clientWidth + 1;
      element.classList.toggle("wide", wide);
      if (wide) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
      const end = element.scrollLeft + element.clientWidth >= element.scrollWidth - 2;
      element.classList.toggle("end", end);
    }
  };
  for (const element of scrolls) element.addEventListener("scroll", mark, { passive: true });
  addEventListener("resize", mark);
  mark();

  if (!elements.length) return;
  if (!("DecompressionStream" in window)) {
    for (const element of elements) {
      element.textContent = "This browser cannot unpack the chart; those of 2023 and later can. The tables have its figures.";
      element.style.height = "auto";
    }
    return;
  }
  const library = document.createElement("script");
  library.textContent = await unpack(window.packedPlotly);
  document.head.append(library);
  const charts = [];
  for (const element of elements) {
    charts.push({ element, figure: JSON.parse(await unpack(element.nextElementSibling.textContent)) });
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colours = (paper) => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return paper
      ? { text: "#222", soft: "#555", line: "#ddd", panel: "#fff" }
      : { text: of("--text"), soft: of("--soft"), line: of("--line"), panel: of("--panel") };
  };
  const isAxis = (key) => /^[xy]axis\d*$/.test(key);
  const domain = (layout, key) => layout[key]?.domain ?? [0, 1];
  // The pairs of axes of a figure, as their places on it.
  const panels = (layout) =>
    Object.keys(layout)
      .filter((key) => key.startsWith("yaxis"))
      .map((key) => {
        const across = (layout[key].anchor ?? `x${key.slice(5)}`).replace("x", "xaxis");
        return { across, down: key, x: domain(layout, across), y: domain(layout, key) };
      });
  // A chart that is copied out of the page still says what it is: behind the data of its largest
  // panel, so that the word crosses no title. A map has no room behind its cells.
  const watermark = (figure, layout, colour) => {
    if (figure.data.some((trace) => trace.type === "heatmap")) {
      const word = {
        text: "simulated", xref: "paper", yref: "paper", x: 1, y: 1, xanchor: "right", yanchor: "bottom",
        showarrow: false, font: { size: 11, color: colour },
      };
      return { annotations: [...(layout.annotations ?? []), word] };
    }
    const size = ({ x, y }) => (x[1] - x[0]) * (y[1] - y[0]);
    const { x, y } = panels(layout).sort((a, b) => size(b) - size(a))[0] ?? { x: [0, 1], y: [0, 1] };
    const image = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 110"><text x="150" y="62" text-anchor="middle" transform="rotate(-14 150 55)" font-family="system-ui, sans-serif" font-size="56" fill="${colour}">simulated</text></svg>`;
    const placed = {
      source: `data:image/svg+xml,${encodeURIComponent(image)}`, xref: "paper", yref: "paper",
      x: (x[0] + x[1]) / 2, y: (y[0] + y[1]) / 2, xanchor: "center", yanchor: "middle",
      sizex: Math.min(0.9 * (x[1] - x[0]), narrow.matches ? 0.8 : 0.4), sizey: 0.8 * (y[1] - y[0]), sizing: "contain", layer: "below", opacity: 0.16,
    };
    return { images: [...(layout.images ?? []), placed] };
  };
  // Panels side by side stand below each other where the page is narrow.
  const stacked = (layout) => {
    const row = panels(layout);
    const first = row[0];
    if (row.length < 2 || row.some(({ y }) => y[0] !== first.y[0] || y[1] !== first.y[1])) return layout;
    const found = { ...layout, height: layout.height * row.length * 0.8 };
    const each = 1 / row.length;
    row.forEach(({ across, down }, n) => {
      found[across] = { ...layout[across], domain: [0, 1] };
      found[down] = { ...layout[down], domain: [1 - (n + 1) * each + (n + 1 < row.length ? 0.3 * each : 0), 1 - n * each] };
    });
    return found;
  };
  // A phone has room for short lines beside bars, and for the value alone at their ends.
  const brief = (figure) => {
    const broken = (text) => {
      const lines = [""];
      for (const word of text.replaceAll("<br>", " ").split(" ")) {
        if (lines.at(-1) && lines.at(-1).length + word.length >= 16) lines.push(word);
        else lines[lines.length - 1] = `${lines.at(-1)} ${word}`.trim();
      }
      return lines.join("<br>");
    };
    const data = figure.data.map((trace) =>
      trace.mode === "text" ? { ...trace, text: trace.text.map((text) => text.replace(/ ± .*/, "")) } : trace,
    );
    const layout = { ...figure.layout };
    for (const key of Object.keys(layout)) {
      const texts = layout[key]?.ticktext;
      if (key.startsWith("yaxis") && texts) layout[key] = { ...layout[key], ticktext: texts.map(broken) };
    }
    return { data, layout };
  };
  // Paper is narrower than a window, and a tall chart leaves half a page empty before it.
  const height = (layout, paper) => Math.round(layout.height * (paper ? 0.72 : 1));
  const layout = (figure, paper, simulated) => {
    const { text, soft, line, panel } = colours(paper);
    const small = narrow.matches && !paper;
    const own = small ? stacked(figure.layout) : figure.layout;
    const changed = {
      ...own,
      template: null,
      autosize: true,
      height: height(own, paper),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: paper ? 9 : small ? 11 : 12, color: soft },
      margin: paper ? { l: 48, r: 8, t: 26, b: 34 } : { l: small ? 40 : 64, r: small ? 8 : 24, t: 34, b: 44 },
      legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", font: { color: text } },
      hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: text } },
      hovermode: own.hovermode ?? "closest",
    };
    if (simulated) Object.assign(changed, watermark(figure, changed, soft));
    for (const key of Object.keys(changed)) {
      if (!isAxis(key)) continue;
      const axis = changed[key];
      const title = typeof axis.title === "string" ? { text: axis.title } : axis.title;
      changed[key] = {
        gridcolor: line, linecolor: line, zeroline: false, automargin: true, exponentformat: "SI",
        ...axis,
        ...(title && { title: { standoff: 6, ...title } }),
      };
    }
    return changed;
  };

  const canvas = document.createElement("canvas").getContext("2d");
  // Annotations of a name with their numbers, as they were given: the layout in full has nothing but the number
  // of what is hidden.
  const annotations = (element, name) =>
    (element.layout.annotations ?? []).map((one, n) => ({ one, n })).filter(({ one }) => one.name === name);
  // Labels every logarithmic axis and every one with a unit, and shows the names of those steps
  // that have room, for the range and the size that the chart has now.
  const label = (element) => {
    const full = element._fullLayout;
    if (!full) return;
    canvas.font = `${full.font.size}px system-ui, sans-serif`;
    const width = (words) => canvas.measureText(words).width;
    const changes = {};
    for (const key of Object.keys(full).filter(isAxis)) {
      const axis = full[key];
      const unit = axis.ticksuffix ?? "";
      if (axis.type !== "log" && !(axis.type === "linear" && ["s", "B/s", "B"].includes(unit))) continue;
      const [low, high] = [Math.min(...axis.range), Math.max(...axis.range)];
      if (!(high > low) || !axis._length) continue;
      const found = ticks.choose(
        {
          log: axis.type === "log", low, high, length: axis._length, across: key.startsWith("x"),
          prefix: axis.tickprefix ?? "", unit,
        },
        width,
      );
      const texts = found.map((one) => one.text);
      if (JSON.stringify(texts) === JSON.stringify(axis.ticktext) && axis.tickmode === "array") continue;
      changes[`${key}.tickmode`] = "array";
      changes[`${key}.tickvals`] = found.map((one) => one.value);
      changes[`${key}.ticktext`] = texts;
    }
    const steps = annotations(element, "step");
    const axis = full.xaxis;
    steps.forEach(({ one, n }, at) => {
      const end = steps[at + 1]?.one.x ?? Math.max(...axis.range);
      const room = axis.l2p(Math.min(end, Math.max(...axis.range))) - axis.l2p(Math.max(one.x, Math.min(...axis.range)));
      const visible = width(one.text) * (one.font.size / full.font.size) + 8 <= room;
      if ((one.visible ?? true) !== visible) changes[`annotations[${n}].visible`] = visible;
    });
    Object.assign(changes, frontier(element, width));
    if (Object.keys(changes).length) Plotly.relayout(element, changes);
  };
  // Places the names of a frontier's marks. Nothing is both cheaper and faster than such a mark, so the room
  // below and left of the frontier is empty. A name moves down until it is clear of the frontier and of the
  // names placed before it, and is hidden where no room is left.
  const frontier = (element, width) => {
    const full = element._fullLayout;
    const names = annotations(element, "frontier");
    const { xaxis: across, yaxis: down } = full;
    const marks = names.map(({ one }) => ({ x: across.l2p(one.x), y: down.l2p(one.y) }));
    const [apart, clear, high] = [3, 7, 15];
    const placed = [];
    const changes = {};
    names.forEach(({ one, n }, at) => {
      const { x, y } = marks[at];
      const wide = width(one.text) * (one.font.size / full.font.size) + 4;
      const right = Math.max(x - apart, wide);
      let top = y + apart;
      const lowest = () => Math.max(
        top,
        ...marks.filter((mark) => mark.x - clear < right && mark.y + clear > top).map((mark) => mark.y + clear),
        ...placed.filter((box) => box.left < right && right - wide < box.right && box.top < top + high && top < box.bottom)
          .map((box) => box.bottom),
      );
      for (let next = lowest(); next > top; next = lowest()) top = next;
      const inside = x >= 0 && x <= across._length && y >= 0 && top + high <= down._length;
      if (inside) placed.push({ left: right - wide, right, top, bottom: top + high });
      const wanted = { ax: Math.round(right - x), ay: Math.round(top + high / 2 - y), visible: inside };
      for (const [key, value] of Object.entries(wanted)) {
        if ({ visible: true, ...one }[key] !== value) changes[`annotations[${n}].${key}`] = value;
      }
    });
    return changes;
  };
  const draw = (paper = false) => {
    for (const { element, figure: whole } of charts) {
      const simulated = element.closest(".simulated");
      const figure = narrow.matches && !paper ? brief(whole) : whole;
      const wanted = layout(figure, paper, simulated);
      element.style.height = `${wanted.height}px`;
      Plotly.react(element, figure.data, wanted, { responsive: true, displaylogo: false, displayModeBar: false });
      // Labels may change the margins, and so the room for labels: the second time settles it.
      label(element);
      label(element);
    }
  };
  draw();
  for (const { element } of charts) {
    element.on("plotly_relayout", (event) => {
      if (Object.keys(event).some((key) => /range|autosize|width/.test(key))) label(element);
    });
  }
  let wide = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === wide) return;
    wide = innerWidth;
    draw();
  });
  dark.addEventListener("change", () => draw());
  addEventListener("beforeprint", () => draw(true));
  addEventListener("afterprint", () => draw());
  document.documentElement.classList.add("drawn");
})();
