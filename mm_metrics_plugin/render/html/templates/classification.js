"use strict";
const { data, make, show, count, ratio } = page;
const byId = (id) => document.getElementById(id);
const { labels } = data;
const name = (index) => page.printable(labels[index]);
const MOST_DRAWN = 200; // a larger matrix has cells smaller than pixels
const KINDS = ["correct", "wrong", "missed"];
const margin = { l: 52, r: 12, t: 12, b: 44 };
const fixed = { automargin: false };

/* --- cells and the samples in them ------------------------------------------------------------------------------- */

function confusions() {
  const { row, column, count: amount } = data.cells;
  const totals = new Map(row.map((_, at) => [row[at] * data.columns + column[at], amount[at]]));
  const starts = new Map();
  data.cell.forEach((cell, at) => starts.has(cell) || starts.set(cell, at));

  const heading = (r, c) =>
    !data.single ? `${name(r)}: ${KINDS[c]}` : r === c ? `${name(r)}: correct` : `${name(r)} → ${name(c)}`;
  const rule = (r, c) => ((data.single ? r === c : c !== 1) ? "the lowest score first" : "the highest score first");

  function open(r, c) {
    const cell = r * data.columns + c;
    const total = totals.get(cell) || 0;
    const start = starts.get(cell) || 0;
    let end = start;
    while (data.cell[end] === cell) end += 1;
    byId("cell").hidden = false;
    byId("cell-row").value = String(r);
    byId("cell-column").value = String(c);
    byId("cell-title").textContent = heading(r, c);
    byId("cell-said").textContent =
      total === 0 ? "No sample is in this cell."
        : end - start < total ? `The first ${count(end - start)} of ${count(total)}, ${rule(r, c)}.` : `All ${count(total)}, ${rule(r, c)}.`;
    byId("cell-table").hidden = total === 0;
    const number = (value) => make("td", { class: "numeric", "data-value": value }, value.toFixed(4));
    byId("cell-table").tBodies[0].replaceChildren(...Array.from({ length: total ? end - start : 0 }, (_, step) => make("tr", {},
      make("td", { class: "name" }, page.printable(data.samples[data.sample[start + step]])),
      number(data.score[start + step]),
      data.true_score && number(data.true_score[start + step]))));
  }

  let select = open;
  if (data.single && labels.length <= MOST_DRAWN) {
    const rows = labels.map(() => labels.map(() => 0));
    row.forEach((_, at) => { rows[row[at]][column[at]] = amount[at]; });
    const view = () => document.querySelector("#matrix-view input:checked").value;
    const drawn = matrix({ element: byId("matrix"), labels, counts: () => rows, view, open });
    byId("matrix-view").addEventListener("change", drawn.draw);
    select = drawn.select;
  } else if (data.single) {
    byId("matrix").hidden = true;
    byId("matrix-view").hidden = true;
  }

  const options = (id, words) => byId(id).append(...words.map((word, value) => make("option", { value }, word)));
  options("cell-row", labels.map((_, index) => name(index)));
  options("cell-column", data.single ? labels.map((_, index) => name(index)) : KINDS);
  if (!data.single) byId("cell-column").value = "1";
  byId("cell-open").addEventListener("click", () => {
    select(Number(byId("cell-row").value), Number(byId("cell-column").value));
    byId("cell").focus();
  });

  const wrong = (at) => (data.single ? row[at] !== column[at] : column[at] !== 0);
  const top = row.map((_, at) => at).filter(wrong).sort((a, b) => amount[b] - amount[a] || a - b).slice(0, 10);
  byId("top-confusions").append(...top.map((at) => {
    const text = data.single ? `${name(row[at])} → ${name(column[at])}` : heading(row[at], column[at]);
    const button = make("button", { type: "button", class: "plain" }, `${text}: ${count(amount[at])}`);
    button.addEventListener("click", () => {
      select(row[at], column[at]);
      byId("cell").focus();
    });
    return make("li", {}, button);
  }));
  byId("top-confusions").parentElement.hidden = top.length === 0;
}

/* --- one class against the rest ----------------------------------------------------------------------------------- */

