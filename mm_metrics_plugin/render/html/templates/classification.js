"use strict";
const { byId, data, make, show, showCount, count, ratio, short } = page;
const { labels, single_label: singleLabel } = data;
const name = (label) => page.printable(labels[label]);
const DECISIONS = ["TP", "FP", "FN"]; // columns of the cells of a multi-label task
const margin = { l: 52, r: 12, t: 12, b: 44 };
const axis = { automargin: false };

/* --- cells and their samples ------------------------------------------------------------------------------------- */

function confusions() {
  const { cells } = data;
  const cellName = (row, column) =>
    !singleLabel ? `${name(row)}: ${DECISIONS[column]}` : row === column ? `${name(row)}: correct` : `${name(row)} → ${name(column)}`;
  const isError = (row, column) => (singleLabel ? row !== column : column !== 0);

  function open(row, column) {
    const cell = row * data.num_columns + column;
    const highestFirst = singleLabel ? row !== column : column === 1;
    const number = (value) => make("td", { class: "numeric", "data-value": value }, value.toFixed(4));
    showCell({
      row, column, cells, title: cellName(row, column),
      order: highestFirst ? "highest score first" : "lowest score first",
      rows: membersOf(data.cell, cell).map((at) => make("tr", {},
        make("td", { class: "name" }, page.printable(data.samples[data.sample[at]])),
        number(data.score[at]),
        data.true_score && number(data.true_score[at]))),
    });
  }

  const { select } = singleLabel ? confusionMatrix({ labels, cells: () => cells, open }) : { select: open };
  const names = labels.map((_, label) => name(label));
  cellControls(names, singleLabel ? names : DECISIONS, select);
  if (!singleLabel) byId("cell-column").value = "1";
  topConfusions(cells, isError, cellName, select);
}

/* --- one-vs-rest curves -------------------------------------------------------------------------------------------- */

function curves() {
  const select = byId("curve-class");
  const slider = byId("score-thr");
  const readout = page.columnCells(byId("readout"));
  const curve = () => data.curves[Number(select.value)];
  /* Scores descend in the data and ascend on the slider. */
  const position = () => curve().thresholds.length - 1 - Number(slider.value);
  const best = () => curve().thresholds.indexOf(curve().youden);

  function rates(place) {
    const { tp, fp, positives, negatives } = curve();
    const correct = place < 0 ? 0 : tp[place];
    const wrong = place < 0 ? 0 : fp[place];
    return {
      tp: correct, fp: wrong, fn: positives - correct, tn: negatives - wrong,
      recall: ratio(correct, positives), specificity: ratio(negatives - wrong, negatives), fpr: ratio(wrong, negatives),
      precision: ratio(correct, correct + wrong), f1: ratio(2 * correct, correct + wrong + positives),
    };
  }

  const chart = (x, y, titles, start, diagonal) => (colors) => {
    const points = [...start, ...curve().thresholds.map((_, place) => rates(place))];
    const mark = (place, color, symbol, words) => page.marker(rates(place)[x], rates(place)[y], color, symbol, words);
    return {
      data: [
        ...(diagonal ? [{ x: [0, 1], y: [0, 1], mode: "lines", line: { color: colors.soft, width: 1, dash: "dot" }, hoverinfo: "skip" }] : []),
        {
          x: page.gaps(points.map((point) => point[x])), y: page.gaps(points.map((point) => point[y])), mode: "lines",
          customdata: [...start.map(() => ""), ...curve().texts.map(short)], line: { color: colors.accent, width: 2 },
          hovertemplate: `${titles[0]} %{x:.3f}<br>${titles[1]} %{y:.3f}<br>score threshold %{customdata}<extra></extra>`,
        },
        ...(best() >= 0 ? [mark(best(), colors.soft, "circle-open", "Youden")] : []),
        mark(position(), colors.ink, "circle", "slider"),
      ],
      layout: {
        showlegend: false, margin,
        xaxis: { ...axis, title: { text: titles[0] }, range: [-0.01, 1.02] },
        yaxis: { ...axis, title: { text: titles[1] }, range: [0, 1.03] },
      },
    };
  };
  const charts = [
    page.plot(byId("roc"), chart("fpr", "recall", ["false positive rate", "sensitivity"], [{ recall: 0, fpr: 0 }], true)),
    page.plot(byId("pr-curve"), chart("recall", "precision", ["recall", "precision"], [], false)),
  ];
  const redraw = () => charts.forEach((draw) => draw());

  function move() {
    const threshold = curve().thresholds[position()];
    const current = rates(position());
    page.showThreshold(threshold, curve().texts[position()]);
    for (const key of ["recall", "specificity", "precision", "f1"]) show(readout[key], current[key]);
    for (const key of ["tp", "fp", "fn", "tn"]) showCount(readout[key], current[key]);
  }

  function moveTo(place) {
    slider.value = String(curve().thresholds.length - 1 - place);
    move();
    redraw();
  }

  function selectClass() {
    const number = curve().thresholds.length;
    slider.max = String(Math.max(0, number - 1));
    slider.disabled = number < 2;
    byId("youden").hidden = best() < 0;
    byId("youden").textContent = `best by Youden (${short(curve().texts[best()])})`;
    byId("no-curve").hidden = curve().positives > 0 && curve().negatives > 0;
    moveTo(Math.max(0, best()));
  }

  page.onSlide(move, redraw);
  byId("youden").addEventListener("click", () => moveTo(best()));
  select.addEventListener("change", selectClass);
  selectClass();
}

/* --- calibration -------------------------------------------------------------------------------------------------- */

function calibration() {
  if (!data.calibration) return;
  const { edges, counts, accuracy, confidence } = data.calibration;
  const middles = counts.map((_, bin) => (edges[bin] + edges[bin + 1]) / 2);
  const widths = counts.map((_, bin) => (edges[bin + 1] - edges[bin]) * 0.94);
  const range = (bin) => `${page.percent(edges[bin])} to ${page.percent(edges[bin + 1])} confidence`;
  const bars = (y, color, text) => ({
    type: "bar", x: middles, y, width: widths, marker: { color }, hovertext: text, hovertemplate: "%{hovertext}<extra></extra>",
  });
  const layout = (title, more = {}) => ({
    showlegend: false, margin,
    xaxis: { ...axis, title: { text: "confidence" }, range: [0, 1], tickformat: ".0%" },
    yaxis: { ...axis, title: { text: title }, rangemode: "tozero", ...more },
  });
  page.plot(byId("reliability"), (colors) => ({
    data: [
      bars(accuracy, colors.scale_tp, counts.map((number, bin) =>
        `${range(bin)}: ${count(number)}<br>accuracy: ${page.percent(accuracy[bin])}<br>mean confidence: ${page.percent(confidence[bin])}`)),
      { x: [0, 1], y: [0, 1], mode: "lines", line: { color: colors.soft, width: 1.5, dash: "dot" }, hoverinfo: "skip" },
      { x: confidence, y: accuracy, mode: "markers", marker: { color: colors.ink, size: 6 }, hoverinfo: "skip" },
    ],
    layout: layout("accuracy", { range: [0, 1.02], tickformat: ".0%" }),
  }));
  page.plot(byId("confidences"), (colors) => ({
    data: [bars(counts, colors.accent, counts.map((number, bin) => `${range(bin)}: ${count(number)}`))],
    layout: layout("predictions"),
  }));
}

confusions();
curves();
calibration();
