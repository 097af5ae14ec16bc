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
  // A chart that is copied out of the page still says what it is.
  const watermark = (colour) => ({
    text: "simulated", xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false, textangle: -18,
    font: { size: 44, color: colour }, opacity: 0.16,
  });
  const layout = (figure, paper, simulated) => {
    const { text, soft, line, panel } = colours(paper);
    const changed = {
      ...figure.layout,
      template: null,
      autosize: true,
      height: height(figure, paper),
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: paper ? 9 : 12, color: soft },
      margin: paper ? { l: 48, r: 8, t: 26, b: 34 } : { l: 64, r: 24, t: 34, b: 44 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: text } },
      hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: text } },
      hovermode: figure.layout.hovermode ?? "closest",
    };
    if (simulated) changed.annotations = [...(figure.layout.annotations ?? []), watermark(soft)];
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
  // Paper is narrower than a window, and a tall chart leaves half a page empty before it.
  const height = (figure, paper) => Math.round(figure.layout.height * (paper ? 0.72 : 1));
  const draw = (paper = false) => {
    for (const { element, figure } of charts) {
      element.style.height = `${height(figure, paper)}px`;
      Plotly.react(element, figure.data, layout(figure, paper, element.closest(".simulated")), { responsive: true, displaylogo: false, displayModeBar: false });
    }
  };
  draw();
  dark.addEventListener("change", () => draw());
  addEventListener("beforeprint", () => draw(true));
  addEventListener("afterprint", () => draw());
})();