function thresholds() {
  const chosen = byId("curve-class");
  const slider = byId("threshold");
  const readout = Object.fromEntries([...byId("readout").querySelectorAll("[data-column]")].map((cell) => [cell.dataset.column, cell]));
  const curve = () => data.curves[Number(chosen.value)];
  const word = (value) => Number(value.toPrecision(4)).toString();
  /* Scores descend in the data; on the slider they rise. */
  const at = () => curve().thresholds.length - 1 - Number(slider.value);
  const best = () => curve().thresholds.indexOf(curve().youden);

  function counted(place) {
    const { tp, fp, positives, negatives } = curve();
    const right = place < 0 ? 0 : tp[place];
    const wrong = place < 0 ? 0 : fp[place];
    return {
      tp: right, fp: wrong, fn: positives - right, tn: negatives - wrong,
      recall: ratio(right, positives), specificity: ratio(negatives - wrong, negatives), fall_out: ratio(wrong, negatives),
      precision: ratio(right, right + wrong), f1: ratio(2 * right, right + wrong + positives),
    };
  }

  const along = () => curve().thresholds.map((_, place) => counted(place));
  const gap = (values) => values.map((value) => (Number.isNaN(value) ? null : value));
  const spot = (one, x, y, colour, symbol, words) => ({
    x: [one[x]], y: [one[y]], mode: "markers", marker: { color: colour, size: 11, symbol },
    hovertemplate: `${words}<br>%{x:.3f}, %{y:.3f}<extra></extra>`,
  });
  const chart = (x, y, titles, before, diagonal) => (colours) => {
    const found = [...before, ...along()];
    const scores = [...before.map(() => ""), ...curve().thresholds];
    return {
      data: [
        ...(diagonal ? [{ x: [0, 1], y: [0, 1], mode: "lines", line: { color: colours.soft, width: 1, dash: "dot" }, hoverinfo: "skip" }] : []),
        {
          x: gap(found.map((one) => one[x])), y: gap(found.map((one) => one[y])), customdata: scores, mode: "lines",
          line: { color: colours.accent, width: 2 }, hovertemplate: `${titles[0]} %{x:.3f}<br>${titles[1]} %{y:.3f}<br>from %{customdata:.4g} on<extra></extra>`,
        },
        ...(best() >= 0 ? [spot(counted(best()), x, y, colours.soft, "circle-open", "best by Youden")] : []),
        spot(counted(at()), x, y, colours.ink, "circle", "the slider"),
      ],
      layout: {
        showlegend: false, margin,
        xaxis: { ...fixed, title: { text: titles[0] }, range: [-0.01, 1.02] },
        yaxis: { ...fixed, title: { text: titles[1] }, range: [0, 1.03] },
      },
    };
  };
  const nothing = [{ recall: 0, fall_out: 0 }];
  const drawn = [
    page.plot(byId("roc"), chart("fall_out", "recall", ["false positive rate", "sensitivity"], nothing, true)),
    page.plot(byId("pr-curve"), chart("recall", "precision", ["recall", "precision"], [], false)),
  ];

  function move() {
    const { thresholds: scores } = curve();
    const now = counted(at());
    const text = scores.length ? word(scores[at()]) : "–";
    byId("threshold-shown").textContent = text;
    byId("threshold-shown").dataset.value = scores.length ? String(scores[at()]) : "";
    slider.setAttribute("aria-valuetext", text);
    for (const key of ["recall", "specificity", "precision", "f1"]) show(readout[key], now[key]);
    for (const key of ["tp", "fp", "fn", "tn"]) {
      readout[key].dataset.value = String(now[key]);
      readout[key].textContent = count(now[key]);
    }
  }

  function jump(place) {
    slider.value = String(curve().thresholds.length - 1 - place);
    move();
    drawn.forEach((draw) => draw());
  }

  function choose() {
    const number = curve().thresholds.length;
    slider.max = String(Math.max(0, number - 1));
    slider.disabled = number < 2;
    byId("youden").hidden = best() < 0;
    byId("youden").textContent = best() < 0 ? "" : `best by Youden (${word(curve().youden)})`;
    byId("no-curve").hidden = curve().positives > 0 && curve().negatives > 0;
    jump(Math.max(0, best()));
  }

  let waiting = 0;
  slider.addEventListener("input", () => {
    move();
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => drawn.forEach((draw) => draw()));
  });
  byId("youden").addEventListener("click", () => jump(best()));
  chosen.addEventListener("change", choose);
  choose();
}

/* --- calibration -------------------------------------------------------------------------------------------------- */

function calibration() {
  if (!data.calibration) return;
  const { edges, counts, accuracy, confidence } = data.calibration;
  const middles = counts.map((_, bin) => (edges[bin] + edges[bin + 1]) / 2);
  const widths = counts.map((_, bin) => (edges[bin + 1] - edges[bin]) * 0.94);
  const span = (bin) => `${page.percent(edges[bin])} to ${page.percent(edges[bin + 1])} confidence`;
  const bars = (y, colour, text) => ({
    type: "bar", x: middles, y, width: widths, marker: { color: colour }, hovertext: text, hovertemplate: "%{hovertext}<extra></extra>",
  });
  const layout = (title) => ({ showlegend: false, margin, xaxis: { ...fixed, title: { text: "confidence" }, range: [0, 1], tickformat: ".0%" }, yaxis: { ...fixed, title: { text: title }, rangemode: "tozero" } });
  page.plot(byId("reliability"), (colours) => {
    const own = layout("accuracy");
    const texts = counts.map((number, bin) =>
      `${span(bin)}: ${count(number)}<br>accuracy: ${page.percent(accuracy[bin])}<br>mean confidence: ${page.percent(confidence[bin])}`);
    return {
      data: [
        bars(accuracy, colours.scale_good, texts),
        { x: [0, 1], y: [0, 1], mode: "lines", line: { color: colours.soft, width: 1.5, dash: "dot" }, hoverinfo: "skip" },
        { x: confidence, y: accuracy, mode: "markers", marker: { color: colours.ink, size: 6 }, hoverinfo: "skip" },
      ],
      layout: { ...own, yaxis: { ...own.yaxis, range: [0, 1.02], tickformat: ".0%" } },
    };
  });
  page.plot(byId("confidences"), (colours) => ({
    data: [bars(counts, colours.accent, counts.map((number, bin) => `${span(bin)}: ${count(number)}`))],
    layout: layout("predictions"),
  }));
}

confusions();
thresholds();
calibration();
