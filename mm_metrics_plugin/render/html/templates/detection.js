"use strict";
const { byId, data, make, show, showCount, count, ratio, short } = page;

/* Left, top, width and height of an SVG path of straight lines. */
function extent(path) {
  const points = path.split(/[ML]/).slice(1).map((point) => point.split(" ").map(Number));
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  const round = (value) => Number(value.toFixed(1));
  return [Math.min(...xs), Math.min(...ys), round(Math.max(...xs) - Math.min(...xs)), round(Math.max(...ys) - Math.min(...ys))];
}

/* --- slider, curves and table of classes ------------------------------------------------------------------------ */

function classes() {
  const table = byId("class-table");
  const rows = [...table.tBodies[0].rows].map((row) => ({ label: Number(row.dataset.row), cells: page.columnCells(row) }));

  /* Fills the table with values(label). */
  function fill(values) {
    for (const { label, cells } of rows) {
      const row = values(label);
      for (const name of ["ground_truths", "tp", "fp", "fn"]) showCount(cells[name], row[name]);
      for (const name of ["precision", "recall", "f1"]) show(cells[name], row[name]);
    }
  }

  const select = byId("table-matching");
  const rule = () => data.matching_rules[select ? Number(select.value) : 0];
  const fillAsReported = () => {
    const { columns } = rule();
    fill((label) => Object.fromEntries(Object.keys(columns).map((name) => [name, columns[name][label]])));
  };
  if (!data.thresholds) {
    if (select) select.addEventListener("change", () => { fillAsReported(); page.sortAgain(table); });
    return;
  }

  const { thresholds, texts, ground_truths: gts, tp, fp, means, best, best_per_class: bestPerClass } = data.thresholds;
  const rates = (correct, wrong, objects) => ({
    tp: correct, fp: wrong, fn: objects - correct, ground_truths: objects,
    precision: ratio(correct, correct + wrong), recall: ratio(correct, objects), f1: ratio(2 * correct, correct + wrong + objects),
  });
  const sum = (numbers) => numbers.reduce((total, value) => total + value, 0);
  const ofClass = (label, place) => rates(tp[label][place], fp[label][place], gts[label]);
  const micro = thresholds.map((_, place) => rates(sum(tp.map((row) => row[place])), sum(fp.map((row) => row[place])), sum(gts)));

  const slider = byId("score-thr");
  const readout = Object.fromEntries([...byId("readout").tBodies[0].rows].map((row) => [row.dataset.average, page.columnCells(row)]));
  const followsSlider = () => !select || rule().follows_threshold;

  /* --- curves --- */

  const curveClass = byId("curve-class");
  const curve = () => (curveClass.value === "" ? micro : thresholds.map((_, place) => ofClass(Number(curveClass.value), place)));
  const bestThreshold = () => (curveClass.value === "" ? best : bestPerClass[Number(curveClass.value)]);
  const bestText = () => short(curveClass.value === "" ? data.thresholds.best_text : data.thresholds.best_texts[Number(curveClass.value)]);
  const position = () => Number(slider.value);
  const margin = { l: 44, r: 12, t: 40, b: 44 };
  const axis = { automargin: false };

  function thresholdCurves(colors) {
    const points = curve();
    const peak = bestThreshold();
    const line = (x, dash, color) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: { color, width: 1.5, dash } });
    return {
      data: [["precision", colors.accent], ["recall", colors.tp], ["f1", colors.fp]].map(([name, color]) => ({
        x: thresholds, y: page.gaps(points.map((point) => point[name])), name: name === "f1" ? "F1" : name,
        mode: "lines", line: { color, width: 2 }, customdata: texts.map(short), hovertemplate: "%{y:.3f} at %{customdata}",
      })),
      layout: {
        xaxis: { ...axis, title: { text: "score threshold" }, range: [thresholds[0], thresholds[thresholds.length - 1]] },
        yaxis: { ...axis, range: [0, 1.02] },
        legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom" },
        margin,
        shapes: [line(thresholds[position()], "solid", colors.ink), ...(peak === null ? [] : [line(peak, "dot", colors.soft)])],
        annotations: peak === null ? [] : [{ x: peak, y: 0.02, yref: "paper", text: "best F1", showarrow: false, xanchor: "left", yanchor: "bottom", font: { color: colors.soft, size: 11 } }],
      },
    };
  }

  function prCurve(colors) {
    const points = curve();
    const peak = points[thresholds.indexOf(bestThreshold())];
    const current = points[position()];
    return {
      data: [
        {
          x: page.gaps(points.map((point) => point.recall)), y: page.gaps(points.map((point) => point.precision)),
          mode: "lines", line: { color: colors.accent, width: 2 }, customdata: texts.map(short),
          hovertemplate: "recall %{x:.3f}<br>precision %{y:.3f}<br>at %{customdata}<extra></extra>",
        },
        ...(curveClass.value === "" && peak ? [page.marker(peak.recall, peak.precision, colors.soft, "circle-open", "best F1")] : []),
        page.marker(current.recall, current.precision, colors.ink, "circle", "slider"),
      ],
      layout: {
        showlegend: false, margin,
        xaxis: { ...axis, title: { text: "recall" }, range: [0, 1.02] },
        yaxis: { ...axis, title: { text: "precision" }, range: [0, 1.02] },
      },
    };
  }

  function frocCurve(colors) {
    const points = curve();
    const current = points[position()];
    const ticks = [0.125, 0.25, 0.5, 1, 2, 4, 8];
    return {
      data: [
        {
          x: points.map((point) => point.fp / data.num_images), y: page.gaps(points.map((point) => point.recall)),
          mode: "lines", line: { color: colors.accent, width: 2 }, customdata: texts.map(short),
          hovertemplate: "%{x:.3f} false positives per image<br>sensitivity %{y:.3f}<br>at %{customdata}<extra></extra>",
        },
        page.marker(current.fp / data.num_images, current.recall, colors.ink, "circle", "slider"),
      ],
      layout: {
        showlegend: false, margin,
        xaxis: { ...axis, type: "log", title: { text: "false positives per image" }, range: [Math.log10(0.125), Math.log10(8)], tickvals: ticks, ticktext: ticks.map(String) },
        yaxis: { ...axis, title: { text: "sensitivity" }, range: [0, 1.02] },
      },
    };
  }

  /* --- moving the slider --- */

  function move() {
    const place = position();
    page.showThreshold(thresholds[place], texts[place]);
    for (const name of ["precision", "recall", "f1"]) {
      show(readout.macro[name], means[name][place]);
      show(readout.micro[name], micro[place][name]);
    }
    for (const name of ["tp", "fp", "fn"]) showCount(readout.micro[name], micro[place][name]);
    if (followsSlider()) fill((label) => ofClass(label, place));
  }
  slider.value = String(thresholds.indexOf(data.score_thr));
  move();
  const charts = [page.plot(byId("threshold-curves"), thresholdCurves), page.plot(byId("pr-curve"), prCurve)];
  if (byId("froc-curve")) charts.push(page.plot(byId("froc-curve"), frocCurve));
  const redraw = () => charts.forEach((draw) => draw());
  page.onSlide(move, redraw);
  slider.addEventListener("change", () => page.sortAgain(table));
  const moveTo = (threshold) => {
    slider.value = String(thresholds.indexOf(threshold));
    slider.dispatchEvent(new Event("input"));
    slider.dispatchEvent(new Event("change"));
  };
  byId("as-reported").append(` (${short(data.score_thr)})`);
  byId("as-reported").addEventListener("click", () => moveTo(data.score_thr));
  byId("best").hidden = best === null;
  byId("best").append(` (${short(data.thresholds.best_text)})`);
  byId("best").addEventListener("click", () => moveTo(best));

  const showBest = () => {
    byId("best-threshold").textContent =
      bestThreshold() === null ? "No detection is correct at any score threshold." : `Highest F1 at a score threshold of ${bestText()}.`;
  };
  curveClass.addEventListener("change", () => { showBest(); redraw(); });
  showBest();
  if (select) {
    select.addEventListener("change", () => {
      byId("table-note").textContent = followsSlider() ? "" : `At a score threshold of ${short(data.score_thr)} only: the table does not follow the slider.`;
      if (followsSlider()) move();
      else fillAsReported();
      page.sortAgain(table);
    });
    if (!followsSlider()) select.dispatchEvent(new Event("change"));
  }
}

