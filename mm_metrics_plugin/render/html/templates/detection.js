"use strict";
const { data, make, show, percent, count, ratio } = page;
const byId = (id) => document.getElementById(id);

/* --- the slider, the curves and the table of classes ------------------------------------------------------------ */

function classes() {
  const table = byId("class-table");
  const rows = [...table.tBodies[0].rows].map((row) => ({
    number: Number(row.dataset.class),
    cells: Object.fromEntries([...row.querySelectorAll("[data-column]")].map((cell) => [cell.dataset.column, cell])),
  }));
  const whole = (cell, value) => {
    cell.dataset.value = String(value);
    cell.textContent = count(value);
  };

  /* Fills the table with what values(class number) gives. */
  function fill(values) {
    for (const { number, cells } of rows) {
      const found = values(number);
      for (const name of ["ground_truths", "tp", "fp", "fn"]) whole(cells[name], found[name]);
      for (const name of ["precision", "recall", "f1"]) show(cells[name], found[name]);
    }
  }

  const chosen = byId("table-protocol");
  const protocol = () => data.protocols[chosen ? Number(chosen.value) : 0];
  const fixed = () => {
    const { columns } = protocol();
    fill((number) => Object.fromEntries(Object.keys(columns).map((name) => [name, columns[name][number]])));
  };
  if (!data.thresholds) {
    if (chosen) chosen.addEventListener("change", () => { fixed(); page.sortAgain(table); });
    return;
  }

  const { thresholds, ground_truths: gts, tp, fp, means, best, best_per_class: bestOf } = data.thresholds;
  const rates = (right, wrong, there) => ({
    tp: right, fp: wrong, fn: there - right, ground_truths: there,
    precision: ratio(right, right + wrong), recall: ratio(right, there), f1: ratio(2 * right, right + wrong + there),
  });
  const add = (numbers) => numbers.reduce((sum, value) => sum + value, 0);
  const ofClass = (number, place) => rates(tp[number][place], fp[number][place], gts[number]);
  const together = thresholds.map((_, place) =>
    rates(add(tp.map((row) => row[place])), add(fp.map((row) => row[place])), add(gts)));
  const place = (value) => thresholds.indexOf(value);

  const slider = byId("confidence");
  const shown = byId("confidence-shown");
  const readout = Object.fromEntries([...byId("readout").querySelectorAll("[data-column]")].map((cell) => [cell.dataset.column, cell]));
  const moves = () => !chosen || protocol().name === "coco";
  const word = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toString());

  /* --- curves --- */

  const curve = byId("curve-class");
  const line = () => (curve.value === "" ? together : thresholds.map((_, at) => ofClass(Number(curve.value), at)));
  const peak = () => (curve.value === "" ? best : bestOf[Number(curve.value)]);
  const at = () => Number(slider.value);
  const undefinedIsGap = (values) => values.map((value) => (Number.isNaN(value) ? null : value));

  const margin = { l: 44, r: 12, t: 40, b: 44 };
  const axis = { automargin: false };

  function againstConfidence(colours) {
    const found = line();
    const kinds = [["precision", colours.accent], ["recall", colours.good], ["f1", colours.bad]];
    const mark = (x, dash, colour) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: { color: colour, width: 1.5, dash } });
    return {
      data: kinds.map(([name, colour]) => ({
        x: thresholds, y: undefinedIsGap(found.map((one) => one[name])), name: name === "f1" ? "F1" : name,
        mode: "lines", line: { color: colour, width: 2 }, hovertemplate: "%{y:.3f} at %{x:.3f}",
      })),
      layout: {
        xaxis: { ...axis, title: { text: "score threshold" }, range: [thresholds[0], thresholds[thresholds.length - 1]] },
        yaxis: { ...axis, range: [0, 1.02] },
        legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom" },
        margin,
        shapes: [mark(thresholds[at()], "solid", colours.ink), ...(peak() === null ? [] : [mark(peak(), "dot", colours.soft)])],
        annotations: peak() === null ? [] : [{ x: peak(), y: 0.02, yref: "paper", text: "best F1", showarrow: false, xanchor: "left", yanchor: "bottom", font: { color: colours.soft, size: 11 } }],
      },
    };
  }

  function againstEachOther(colours) {
    const found = line();
    const here = found[at()];
    const sign = (one, colour, symbol, name) => ({
      x: [one.recall], y: [one.precision], mode: "markers", name, marker: { color: colour, size: 11, symbol },
      hovertemplate: `${name}<br>recall %{x:.3f}<br>precision %{y:.3f}<extra></extra>`,
    });
    return {
      data: [
        {
          x: undefinedIsGap(found.map((one) => one.recall)), y: undefinedIsGap(found.map((one) => one.precision)),
          mode: "lines", line: { color: colours.accent, width: 2 }, customdata: thresholds,
          hovertemplate: "recall %{x:.3f}<br>precision %{y:.3f}<br>at %{customdata:.3f}<extra></extra>",
        },
        ...(curve.value === "" && place(best) >= 0 ? [sign(found[place(best)], colours.soft, "circle-open", "best F1")] : []),
        sign(here, colours.ink, "circle", "the slider"),
      ],
      layout: {
        showlegend: false, margin,
        xaxis: { ...axis, title: { text: "recall" }, range: [0, 1.02] },
        yaxis: { ...axis, title: { text: "precision" }, range: [0, 1.02] },
      },
    };
  }

  /* --- moving --- */

  function move() {
    const now = at();
    const text = word(thresholds[now]);
    shown.textContent = text;
    shown.dataset.value = String(thresholds[now]);
    slider.setAttribute("aria-valuetext", text);
    for (const name of ["precision", "recall", "f1"]) {
      show(readout[name], means[name][now]);
      show(readout[`${name}_micro`], together[now][name]);
    }
    for (const name of ["tp", "fp", "fn"]) whole(readout[name], together[now][name]);
    if (moves()) fill((number) => ofClass(number, now));
  }
  slider.value = String(place(data.score));
  move();
  const drawn = [page.plot(byId("confidence-curves"), againstConfidence), page.plot(byId("pr-curve"), againstEachOther)];
  const redraw = () => drawn.forEach((draw) => draw());
  let waiting = 0;
  slider.addEventListener("input", () => {
    move();
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(redraw);
  });
  slider.addEventListener("change", () => page.sortAgain(table));
  const jump = (value) => {
    slider.value = String(place(value));
    slider.dispatchEvent(new Event("input"));
    slider.dispatchEvent(new Event("change"));
  };
  byId("as-reported").append(` (${word(data.score)})`);
  byId("as-reported").addEventListener("click", () => jump(data.score));
  byId("best").hidden = best === null;
  if (best !== null) byId("best").append(` (${word(best)})`);
  byId("best").addEventListener("click", () => jump(best));

  const say = () => {
    byId("best-said").textContent = peak() === null ? "No box is correct at any score threshold." : `Highest F1 at a score threshold of ${word(peak())}.`;
  };
  curve.addEventListener("change", () => { say(); redraw(); });
  say();
  if (chosen) {
    const note = byId("table-note");
    chosen.addEventListener("change", () => {
      note.textContent = moves() ? "" : `Counted at ${word(data.score)} only: the slider does not move it.`;
      if (moves()) move();
      else fixed();
      page.sortAgain(table);
    });
    if (!moves()) chosen.dispatchEvent(new Event("change"));
  }
}

