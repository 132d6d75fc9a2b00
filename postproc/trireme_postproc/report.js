// SPDX-License-Identifier: Apache-2.0
// The pictures of a report: curves and the timeline of a step, as SVG. Moving the pointer over one shows its values, dragging zooms, a double click or the
// button shows everything again. Texts come from files of others: they reach the page as text nodes and attributes only.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ink = "var(--ink)", line = "var(--line)", paper = "var(--paper)";  // report.css: light or dark, as the browser prefers

  function make(name, attributes, parent, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function element(name, parent, text, className) {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    parent.appendChild(node);
    return node;
  }

  // Colours are chosen for white paper. On a dark page those with a contrast below 3 (WCAG 2.1, for pictures) are mixed with white until they have it.
  const darkly = window.matchMedia("(prefers-color-scheme: dark)");
  darkly.addEventListener("change", () => location.reload());
  function visible(colour) {
    if (!darkly.matches) return colour;
    const linear = (part) => part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
    const luminance = (parts) => 0.2126 * linear(parts[0]) + 0.7152 * linear(parts[1]) + 0.0722 * linear(parts[2]);
    const parse = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16) / 255);
    const background = luminance(parse(getComputedStyle(document.documentElement).getPropertyValue("--paper").trim()));
    let parts = parse(colour);
    while ((luminance(parts) + 0.05) / (background + 0.05) < 3) parts = parts.map((part) => part + 0.05 * (1 - part));
    return "#" + parts.map((part) => Math.round(255 * part).toString(16).padStart(2, "0")).join("");
  }
  for (const chart of data.charts) for (const one of chart.series) one.colour = visible(one.colour);
  for (const step of data.timelines) {
    for (const entry of step.legend) entry[1] = visible(entry[1]);
    for (const row of step.rows) for (const bar of row.bars) bar[2] = visible(bar[2]);
  }
  for (const node of document.querySelectorAll("rect.bar")) node.setAttribute("fill", visible(node.getAttribute("fill")));

  // At most `count` round numbers in [low, high], not closer to each other than `least`.
  function ticks(low, high, count, least) {
    const raw = Math.max((high - low) / count, 1e-300), power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = Math.max([1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw) || raw, least || 0);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9 && found.length < 50; ++i) found.push(i * step);
    return { values: found, decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  }

  const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  function tickText(value, decimals) {
    if (Math.abs(value) >= 1e4)
      for (const [factor, prefix] of prefixes)
        if (Math.abs(value) >= factor) return String(Number((value / factor).toPrecision(6))) + " " + prefix;
    return decimals > 4 ? value.toExponential(1) : value.toFixed(decimals);
  }

  function full(value) {
    if (Number.isInteger(value)) return value.toLocaleString("en").replace(/,/g, " ");
    return Math.abs(value) >= 1e-3 && Math.abs(value) < 1e9 ? String(Number(value.toPrecision(6))) : value.toExponential(4);
  }

  // A drawing with an axis to the right that can be zoomed. `draw(frame)` fills frame.plot, `widest` is the
  // room for labels on the left of a wide page, `hover(frame, x, y)` returns lines for the box, `extent()` the
  // whole range of the axis.
  class Frame {
    constructor(parent, options) {
      Object.assign(this, options);
      this.range = null;
      this.place = element("div", parent, undefined, "frame");
      this.svg = make("svg", { role: "img", "aria-label": this.title }, this.place);
      this.box = element("div", this.place, undefined, "box");
      this.box.hidden = true;
      this.button = element("button", this.place, "show all", "reset");
      this.button.hidden = true;
      this.button.addEventListener("click", () => this.zoom(null));
      this.svg.addEventListener("dblclick", () => this.zoom(null));
      this.svg.addEventListener("pointerdown", (event) => this.press(event));
      this.svg.addEventListener("pointermove", (event) => this.move(event));
      this.svg.addEventListener("pointerup", (event) => this.release(event));
      this.svg.addEventListener("pointercancel", () => { this.pressed = undefined; this.leave(); });  // a touch that scrolls the page
      this.svg.addEventListener("pointerleave", (event) => { if (this.pressed === undefined && event.pointerType === "mouse") this.leave(); });
      window.addEventListener("resize", () => { if (this.roomy() !== this.width) this.redraw(); });
      this.redraw();
    }

    // In units of the drawing, which are pixels up to a page of the usual width.
    roomy() { return Math.min(900, Math.max(320, Math.round(this.place.clientWidth))); }
    get inner() { return this.width - this.left - this.right; }
    get lower() { return this.height - this.bottom; }
    toX(value) { return this.left + (value - this.low) / (this.high - this.low) * this.inner; }
    fromX(x) { return this.low + (x - this.left) / this.inner * (this.high - this.low); }

    zoom(range) {
      this.range = range;
      this.button.hidden = !range;
      this.redraw();
    }

    redraw() {
      this.leave();
      this.svg.replaceChildren();
      this.width = this.roomy();
      this.left = Math.min(this.widest, Math.round(0.26 * this.width));
      this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
      [this.low, this.high] = this.range || this.extent();
      if (!(this.high > this.low)) { this.low -= 0.5; this.high += 0.5; }
      const found = ticks(this.low, this.high, Math.min(8, this.inner / 75), this.least);
      for (const value of found.values) {
        const x = this.toX(value);
        make("line", { x1: x, x2: x, y1: this.top, y2: this.lower, stroke: line }, this.svg);
        make("text", { x, y: this.lower + 16, "text-anchor": "middle" }, this.svg, tickText(value, found.decimals));
      }
      make("text", { x: this.left + this.inner / 2, y: this.height - 4, "text-anchor": "middle" }, this.svg, this.xLabel());
      const id = "clip-" + this.name, clip = make("clipPath", { id }, make("defs", {}, this.svg));
      const room = 3;  // for half a mark at the edge
      make("rect", { x: this.left - room, y: this.top - room, width: this.inner + 2 * room, height: this.lower - this.top + 2 * room }, clip);
      this.plot = make("g", { "clip-path": `url(#${id})` }, this.svg);
      this.draw(this);
      make("line", { x1: this.left, x2: this.left + this.inner, y1: this.lower, y2: this.lower, stroke: ink }, this.svg);
      this.marks = make("g", { "pointer-events": "none" }, this.svg);
    }

    where(event) {
      const rect = this.svg.getBoundingClientRect();
      const x = (event.clientX - rect.left) * this.width / rect.width, y = (event.clientY - rect.top) * this.height / rect.height;
      return { x: Math.min(Math.max(x, this.left), this.left + this.inner), y, inside: x >= this.left && x <= this.left + this.inner && y <= this.lower };
    }

    press(event) {
      const at = this.where(event);
      if (event.button !== 0 || !at.inside) return;
      this.pressed = at.x;
      this.svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    }

    move(event) {
      const at = this.where(event);
      this.leave();
      if (this.pressed !== undefined) {
        make("rect", { x: Math.min(at.x, this.pressed), y: this.top, width: Math.abs(at.x - this.pressed), height: this.lower - this.top, fill: "#0072B2",
                       opacity: 0.15 }, this.marks);
        return;
      }
      const lines = at.inside ? this.hover(this, at.x, at.y) : [];
      if (!lines.length) return;
      this.box.hidden = false;
      for (const [text, colour] of lines) {
        const row = element("div", this.box, text);
        if (colour) row.style.borderLeft = "0.6em solid " + colour;
      }
      const share = at.x / this.width;
      this.box.style.left = share < 0.5 ? 100 * share + 2 + "%" : "auto";
      this.box.style.right = share < 0.5 ? "auto" : 100 * (1 - share) + 2 + "%";
    }

    release(event) {
      if (this.pressed === undefined) return;
      const at = this.where(event), from = this.pressed;
      this.pressed = undefined;
      if (Math.abs(at.x - from) > 5) this.zoom([this.fromX(Math.min(at.x, from)), this.fromX(Math.max(at.x, from))]);
      else this.move(event);  // a tap shows the values until the next one
    }

    leave() {
      this.box.hidden = true;
      this.box.replaceChildren();
      if (this.marks) this.marks.replaceChildren();
    }
  }

  // Position of the value that is nearest to x in an ascending list.
  function nearest(values, x) {
    let low = 0, high = values.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (values[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
  }

  // The line of a curve, or a filled box, before its name.
  function sample(parent, colour, width, dash) {
    const svg = make("svg", { width: 24, height: 10, "aria-hidden": "true" }, parent);
    make("line", { x1: 0, x2: 20, y1: 5, y2: 5, stroke: colour, "stroke-width": width, "stroke-dasharray": dash || "none" }, svg);
  }

  function curves(chart, parent, name) {
    let axis = chart.axes[0];
    const hidden = new Set();
    const head = element("div", parent, undefined, "legend");
    const shown = () => chart.series.filter((one) => !hidden.has(one.name) && one.x[axis.key] && one.x[axis.key].length);
    const frame = new Frame(parent, {
      name, title: chart.title, height: 300, widest: 70, right: 14, top: 10, bottom: 36, least: 1,  // no parts of steps or tokens
      xLabel: () => axis.label,
      extent: () => {
        let low = Infinity, high = -Infinity;
        for (const one of shown()) { low = Math.min(low, one.x[axis.key][0]); high = Math.max(high, one.x[axis.key][one.y.length - 1]); }
        return low <= high ? [low, high] : [0, 1];
      },
      draw: (at) => drawCurves(at, shown(), chart, axis),
      hover: (at, x) => {
        const lines = [], wanted = at.fromX(x);
        let place;
        for (const one of shown()) {
          const xs = one.x[axis.key], i = nearest(xs, wanted);
          if (one.faint || one.y[i] === null || xs[i] < at.low || xs[i] > at.high) continue;
          if (!one.marks && Math.abs(xs[i] - wanted) > 0.02 * (at.high - at.low) && (i === 0 || i === xs.length - 1)) continue;  // beyond the curve
          if (place === undefined || Math.abs(xs[i] - wanted) < Math.abs(place - wanted)) place = xs[i];
          const error = one.error && one.error[i] !== null ? " ± " + full(one.error[i]) : "";
          const other = one.marks ? ` (${axis.label} ${full(xs[i])})` : "";
          lines.push([`${one.name}: ${full(one.y[i])}${error} ${one.unit}${other}`, one.colour]);
          make("circle", { cx: at.toX(xs[i]), cy: at.toY(one.y[i]), r: 3.5, fill: one.colour }, at.marks);
        }
        if (lines.length) {
          make("line", { x1: at.toX(place), x2: at.toX(place), y1: at.top, y2: at.lower, stroke: ink, "stroke-dasharray": "3 3" }, at.marks);
          lines.unshift([`${axis.label} ${full(place)}`, null]);
        }
        return lines;
      },
    });
    for (const one of chart.series.filter((series) => !series.faint)) {
      const entry = element("button", head, undefined, "entry");
      sample(entry, one.colour, 3, one.dash);
      entry.append(one.name);
      entry.addEventListener("click", () => {
        if (!hidden.delete(one.name)) hidden.add(one.name);
        entry.classList.toggle("off", hidden.has(one.name));
        frame.redraw();
      });
    }
    if (chart.axes.length > 1) {
      const choice = element("select", head);
      for (const one of chart.axes) element("option", choice, "over " + one.label);
      choice.addEventListener("change", () => { axis = chart.axes[choice.selectedIndex]; frame.zoom(null); });
    }
  }

  function drawCurves(frame, shown, chart, axis) {
    let low = Infinity, high = -Infinity;
    for (const one of shown)
      one.y.forEach((value, i) => {
        const x = one.x[axis.key][i];
        if (value === null || x < frame.low || x > frame.high) return;
        const error = one.error && one.error[i] || 0;
        low = Math.min(low, value - error);
        high = Math.max(high, value + error);
      });
    if (!(low <= high)) { make("text", { x: frame.width / 2, y: frame.height / 2, "text-anchor": "middle" }, frame.svg, "nothing recorded here"); low = 0; high = 1; }
    if (chart.zero) low = Math.min(0, low);
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    if (!chart.zero) low -= room;
    high += room;
    frame.toY = (value) => frame.lower - (value - low) / (high - low) * (frame.lower - frame.top);
    const found = ticks(low, high, 6);
    for (const value of found.values) {
      const y = frame.toY(value);
      make("line", { x1: frame.left, x2: frame.left + frame.inner, y1: y, y2: y, stroke: line }, frame.plot);
      make("text", { x: frame.left - 6, y: y + 4, "text-anchor": "end" }, frame.svg, tickText(value, found.decimals));
    }
    make("text", { transform: `translate(13 ${(frame.top + frame.lower) / 2}) rotate(-90)`, "text-anchor": "middle" }, frame.svg, chart.y);
    for (const one of shown) {
      let path = "", pen = "M";
      one.y.forEach((value, i) => {
        if (value === null) { pen = "M"; return; }
        const x = frame.toX(one.x[axis.key][i]).toFixed(2), y = frame.toY(value).toFixed(2);
        path += pen + x + " " + y;
        pen = "L";
        if (one.marks) make("circle", { cx: x, cy: y, r: 2.8, fill: one.colour }, frame.plot);
        if (one.error && one.error[i])
          make("line", { x1: x, x2: x, y1: frame.toY(value - one.error[i]), y2: frame.toY(value + one.error[i]), stroke: one.colour, class: "error" }, frame.plot);
      });
      make("path", { d: path, fill: "none", stroke: one.colour, "stroke-width": one.faint ? 0.8 : 1.8, opacity: one.faint ? 0.35 : 1,
                     "stroke-dasharray": one.dash || "none", "stroke-linejoin": "round" }, frame.plot);
    }
  }

  // Of span_looks.py: lines or points in a square of 6.
  const hatches = { "//": "M0 6L6 0M-1 1L1 -1M5 7L7 5", "\\\\": "M0 0L6 6M5 -1L7 1M-1 5L1 7", "||": "M3 0V6", "..": "M2 3H4", "xx": "M0 6L6 0M0 0L6 6" };

  // What fills a span: its colour, or a pattern of it, which is added to the drawing where it is not there yet.
  function paint(svg, name, colour, hatch) {
    if (!hatches[hatch]) return colour;
    const id = `${name}-${colour.slice(1)}-${Object.keys(hatches).indexOf(hatch)}`;
    if (!svg.querySelector("#" + id)) {
      const pattern = make("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse" }, make("defs", {}, svg));
      make("rect", { width: 6, height: 6, fill: colour }, pattern);
      make("path", { d: hatches[hatch], stroke: paper, "stroke-width": 1.4 }, pattern);
    }
    return `url(#${id})`;
  }

  function timeline(step, parent, name) {
    const head = element("div", parent, undefined, "legend"), row = 22;
    for (const [text, colour, hatch] of step.legend) {
      const entry = element("span", head, undefined, "entry");
      const svg = make("svg", { width: 24, height: 10, "aria-hidden": "true" }, entry);
      make("rect", { width: 20, height: 10, fill: paint(svg, name + "-legend", colour, hatch) }, svg);
      entry.append(text);
    }
    new Frame(parent, {
      name, title: step.title, height: 46 + row * step.rows.length, widest: 150, right: 14, top: 6, bottom: 40,
      xLabel: () => step.axis,
      extent: () => step.extent,
      draw: (at) => step.rows.forEach((one, i) => {
        const y = at.top + row * i;
        if (one.bold && i) make("line", { x1: 0, x2: at.width, y1: y, y2: y, stroke: line }, at.svg);
        make("text", { x: at.left - 6, y: y + 15, "text-anchor": "end", "font-weight": one.bold ? "bold" : "normal" }, at.svg, one.label);
        for (const [begin, length, colour, , thin, hatch] of one.bars)
          make("rect", { x: at.toX(begin), y: y + (thin ? 6 : 3), width: Math.max(0.6, at.toX(begin + length) - at.toX(begin)), height: thin ? 10 : 16,
                         fill: paint(at.svg, name, colour, hatch) }, at.plot);
      }),
      hover: (at, x, y) => {
        const one = step.rows[Math.floor((y - at.top) / row)], wanted = at.fromX(x), near = 2 * (at.high - at.low) / at.inner;
        const hits = one ? one.bars.filter((bar) => wanted >= bar[0] - near && wanted <= bar[0] + bar[1] + near) : [];
        return hits.length ? [[one.label, null]].concat(hits.slice(-6).map((bar) => [bar[3], bar[2]])) : [];
      },
    });
  }

  for (const node of document.querySelectorAll("[data-chart]")) curves(data.charts[node.dataset.chart], node, "chart-" + node.dataset.chart);
  for (const node of document.querySelectorAll("[data-timeline]")) timeline(data.timelines[node.dataset.timeline], node, "timeline-" + node.dataset.timeline);
})();