/* --- confusion matrix and its cells ------------------------------------------------------------------------------ */

function confusions() {
  const { labels, detections, ground_truths: gts } = data;
  const background = labels.length - 1;
  const select = byId("matrix-matching");
  const rule = () => data.matching_rules[Number(select.value)];
  const name = (label) => page.printable(labels[label]);

  /* Draws the outlines of a ground truth and a detection, either of which may be missing. */
  function sketch(gt, det, css) {
    if (!gt && !det) return null;
    const [left, top, width, height] = extent((gt || "") + (det || ""));
    const viewBox = [left - width / 8, top - height / 8, 1.25 * width || 1, 1.25 * height || 1].join(" ");
    return make("svg", { class: "sketch", "aria-hidden": "true", viewBox },
      gt ? make("path", { class: det ? "gt" : css, d: gt }) : null, det ? make("path", { class: css, d: det }) : null);
  }

  /* The ground truth of a member. A detection without a match has the ground truth of the highest overlap, and why
     there is no match: the types of false positives in functional/detection. */
  function groundTruth(gt, type) {
    const object = gt < 0 ? "" : name(gts.label[gt]);
    if (type < 0) return object;
    if (type === 2) return object ? `background (closest: ${object})` : "background";
    return `${object}, already matched (${type === 1 ? "duplicate" : "confusion"})`;
  }

  const sizeText = (path) => {
    const [left, top, width, height] = extent(path);
    return `${width} × ${height} at ${left}, ${top}`;
  };

  function memberRow(at, css) {
    const { detection, ground_truth: groundTruths, overlap, background_type: types } = rule();
    const det = detection[at];
    const gt = groundTruths[at];
    const detPath = det < 0 ? null : detections.path[det];
    const gtPath = gt < 0 ? null : gts.path[gt];
    const image = det < 0 ? gts.image[gt] : detections.image[det];
    const figure = byId(`image-${data.images[image]}`);
    const text = page.printable(data.image_names[image]);
    const link = figure && make("a", { href: `#${figure.id}` }, text);
    if (link) link.addEventListener("click", () => figure.dispatchEvent(new Event("reveal")));
    return make("tr", { "data-area": gt < 0 ? null : gts.area[gt] },
      make("td", { class: "name" }, link || text),
      make("td", { class: "name", title: gtPath && sizeText(gtPath), "data-type": types[at] }, groundTruth(gt, types[at])),
      make("td", { class: "name", title: detPath && sizeText(detPath) }, det < 0 ? "none" : name(detections.label[det])),
      make("td", { class: "numeric", "data-value": det < 0 ? "" : detections.score[det] }, det < 0 ? "–" : detections.score[det].toFixed(3)),
      make("td", { class: "numeric" }, overlap[at] === null ? "–" : overlap[at].toFixed(2)),
      make("td", {}, make("div", { class: "instances" }, sketch(gtPath, detPath, css), detPath || gtPath ? sizeText(detPath || gtPath) : "")));
  }

  function open(row, column) {
    const css = row === column ? "tp" : column === background ? "fn" : "fp";
    const title = css === "fn" ? `${name(row)}: missed` : row === background ? `${name(column)}: without a match`
      : css === "tp" ? `${name(row)}: correct` : `${name(row)} → ${name(column)}`;
    const order = { tp: "lowest score first", fn: "largest first", fp: "highest score first" }[css];
    const rows = membersOf(rule().cell, row * labels.length + column).map((at) => memberRow(at, css));
    showCell({ row, column, title, order, cells: rule().cells, rows });
  }

  const chart = confusionMatrix({ labels, cells: () => rule().cells, open });
  const names = (last) => labels.map((_, label) => (label === background ? last : name(label)));
  cellControls(names("no match (background)"), names("missed (background)"), chart.select);

  const typeTable = byId("fp-table");
  function showRule() {
    const { columns, name: matching } = rule();
    for (const row of typeTable.tBodies[0].rows) {
      for (const [column, cell] of Object.entries(page.columnCells(row))) showCount(cell, columns[column][Number(row.dataset.row)]);
    }
    page.sortAgain(typeTable);
    byId("matching-words").textContent = data.matching_rules.length > 1 ? `${matching}: ${select.selectedOptions[0].title}.` : "";
    const isConfusion = (row, column) => row !== column && row < background && column < background;
    topConfusions(rule().cells, isConfusion, (row, column) => `${name(row)} → ${name(column)}`, chart.select);
  }
  select.addEventListener("change", () => {
    showRule();
    chart.draw();
    if (byId("cell").dataset.cell) open(...byId("cell").dataset.cell.split(",").map(Number));
  });
  showRule();
}