/* --- the confusion matrix and its cells -------------------------------------------------------------------------- */

function confusions() {
  const { labels } = data;
  const background = labels.length - 1;
  const chosen = byId("matrix-protocol");
  const protocol = () => data.protocols[Number(chosen.value)];
  const view = () => document.querySelector("#matrix-view input:checked").value;
  const name = (index) => page.printable(labels[index]);

  /* Cells that are not 0, as [count, row, column]. Of many classes only these are given, and no matrix is drawn. */
  function filled() {
    const { matrix: rows, cells } = protocol();
    if (cells) return cells.count.map((number, at) => [number, cells.row[at], cells.column[at]]);
    return rows.flatMap((values, row) => values.flatMap((number, column) => (number ? [[number, row, column]] : [])));
  }

  function inCell(row, column) {
    const one = protocol();
    if (one.matrix) return one.matrix[row][column];
    if (!one.totals) one.totals = new Map(filled().map(([number, r, c]) => [r * labels.length + c, number]));
    return one.totals.get(row * labels.length + column) || 0;
  }

  /* Where a cell's members begin and end: cells ascend. */
  function members(row, column) {
    const { cell } = protocol();
    const wanted = row * labels.length + column;
    let low = 0;
    let high = cell.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (cell[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    let end = low;
    while (cell[end] === wanted) end += 1;
    return [low, end];
  }

  /* How two boxes lie to each other; nothing for one alone. */
  function sketch(truth, found, colour) {
    if (truth === null || found === null) return null;
    const boxes = [truth, found];
    const left = Math.min(...boxes.map((box) => box[0]));
    const top = Math.min(...boxes.map((box) => box[1]));
    const width = Math.max(...boxes.map((box) => box[0] + box[2])) - left || 1;
    const height = Math.max(...boxes.map((box) => box[1] + box[3])) - top || 1;
    const picture = make("svg", { class: "sketch", "aria-hidden": "true", viewBox: [left - width / 8, top - height / 8, 1.25 * width, 1.25 * height].join(" ") });
    const draw = (box, kind, stroke) => picture.append(make("rect", {
      class: kind, x: box[0], y: box[1], width: Math.max(0, box[2]), height: Math.max(0, box[3]), style: stroke && `stroke:var(--${stroke})`,
    }));
    draw(truth, "truth", null);
    draw(found, "found", colour);
    return picture;
  }

  /* What lies under a box: its object, or of a box without a match the object of the highest IoU and why there is no
     match. The types are those of functional/false_positives.py. */
  function underneath(there, type) {
    const object = there < 0 ? "" : name(data.objects.label[there]);
    if (type < 0) return object;
    if (type === 2) return object ? `background (closest: ${object})` : "background";
    return `${object}, already matched (${type === 1 ? "duplicate" : "confusion"})`;
  }

  const place = (box) => `${box[2]} × ${box[3]} at ${box[0]}, ${box[1]}`;

  function open(row, column) {
    const { detection, object, overlap, background_type: types } = protocol();
    const [start, end] = members(row, column);
    const total = inCell(row, column);
    const kind = row === column ? "right" : column === background ? "missed" : "wrong";
    byId("cell").hidden = false;
    byId("cell").dataset.cell = `${row},${column}`;
    byId("cell-truth").value = String(row);
    byId("cell-prediction").value = String(column);
    byId("cell-title").textContent =
      kind === "missed" ? `${name(row)}: missed`
        : row === background ? `${name(column)}: without a match`
          : kind === "right" ? `${name(row)}: correct` : `${name(row)} → ${name(column)}`;
    const rule = { right: "the lowest score first", missed: "the largest first", wrong: "the highest score first" }[kind];
    byId("cell-said").textContent =
      total === 0 ? "Nothing is in this cell."
        : end - start < total ? `The first ${count(end - start)} of ${count(total)}, ${rule}.` : `All ${count(total)}, ${rule}.`;
    const body = byId("cell-table").tBodies[0];
    byId("cell-table").hidden = total === 0;
    body.replaceChildren(...Array.from({ length: end - start }, (_, step) => {
      const found = detection[start + step];
      const there = object[start + step];
      const box = found < 0 ? null : data.detections.box[found];
      const truth = there < 0 ? null : data.objects.box[there];
      const image = found < 0 ? data.objects.image[there] : data.detections.image[found];
      const figure = byId(`picture-${data.image_numbers[image]}`);
      const text = page.printable(data.images[image]);
      const link = figure && make("a", { href: `#${figure.id}` }, text);
      if (link) link.addEventListener("click", () => figure.dispatchEvent(new Event("wanted")));
      return make("tr", {},
        make("td", { class: "name" }, link || text),
        make("td", { class: "name", title: truth && place(truth) }, underneath(there, types[start + step])),
        make("td", { class: "name", title: box && place(box) }, found < 0 ? "nothing" : name(data.detections.label[found])),
        make("td", { class: "numeric", "data-value": found < 0 ? "" : data.detections.score[found] }, found < 0 ? "–" : data.detections.score[found].toFixed(3)),
        make("td", { class: "numeric" }, overlap[start + step] === null ? "–" : overlap[start + step].toFixed(2)),
        make("td", {}, make("div", { class: "where" }, sketch(truth, box, kind === "right" ? "good" : "bad"), place(box || truth))));
    }));
  }

  const whole = Boolean(protocol().matrix);
  const drawn = whole
    ? matrix({ element: byId("matrix"), labels, counts: () => protocol().matrix, view, open })
    : { draw: () => {}, select: open };
  byId("matrix").hidden = !whole;
  byId("matrix-view").hidden = !whole;
  byId("matrix-view").addEventListener("change", drawn.draw);

  for (const [id, what] of [["cell-truth", "no match (background)"], ["cell-prediction", "missed (background)"]]) {
    byId(id).append(...labels.map((_, index) => make("option", { value: index }, index === background ? what : name(index))));
  }
  byId("cell-open").addEventListener("click", () => {
    drawn.select(Number(byId("cell-truth").value), Number(byId("cell-prediction").value));
    byId("cell").focus();
  });

  function top() {
    const cells = filled().filter(([, row, column]) => row !== column && row < background && column < background);
    cells.sort((a, b) => b[0] - a[0] || a[1] - b[1] || a[2] - b[2]);
    byId("top-confusions").replaceChildren(...cells.slice(0, 10).map(([number, row, column]) => {
      const button = make("button", { type: "button", class: "plain" }, `${name(row)} → ${name(column)}: ${count(number)}`);
      button.addEventListener("click", () => {
        drawn.select(row, column);
        byId("cell").focus();
      });
      return make("li", {}, button);
    }));
    byId("top-confusions").parentElement.hidden = cells.length === 0;
  }

  const typeTable = byId("fp-table");
  function falsePositives() {
    const { columns } = protocol();
    for (const row of typeTable.tBodies[0].rows) {
      for (const cell of row.querySelectorAll("[data-column]")) {
        const value = columns[cell.dataset.column][Number(row.dataset.class)];
        cell.dataset.value = String(value);
        cell.textContent = count(value);
      }
    }
    page.sortAgain(typeTable);
  }

  function changed() {
    falsePositives();
    byId("protocol-words").textContent = data.protocols.length > 1 ? `${protocol().name}: ${chosen.selectedOptions[0].title}.` : "";
    top();
  }
  chosen.addEventListener("change", () => {
    changed();
    drawn.draw();
    if (byId("cell").dataset.cell) open(...byId("cell").dataset.cell.split(",").map(Number));
  });
  changed();
}

/* --- the gallery -------------------------------------------------------------------------------------------------- */

function gallery() {
  const pictures = byId("pictures");
  if (!pictures) return;
  const order = () => document.querySelector("#gallery-order input:checked").value;
  function arrange() {
    const key = order();
    const figures = [...pictures.children];
    for (const figure of figures) figure.hidden = figure.dataset[key] === "";
    figures.sort((a, b) => Number(a.dataset[key]) - Number(b.dataset[key]));
    pictures.append(...figures);
  }
  byId("gallery-order").addEventListener("change", arrange);
  arrange();

  const dialog = byId("large");
  const stage = dialog.querySelector(".stage");
  function enlarge(figure) {
    const picture = figure.querySelector("svg").cloneNode(true);
    const [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
    const size = Math.max(width, height) / 45;
    picture.setAttribute("preserveAspectRatio", "xMidYMid meet");
    for (const box of [...picture.querySelectorAll("rect")]) {
      if (box.classList.contains("right")) continue;
      const y = Number(box.getAttribute("y"));
      picture.append(make("text", { x: box.getAttribute("x"), y: y > size ? y - size / 4 : y + size, "font-size": size, "stroke-width": size / 5 }, box.dataset.text));
    }
    byId("large-title").textContent = figure.querySelector(".name").textContent;
    stage.style.width = `min(100%, ${(78 * width) / height}vh)`;
    stage.replaceChildren(figure.querySelector("img").cloneNode(), picture);
    dialog.showModal();
  }
  for (const figure of pictures.children) {
    figure.querySelector("button").addEventListener("click", () => enlarge(figure));
    figure.addEventListener("wanted", () => {
      if (!figure.hidden) return;
      const other = [...document.querySelectorAll("#gallery-order input")].find((input) => !input.checked);
      other.checked = true;
      arrange();
    });
  }
}

classes();
confusions();
gallery();
