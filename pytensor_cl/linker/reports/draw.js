"use strict";
(() => {
  const root = document.querySelector(".pytensor-cl");
  const data = JSON.parse(document.querySelector("script.graph").textContent);
  const canvas = root.querySelector(".canvas");
  const world = root.querySelector(".world");
  const panel = root.querySelector("aside");
  const [GAP_X, GAP_POINT, GAP_Y] = data.gaps;
  const NS = "http://www.w3.org/2000/svg";
  const count = data.nodes.length;
  const shapes = [...world.querySelectorAll("[data-node]")];
  const lines = [...world.querySelectorAll("[data-edge]")];
  const partBoxes = [...world.querySelectorAll("[data-part]")];
  const blockCount = Math.max(-1, ...data.nodes.map((n) => n.block)) + 1;

  // The state that the reader sets.
  const open = new Set(); // nodes that show what is inside
  const foldedBlocks = new Set([...Array(blockCount).keys()]);
  const hiddenKinds = new Set();
  let near = null; // the nodes that are shown, if not all are
  let selected = null;
  let touched = false; // whether the reader has moved the picture

  follow_theme();

  function follow_theme() {
    // A notebook's frame has the notebook's theme, not that of the system.
    try {
      const outer = window.parent.document.body;
      const light = outer.dataset.jpThemeLight ?? (outer.dataset.theme === "light" ? "true" : outer.dataset.theme === "dark" ? "false" : undefined);
      const dark = outer.classList.contains("vscode-dark") || light === "false";
      if (window.parent !== window && (dark || light === "true")) root.dataset.theme = dark ? "dark" : "light";
    } catch {
      /* a frame of another origin: the system's theme holds */
    }
  }

  // --- Blocks: drawn as one box each while they are folded ---

  function element(name, attributes, parent, text) {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  function block_summary(block) {
    const names = new Map();
    let seconds = 0;
    for (const n of data.nodes) {
      if (n.block !== block || !["device", "host", "transfer"].includes(n.kind)) continue;
      const name = n.title.replace(/[{<].*/, "");
      names.set(name, (names.get(name) ?? 0) + 1);
      seconds += n.seconds;
    }
    const most = [...names].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const shown = most.slice(0, 4).map(([name, k]) => `${k} ${name}`);
    if (most.length > 4) shown.push(`${most.slice(4).reduce((sum, [, k]) => sum + k, 0)} others`);
    return { lines: shown, seconds };
  }

  const summaries = [...Array(blockCount).keys()].map(block_summary);
  const hottest = Math.max(0, ...summaries.map((s) => s.seconds));
  const blocks = summaries.map((summary, block) => {
    const texts = [`block ${block + 1}`, ...summary.lines];
    const w = Math.max(...texts.map((t) => 7.3 * t.length)) + 40;
    const h = 16 * texts.length + 14 + (hottest ? 10 : 0);
    const g = element("g", { class: "node block", tabindex: "0", "data-block": block }, world);
    element("rect", { class: "shape", x: -w / 2 + 5, y: -h / 2 - 5, width: w, height: h, rx: 4 }, g);
    element("rect", { class: "shape", x: -w / 2, y: -h / 2, width: w, height: h, rx: 4 }, g);
    texts.forEach((t, k) => element("text", { class: k ? "place" : "title", y: -h / 2 + 18 + 16 * k }, g, t));
    if (hottest) {
      const bar = { x: -w / 2 + 9, y: h / 2 - 9, height: 5 };
      element("rect", { class: "cold", ...bar, width: w - 18 }, g);
      element("rect", { class: "heat", ...bar, width: Math.max(2, ((w - 18) * summary.seconds) / hottest) }, g);
    }
    const fold = element("g", { class: "fold" }, g);
    element("rect", { x: w / 2 - 15, y: -h / 2 + 4, width: 11, height: 11, rx: 2 }, fold);
    element("path", { d: `M${w / 2 - 12.5} ${-h / 2 + 9.5}h6m-3 -3v6` }, fold);
    return { g, w, h };
  });

  // --- Layout: the same steps as layout.py ---

  function visible_graph() {
    // Items: nodes by number, folded blocks by count + number. Edges pass through hidden nodes.
    const item = (n) => {
      const node = data.nodes[n];
      return node.block >= 0 && foldedBlocks.has(node.block) ? count + node.block : n;
    };
    const shown = (n) => !hiddenKinds.has(data.nodes[n].kind) && (near === null || near.has(n));
    const outgoing = data.nodes.map(() => []);
    data.edges.forEach((e, k) => outgoing[e[0]].push([e[2], k]));
    const items = new Set();
    for (let n = 0; n < count; n++) if (shown(n)) items.add(item(n));
    const edges = new Map();
    for (let n = 0; n < count; n++) {
      if (!shown(n)) continue;
      for (const [target, number] of outgoing[n]) {
        const seen = new Set();
        const queue = [target];
        while (queue.length) {
          const at = queue.pop();
          if (seen.has(at)) continue;
          seen.add(at);
          if (!shown(at)) {
            queue.push(...outgoing[at].map(([b]) => b));
            continue;
          }
          const a = item(n), b = item(at);
          const direct = at === target && a === n && b === at;
          const key = direct ? `e${number}` : `${a}-${b}`;
          if (a !== b) edges.set(key, { a, b, number: direct ? number : -1, first: number });
        }
      }
    }
    return { items: [...items].sort((a, b) => rank(a) - rank(b)), edges: [...edges.values()] };
  }

  const blockFirst = [...Array(blockCount).keys()].map((b) => data.nodes.findIndex((n) => n.block === b));
  const blockFloor = [...Array(blockCount).keys()].map((b) =>
    Math.min(...data.nodes.filter((n) => n.block === b).map((n) => n.floor)));

  function rank(item) { return item < count ? item : blockFirst[item - count]; }
  function size_of(item) {
    if (item >= count) return [blocks[item - count].w, blocks[item - count].h];
    return data.nodes[item].size[open.has(item) ? 1 : 0];
  }
  function floor_of(item) { return item < count ? data.nodes[item].floor : blockFloor[item - count]; }

  function push(map, key, value) { if (map.has(key)) map.get(key).push(value); else map.set(key, [value]); }

  function layers_of(items, edges) {
    const sources = new Map(), targets = new Map(), waiting = new Map(items.map((n) => [n, 0]));
    for (const { a, b } of edges) { push(sources, b, a); push(targets, a, b); waiting.set(b, waiting.get(b) + 1); }
    const ready = items.filter((n) => !waiting.get(n)), order = [];
    while (ready.length) {
      const n = ready.shift();
      order.push(n);
      for (const b of targets.get(n) ?? []) {
        waiting.set(b, waiting.get(b) - 1);
        if (!waiting.get(b)) ready.push(b);
      }
    }
    const layer = new Map();
    let start = 0;
    for (const floor of [...new Set(items.map(floor_of))].sort((a, b) => a - b)) {
      const members = order.filter((n) => floor_of(n) === floor);
      for (const n of members) layer.set(n, Math.max(start, ...(sources.get(n) ?? []).map((a) => (layer.get(a) ?? -1) + 1)));
      start = Math.max(start - 1, ...members.map((n) => layer.get(n))) + 1;
    }
    for (const n of order.reverse()) {
      if (!sources.has(n) && targets.has(n)) layer.set(n, Math.min(...targets.get(n).map((b) => layer.get(b))) - 1);
    }
    const used = new Map([...new Set(layer.values())].sort((a, b) => a - b).map((k, i) => [k, i]));
    for (const [n, k] of layer) layer.set(n, used.get(k));
    return layer;
  }

  function packed(wanted, gaps) {
    const offsets = [0];
    for (const gap of gaps) offsets.push(offsets[offsets.length - 1] + gap);
    const groups = [];
    wanted.forEach((want, k) => {
      let mean = want - offsets[k], size = 1;
      while (groups.length && groups[groups.length - 1][0] >= mean) {
        const [before, length] = groups.pop();
        mean = (before * length + mean * size) / (length + size);
        size += length;
      }
      groups.push([mean, size]);
    });
    return groups.flatMap(([mean, size]) => Array(size).fill(mean)).map((mean, k) => mean + offsets[k]);
  }

  const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

  function place() {
    const { items, edges } = visible_graph();
    const layer = layers_of(items, edges);
    const rows = [...Array(Math.max(-1, ...layer.values()) + 1)].map(() => []);
    for (const n of items) rows[layer.get(n)].push(n);
    const above = new Map(), below = new Map(), points = new Map();
    let next = count + blockCount;
    const width = (n) => (n < count + blockCount ? size_of(n)[0] : 0);
    for (const edge of edges) {
      edge.chain = [];
      for (let k = layer.get(edge.a) + 1; k < layer.get(edge.b); k++) {
        const key = `${edge.a}|${k}`;
        if (!points.has(key)) { points.set(key, next); rows[k].push(next++); }
        edge.chain.push(points.get(key));
      }
      const whole = [edge.a, ...edge.chain, edge.b];
      for (let k = 1; k < whole.length; k++) {
        if ((below.get(whole[k - 1]) ?? []).includes(whole[k])) continue;
        push(below, whole[k - 1], whole[k]);
        push(above, whole[k], whole[k - 1]);
      }
    }
    const sweeps = next <= data.large ? data.sweeps : data.few;
    for (let sweep = 0; sweep < sweeps; sweep++) {
      const down = sweep % 2 === 0;
      for (let i = 1; i < rows.length; i++) {
        const k = down ? i : rows.length - 1 - i;
        const fixed = rows[down ? k - 1 : k + 1], neighbours = down ? above : below;
        const at = new Map(fixed.map((n, j) => [n, (j + 0.5) / fixed.length]));
        const key = new Map(rows[k].map((n, j) => {
          const around = (neighbours.get(n) ?? []).map((m) => at.get(m));
          return [n, around.length ? mean(around) : (j + 0.5) / rows[k].length];
        }));
        rows[k] = rows[k].map((n, j) => [n, j]).sort((p, q) => key.get(p[0]) - key.get(q[0]) || p[1] - q[1]).map(([n]) => n);
      }
    }
    const x = new Map();
    const gaps = rows.map((row) => row.slice(1).map((b, j) =>
      (width(row[j]) + width(b)) / 2 + (width(row[j]) && width(b) ? GAP_X : GAP_POINT)));
    rows.forEach((row, k) => {
      let left = -gaps[k].reduce((sum, g) => sum + g, 0) / 2;
      row.forEach((n, j) => { left += j ? gaps[k][j - 1] : 0; x.set(n, left); });
    });
    for (let sweep = 0; sweep < sweeps; sweep++) {
      const down = sweep % 2 === 0;
      for (let i = 0; i < rows.length; i++) {
        const k = down ? i : rows.length - 1 - i;
        const wanted = rows[k].map((n) => {
          const around = (down ? above : below).get(n) ?? below.get(n) ?? above.get(n) ?? [];
          return around.length ? mean(around.map((m) => x.get(m))) : x.get(n);
        });
        packed(wanted, gaps[k]).forEach((at, j) => x.set(rows[k][j], at));
      }
    }
    const y = new Map(), spans = new Map();
    let top = 0;
    for (const row of rows) {
      const height = Math.max(0, ...row.map((n) => (n < count + blockCount ? size_of(n)[1] : 0)));
      for (const n of row) { y.set(n, top + height / 2); spans.set(n, [top, top + height]); }
      top += height + GAP_Y;
    }
    show(items, edges, x, y, spans);
  }

  // --- Drawing what was placed ---

  const slots = data.nodes.map(() => 1);
  for (const [, , target, input] of data.edges) slots[target] = Math.max(slots[target], input + 1);
  const extra = element("g", {}, world);
  world.prepend(extra);
  let extents = null;

  function path(start, bends, end) {
    const all = [start, ...bends, end];
    let d = `M${start[0]} ${start[1]}`;
    let last = 0;
    for (let k = 1; k < all.length; k++) {
      const isInside = last > 0 && k < all.length - 2 && all[last][0] === all[k][0] && all[k][0] === all[k + 1][0];
      if (isInside) continue;
      const [x0, y0] = all[last], [x1, y1] = all[k], half = (y1 - y0) / 2;
      last = k;
      d += `C${x0} ${y0 + half} ${x1} ${y1 - half} ${x1} ${y1}`;
    }
    return d;
  }

  function show(items, edges, x, y, spans) {
    const present = new Set(items);
    extents = [Infinity, Infinity, -Infinity, -Infinity];
    const put = (g, item) => {
      g.classList.toggle("hidden", !present.has(item));
      if (!present.has(item)) return;
      const [w, h] = size_of(item);
      g.setAttribute("transform", `translate(${x.get(item).toFixed(1)} ${y.get(item).toFixed(1)})`);
      extents = [Math.min(extents[0], x.get(item) - w / 2), Math.min(extents[1], y.get(item) - h / 2),
        Math.max(extents[2], x.get(item) + w / 2), Math.max(extents[3], y.get(item) + h / 2 + 14)];
    };
    shapes.forEach((g, n) => { put(g, n); g.classList.toggle("open", open.has(n)); });
    blocks.forEach(({ g }, b) => put(g, count + b));
    lines.forEach((line) => line.classList.add("hidden"));
    extra.replaceChildren();
    for (const edge of edges) {
      const [, output, target, input] = data.edges[edge.first];
      const port = edge.a < count ? (data.nodes[edge.a].ports[open.has(edge.a) ? 1 : 0][output] ?? 0) : 0;
      const into = edge.number >= 0 ? size_of(target)[0] * 0.8 * ((input + 0.5) / slots[target] - 0.5) : 0;
      const d = path([x.get(edge.a) + port, y.get(edge.a) + size_of(edge.a)[1] / 2],
        edge.chain.flatMap((p) => spans.get(p).map((at) => [x.get(p), at])),
        [x.get(edge.b) + into, y.get(edge.b) - size_of(edge.b)[1] / 2 - (edge.b < count ? 1.5 : 7)]);
      if (edge.number >= 0) {
        lines[edge.number].classList.remove("hidden");
        lines[edge.number].setAttribute("d", d);
      } else {
        element("path", { class: "edge", d, "marker-end": "url(#arrow)" }, extra);
      }
    }
    partBoxes.forEach((g, part) => {
      const inside = items.filter((n) => (n < count ? data.nodes[n].part === part
        : data.nodes.some((m) => m.block === n - count && m.part === part)));
      g.classList.toggle("hidden", !inside.length);
      if (!inside.length) return;
      const upper = Math.min(...inside.map((n) => y.get(n) - size_of(n)[1] / 2)) - 22;
      const lower = Math.max(...inside.map((n) => y.get(n) + size_of(n)[1] / 2)) + 17;
      const [rect, text] = g.children;
      const w = Math.max(extents[2] - extents[0], 6.1 * data.parts[part].length + 20) + 24;
      for (const [key, value] of Object.entries({ x: extents[0] - 12, y: upper, width: w, height: lower - upper })) rect.setAttribute(key, value);
      text.setAttribute("x", extents[0] - 2);
      text.setAttribute("y", upper + 13);
    });
  }

  // --- Moving and enlarging ---

  let view = canvas.getAttribute("viewBox").split(" ").map(Number);
  const set_view = () => canvas.setAttribute("viewBox", view.map((v) => v.toFixed(2)).join(" "));

  function scale_now() {
    const box = canvas.getBoundingClientRect();
    return Math.max(view[2] / box.width, view[3] / box.height);
  }

  function free_area() {
    // The part that the side panel does not cover.
    const box = canvas.getBoundingClientRect();
    if (panel.hidden) return box;
    if (panel.offsetWidth < box.width) return { width: box.width - panel.offsetWidth, height: box.height };
    return { width: box.width, height: box.height - panel.offsetHeight };
  }

  function fit(whole) {
    if (!extents || !isFinite(extents[0])) return;
    const box = canvas.getBoundingClientRect(), free = free_area();
    const w = extents[2] - extents[0] + 48, h = extents[3] - extents[1] + 64;
    const needed = Math.max(w / free.width, h / free.height);
    // At first the text is readable: a long graph begins at its top.
    const scale = whole ? Math.max(needed, 0.5) : Math.min(Math.max(needed, 0.7), 1.15);
    view = [extents[0] - 24 + (w - scale * free.width) / 2, extents[1] - 36, scale * box.width, scale * box.height];
    if (whole || scale * free.height > h) view[1] += (h - scale * free.height) / 2;
    set_view();
  }

  function zoom(factor, at) {
    const box = canvas.getBoundingClientRect();
    const [px, py] = at ?? [box.left + box.width / 2, box.top + box.height / 2];
    const u = (px - box.left) / box.width, v = (py - box.top) / box.height;
    const f = Math.min(Math.max(factor, 0.05 / scale_now()), 60 / scale_now());
    view = [view[0] + view[2] * u * (1 - f), view[1] + view[3] * v * (1 - f), view[2] * f, view[3] * f];
    set_view();
  }

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), [event.clientX, event.clientY]);
  }, { passive: false });

  const fingers = new Map();
  let travelled = 0;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    travelled = 0;
  });
  window.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const dx = event.clientX - before[0], dy = event.clientY - before[1];
    travelled += Math.abs(dx) + Math.abs(dy);
    if (fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
      const old = Math.hypot(before[0] - other[0], before[1] - other[1]);
      const now = Math.hypot(event.clientX - other[0], event.clientY - other[1]);
      if (old && now) zoom(old / now, [(event.clientX + other[0]) / 2, (event.clientY + other[1]) / 2]);
    } else {
      canvas.classList.add("moving");
      const scale = scale_now();
      view[0] -= dx * scale;
      view[1] -= dy * scale;
      set_view();
    }
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    window.addEventListener(name, (event) => { fingers.delete(event.pointerId); canvas.classList.remove("moving"); });
  }

  // --- Choosing nodes ---

  function go_to(n) {
    const box = data.nodes[n];
    if (hiddenKinds.has(box.kind)) root.querySelector(`[data-kind=${box.kind}]`).click();
    if (near !== null && !near.has(n)) near = null;
    if (box.block >= 0) foldedBlocks.delete(box.block);
    place();
    const [, tx, ty] = /translate\(([-\d.]+) ([-\d.]+)/.exec(shapes[n].getAttribute("transform"));
    touched = true;
    select(n);
    const whole = canvas.getBoundingClientRect(), free = free_area();
    view = [tx - free.width / 2, ty - free.height / 2.4, whole.width, whole.height];
    set_view();
  }

  function select(n) {
    selected = n;
    shapes.forEach((g, k) => g.classList.toggle("selected", k === n));
    lines.forEach((line, k) => line.classList.toggle("near", n !== null && (data.edges[k][0] === n || data.edges[k][2] === n)));
    panel.hidden = n === null;
    if (n === null) return;
    const node = data.nodes[n];
    panel.querySelector("h2").textContent = node.title;
    const rows = node.rows.map(([name, value]) => {
      const tr = document.createElement("tr");
      for (const text of [name, value]) tr.append(Object.assign(document.createElement("td"), { textContent: text }));
      return tr;
    });
    panel.querySelector("table").replaceChildren(...rows);
    panel.querySelector("pre").textContent = node.code.join("\n");
  }

  function around(n, steps) {
    // The nodes that reach n, or that n reaches, in a few steps.
    const found = new Set([n]);
    for (const [from, to] of [[0, 2], [2, 0]]) {
      let frontier = new Set([n]);
      for (let k = 0; k < steps; k++) {
        const next = new Set();
        for (const e of data.edges) if (frontier.has(e[from]) && !found.has(e[to])) next.add(e[to]);
        next.forEach((m) => found.add(m));
        frontier = next;
      }
    }
    return found;
  }

  function act(target) {
    const block = target.closest("[data-block]");
    if (block) {
      foldedBlocks.delete(Number(block.dataset.block));
      return place();
    }
    const shape = target.closest("[data-node]");
    if (!shape) return;
    const n = Number(shape.dataset.node);
    if (target.closest(".fold") && data.nodes[n].folds) {
      if (open.has(n)) open.delete(n); else open.add(n);
      place();
    } else {
      select(n === selected ? null : n);
    }
  }

  canvas.addEventListener("click", (event) => { if (travelled < 6) act(event.target); });
  canvas.addEventListener("dblclick", (event) => {
    const shape = event.target.closest("[data-node]");
    if (!shape) return;
    const n = Number(shape.dataset.node);
    if (!data.nodes[n].folds) return;
    if (open.has(n)) open.delete(n); else open.add(n);
    place();
  });
  canvas.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act(event.target);
  });

  const actions = {
    in: () => zoom(0.8),
    out: () => zoom(1.25),
    fit: () => fit(true),
    fold: () => { open.clear(); for (let b = 0; b < blockCount; b++) foldedBlocks.add(b); place(); fit(true); },
    unfold: () => { data.nodes.forEach((n, k) => { if (n.folds) open.add(k); }); foldedBlocks.clear(); place(); fit(true); },
    close: () => select(null),
    near: () => {
      near = around(selected, 2);
      near.forEach((n) => foldedBlocks.delete(data.nodes[n].block));
      place();
      fit(true);
    },
    everything: () => { near = null; place(); fit(true); },
  };
  root.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", () => { touched = true; actions[button.dataset.do](); }));
  root.querySelectorAll("[data-kind]").forEach((box) => box.addEventListener("change", () => {
    if (box.checked) hiddenKinds.delete(box.dataset.kind); else hiddenKinds.add(box.dataset.kind);
    place();
  }));

  // --- Search: Enter goes to the next match ---

  const field = root.querySelector("input[type=search]"), found = root.querySelector(".found");
  let matches = [], position = -1;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    matches = words.length ? data.nodes.map((n, k) => [k, [n.title, ...n.rows.flat(), ...n.code].join(" ").toLowerCase()])
      .filter(([, text]) => words.every((w) => text.includes(w))).map(([k]) => k) : [];
    position = -1;
    const hits = new Set(matches);
    shapes.forEach((g, k) => { g.classList.toggle("found", hits.has(k)); g.classList.toggle("dim", words.length > 0 && !hits.has(k)); });
    blocks.forEach(({ g }, b) => g.classList.toggle("found", matches.some((k) => data.nodes[k].block === b)));
    found.textContent = words.length ? `${matches.length} found` : "";
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !matches.length) return;
    position = (position + (event.shiftKey ? matches.length - 1 : 1)) % matches.length;
    found.textContent = `${position + 1} of ${matches.length}`;
    go_to(matches[position]);
  });

  // The first view is for the size that the frame has; it stays when the reader has moved it.
  for (const name of ["pointerdown", "wheel", "keydown"]) root.addEventListener(name, () => { touched = true; }, { capture: true });
  place();
  fit(false);
  new ResizeObserver(() => { if (!touched) fit(false); }).observe(canvas);
})();