/* --- gallery ------------------------------------------------------------------------------------------------------ */

function gallery() {
  const images = byId("images");
  if (!images) return;
  function arrange() {
    const key = document.querySelector("#gallery-order input:checked").value;
    const figures = [...images.children];
    for (const figure of figures) figure.hidden = figure.dataset[key] === "";
    figures.sort((a, b) => Number(a.dataset[key]) - Number(b.dataset[key]));
    images.append(...figures);
  }
  byId("gallery-order").addEventListener("change", arrange);
  arrange();

  const dialog = byId("enlarged");
  const stage = dialog.querySelector(".stage");
  function enlarge(figure) {
    const shapes = figure.querySelector("svg").cloneNode(true);
    const [, , width, height] = shapes.getAttribute("viewBox").split(" ").map(Number);
    const size = Math.max(width, height) / 45;
    shapes.setAttribute("preserveAspectRatio", "xMidYMid meet");
    for (const shape of [...shapes.querySelectorAll('path:not(.tp):not([d=""])')]) {
      const [x, y] = extent(shape.getAttribute("d"));
      shapes.append(make("text", { x, y: y > size ? y - size / 4 : y + size, "font-size": size, "stroke-width": size / 5 }, shape.dataset.text));
    }
    byId("enlarged-title").textContent = figure.querySelector(".name").textContent;
    stage.style.width = `min(100%, ${(78 * width) / height}vh)`;
    stage.replaceChildren(figure.querySelector("img").cloneNode(), shapes);
    dialog.showModal();
  }
  for (const figure of images.children) {
    figure.querySelector("button").addEventListener("click", () => enlarge(figure));
    figure.addEventListener("reveal", () => {
      if (!figure.hidden) return;
      document.querySelector("#gallery-order input:not(:checked)").checked = true;
      arrange();
    });
  }
}

classes();
confusions();
gallery();
