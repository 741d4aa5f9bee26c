"use strict";
/* A confusion matrix that is looked at as counts or shares, and whose cells open.

   matrix({
     element: the div for the chart, labels: names of rows and columns,
     counts: () => rows of whole numbers (truth down, prediction across),
     view: () => "counts" | "truth" | "prediction",
     open: (row, column) => shows what is in a cell,
   }) returns {draw, select(row, column)}. */
function matrix({ element, labels, counts, view, open }) {
  const size = labels.length;
  const names = labels.map((name) => page.label(name));
  const numbered = size <= 25;
  let chosen = null;

  function shares(rows) {
    const down = Array.from({ length: size }, (_, column) => rows.reduce((sum, row) => sum + row[column], 0));
    return rows.map((row) => {
      const sum = row.reduce((total, value) => total + value, 0);
      return row.map((value, column) => ({ truth: page.ratio(value, sum), prediction: page.ratio(value, down[column]) }));
    });
  }

  function describe(colours) {
    const rows = counts();
    const parts = shares(rows);
    const way = view();
    const greatest = Math.max(1, ...rows.map((row) => Math.max(...row)));
    const shade = (row, column) => {
      if (rows[row][column] === 0) return null;
      const share = way === "counts" ? Math.log1p(rows[row][column]) / Math.log1p(greatest) : parts[row][column][way];
      return 0.12 + 0.88 * share; // a cell with anything in it is never quite pale
    };
    const text = (row, column) => {
      const value = rows[row][column];
      return value === 0 ? "" : way === "counts" ? page.count(value) : page.percent(parts[row][column][way]);
    };
    const grid = (cell) => rows.map((_, row) => rows.map((_, column) => cell(row, column)));
    const hover = grid((row, column) =>
      `ground truth: ${names[row]}<br>prediction: ${names[column]}<br><b>${page.count(rows[row][column])}</b><br>` +
      `${page.percent(parts[row][column].truth)} of this ground truth<br>${page.percent(parts[row][column].prediction)} of this prediction`);
    const trace = (right, colour) => ({
      type: "heatmap",
      z: grid((row, column) => ((row === column) === right ? shade(row, column) : null)),
      zmin: 0, zmax: 1, showscale: false, hoverongaps: false, xgap: numbered ? 2 : 0, ygap: numbered ? 2 : 0,
      colorscale: [[0, colours.card], [1, colour]],
      ...(numbered ? { text: grid((row, column) => ((row === column) === right ? text(row, column) : "")), texttemplate: "%{text}", textfont: { color: colours.ink } } : {}),
      hovertext: hover, hovertemplate: "%{hovertext}<extra></extra>",
    });
    const under = {
      type: "heatmap", z: grid(() => 0), showscale: false, colorscale: [[0, colours.empty], [1, colours.empty]],
      xgap: numbered ? 2 : 0, ygap: numbered ? 2 : 0, hovertext: hover, hovertemplate: "%{hovertext}<extra></extra>",
    };
    const step = Math.ceil(size / 90);
    const ticks = names.map((_, place) => place).filter((place) => place % step === 0);
    const axis = {
      tickvals: ticks, ticktext: ticks.map((place) => names[place]), showgrid: false, zeroline: false,
      tickfont: { size: size > 40 ? 9 : 12 }, range: [-0.5, size - 0.5], constrain: "domain",
    };
    const height = Math.max(360, Math.min(1150, 110 + size * (numbered ? 40 : 12)));
    const longest = Math.max(...labels.map((name) => Math.min(24, name.length)));
    element.style.minWidth = `${Math.min(1000, Math.max(260 + size * 11, 170 + 8 * longest))}px`; // room beside the names
    return {
      data: [under, trace(true, colours.scale_good), trace(false, colours.scale_bad)],
      layout: {
        height,
        xaxis: { ...axis, title: { text: "prediction", standoff: 12 }, tickangle: element.clientWidth / size < 90 ? -45 : 0 },
        yaxis: { ...axis, title: { text: "ground truth", standoff: 12 }, range: [size - 0.5, -0.5] },
        shapes: chosen === null ? [] : [{
          type: "rect", x0: chosen[1] - 0.5, x1: chosen[1] + 0.5, y0: chosen[0] - 0.5, y1: chosen[0] + 0.5,
          line: { color: colours.accent, width: 2.5 },
        }],
      },
    };
  }

  const draw = page.plot(element, describe, () => {
    element.on("plotly_click", (event) => select(event.points[0].y, event.points[0].x));
  });
  function select(row, column) {
    chosen = [row, column];
    draw();
    open(row, column);
  }
  return { draw, select };
}
