// Draws every chart in the colours the page has, anew when they change or it is printed.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const charts = [...document.querySelectorAll(".chart")].map((element) => ({
    element,
    figure: JSON.parse(element.nextElementSibling.textContent),
  }));
  const colours = (paper) => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return paper
      ? { text: "#222", soft: "#555", line: "#ddd", panel: "#fff" }
      : { text: of("--text"), soft: of("--soft"), line: of("--line"), panel: of("--panel") };
  };
  const layout = (figure, paper) => {
    const { text, soft, line, panel } = colours(paper);
    const changed = {
      ...figure.layout,
      template: null,
      autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: soft },
      margin: { l: 64, r: 24, t: 34, b: 44 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: text } },
      hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: text } },
      hovermode: figure.layout.hovermode ?? "closest",
    };
    for (const key of Object.keys(changed)) {
      if (/^[xy]axis\d*$/.test(key)) {
        changed[key] = {
          gridcolor: line, linecolor: line, zeroline: false, automargin: true, exponentformat: "SI",
          ...changed[key],
        };
      }
    }
    return changed;
  };
  const draw = (paper = false) => {
    for (const { element, figure } of charts) {
      Plotly.react(element, figure.data, layout(figure, paper), { responsive: true, displaylogo: false, displayModeBar: false });
    }
  };
  draw();
  dark.addEventListener("change", () => draw());
  addEventListener("beforeprint", () => draw(true));
  addEventListener("afterprint", () => draw());
})();
