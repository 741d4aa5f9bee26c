"use strict";
const MAX_DRAWN = 200; // rows of a matrix; a larger one has cells smaller than pixels

/* The nonzero cells of a matrix, given by {row, column, count}, as [count, row, column]. */
const cellList = (cells) => cells.count.map((number, at) => [number, cells.row[at], cells.column[at]]);

/* Draws a confusion matrix whose cells can be chosen, unless it is too large.

   labels: names of rows (ground truth) and columns; cells(): the nonzero cells; open(row, column): lists the members of
   a cell. Returns {draw, select(row, column)}. */
function confusionMatrix({ labels, cells, open }) {
  const element = page.byId("matrix");
  const size = labels.length;
  if (size > MAX_DRAWN) {
    for (const id of ["matrix", "matrix-view"]) page.byId(id).hidden = true;
    return { draw: () => {}, select: open };
  }
  const view = () => document.querySelector("#matrix-view input:checked").value;
  const counts = () => {
    const rows = labels.map(() => labels.map(() => 0));
    for (const [number, row, column] of cellList(cells())) rows[row][column] = number;
    return rows;
  };
  const names = labels.map((name) => page.label(name));
  const numbered = size <= 25;
  let chosen = null;

  function shares(rows) {
    const columnSums = Array.from({ length: size }, (_, column) => rows.reduce((sum, row) => sum + row[column], 0));
    return rows.map((row) => {
      const sum = row.reduce((total, value) => total + value, 0);
      return row.map((value, column) => ({ ground_truth: page.ratio(value, sum), prediction: page.ratio(value, columnSums[column]) }));
    });
  }

  function describe(colors) {
    const rows = counts();
    const parts = shares(rows);
    const shown = view();
    const largest = Math.max(1, ...rows.map((row) => Math.max(...row)));
    const shade = (row, column) => {
      if (rows[row][column] === 0) return null;
      const share = shown === "counts" ? Math.log1p(rows[row][column]) / Math.log1p(largest) : parts[row][column][shown];
      return 0.12 + 0.88 * share; // a nonzero cell is always visible
    };
    const text = (row, column) => {
      const value = rows[row][column];
      return value === 0 ? "" : shown === "counts" ? page.count(value) : page.percent(parts[row][column][shown]);
    };
    const grid = (cell) => rows.map((_, row) => rows.map((_, column) => cell(row, column)));
    const hover = grid((row, column) =>
      `ground truth: ${names[row]}<br>prediction: ${names[column]}<br><b>${page.count(rows[row][column])}</b><br>` +
      `${page.percent(parts[row][column].ground_truth)} of this ground truth<br>${page.percent(parts[row][column].prediction)} of this prediction`);
    const trace = (onDiagonal, color) => ({
      type: "heatmap",
      z: grid((row, column) => ((row === column) === onDiagonal ? shade(row, column) : null)),
      zmin: 0, zmax: 1, showscale: false, hoverongaps: false, xgap: numbered ? 2 : 0, ygap: numbered ? 2 : 0,
      colorscale: [[0, colors.card], [1, color]],
      ...(numbered ? { text: grid((row, column) => ((row === column) === onDiagonal ? text(row, column) : "")), texttemplate: "%{text}", textfont: { color: colors.ink } } : {}),
      hovertext: hover, hovertemplate: "%{hovertext}<extra></extra>",
    });
    const under = {
      type: "heatmap", z: grid(() => 0), showscale: false, colorscale: [[0, colors.empty], [1, colors.empty]],
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
      data: [under, trace(true, colors.scale_tp), trace(false, colors.scale_fp)],
      layout: {
        height,
        xaxis: { ...axis, title: { text: "prediction", standoff: 12 }, tickangle: element.clientWidth / size < 90 ? -45 : 0 },
        yaxis: { ...axis, title: { text: "ground truth", standoff: 12 }, range: [size - 0.5, -0.5] },
        shapes: chosen === null ? [] : [{
          type: "rect", x0: chosen[1] - 0.5, x1: chosen[1] + 0.5, y0: chosen[0] - 0.5, y1: chosen[0] + 0.5,
          line: { color: colors.accent, width: 2.5 },
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
  page.byId("matrix-view").addEventListener("change", draw);
  return { draw, select };
}

/* Lists the members of a cell. cells: the nonzero cells; rows: table rows; order: of the rows, in words. */
function showCell({ row, column, title, cells, order, rows }) {
  const cell = page.byId("cell");
  const [total] = cellList(cells).find(([, r, c]) => r === row && c === column) || [0];
  cell.hidden = false;
  cell.dataset.cell = `${row},${column}`;
  page.byId("cell-row").value = String(row);
  page.byId("cell-column").value = String(column);
  page.byId("cell-title").textContent = title;
  page.byId("cell-summary").dataset.value = String(total);
  page.byId("cell-summary").textContent = total === 0 ? "This cell is empty." : page.shownPart(rows.length, total, order);
  page.byId("cell-table").hidden = total === 0;
  page.byId("cell-table").tBodies[0].replaceChildren(...rows);
}

/* The positions of a cell's members in an ascending list of cells. */
function membersOf(cells, wanted) {
  let low = 0;
  let high = cells.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cells[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  const positions = [];
  for (let at = low; cells[at] === wanted; at += 1) positions.push(at);
  return positions;
}

/* Fills the two selects of the cells and connects their button. */
function cellControls(rowNames, columnNames, select) {
  for (const [id, names] of [["cell-row", rowNames], ["cell-column", columnNames]]) {
    page.byId(id).append(...names.map((name, value) => page.make("option", { value }, name)));
  }
  page.byId("cell-open").addEventListener("click", () => {
    select(Number(page.byId("cell-row").value), Number(page.byId("cell-column").value));
    page.byId("cell").focus();
  });
}

/* Buttons that open the largest cells that are errors. name(row, column): text of a button. */
function topConfusions(cells, isError, name, select) {
  const top = cellList(cells).filter(([, row, column]) => isError(row, column)).sort((a, b) => b[0] - a[0] || a[1] - b[1] || a[2] - b[2]).slice(0, 10);
  page.byId("top-confusions").replaceChildren(...top.map(([number, row, column]) => {
    const button = page.make("button", { type: "button", class: "plain", "data-value": number }, `${name(row, column)}: ${page.count(number)}`);
    button.addEventListener("click", () => {
      select(row, column);
      page.byId("cell").focus();
    });
    return page.make("li", {}, button);
  }));
  page.byId("top-confusions").parentElement.hidden = top.length === 0;
}
