"use strict";
// The views of an attention page. Numbers are unpacked layer by layer, when something first shows them; texts of the
// data reach the screen as textContent and by fillText alone.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const T = data.tokens.length, L = data.layers.length, H = data.heads.length;
  const ROW = 22; // pixels of a token's row between tokens, as in the style sheet
  const MOST = 2000; // lines that are drawn at once: more are a blur, and take seconds
  const TALLEST = 16000; // pixels of a canvas that every browser draws
  const THUMB = 58;
  const $ = (id) => document.getElementById(id);
  const state = { layer: 0, heads: new Set([0]), token: null, kept: false, sides: "", special: true, least: 0.05 };

  // Numbers ------------------------------------------------------------------------------------------------------

  async function unpacked(text) {
    const packed = atob(text), bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  }

  function lazily(make) {
    const made = new Map();
    return (layer) => {
      if (!made.has(layer)) made.set(layer, make(layer));
      return made.get(layer);
    };
  }

  const roots = lazily(async (layer) => new Uint8Array(await unpacked(data.attention[layer]))); // (H, T, T)
  const query = lazily(async (layer) => new Int8Array(await unpacked(data.query[layer]))); // (H, T, D)
  const key = lazily(async (layer) => new Int8Array(await unpacked(data.key[layer])));
  const weight = Float32Array.from({ length: data.levels + 1 }, (_, i) => (i / data.levels) ** 2);

  function isShown(from, to) {
    if (!state.special && (data.sides[from] < 0 || data.sides[to] < 0)) return false;
    return !state.sides || (data.sides[from] === +state.sides[0] && data.sides[to] === +state.sides[1]);
  }

  // Words --------------------------------------------------------------------------------------------------------

  const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
  const named = (token) => `“${data.tokens[token]}” (${token + 1})`;

  function strongest(levels, head, from, most) {
    const row = levels.subarray((head * T + from) * T, (head * T + from + 1) * T);
    return [...row.keys()].filter((to) => isShown(from, to)).sort((a, b) => row[b] - row[a]).slice(0, most)
      .map((to) => `${named(to)} ${percent(weight[row[to]])}`).join(", ") || "no token that is shown";
  }

  function say(levels) {
    const where = `Layer ${data.layers[state.layer]}`;
    if (!state.heads.size) return void ($("said").textContent = `${where}: no head is chosen.`);
    if (state.token === null) {
      return void ($("said").textContent = `${where}, ${state.heads.size} of ${H} heads.${lines.cut ? ` The ${MOST.toLocaleString("en")} strongest lines are drawn.` : ""}`);
    }
    const heads = [...state.heads].sort((a, b) => a - b);
    const each = heads.slice(0, 3).map((head) => `head ${data.heads[head]} to ${strongest(levels, head, state.token, 3)}`);
    const more = heads.length > 3 ? `; ${heads.length - 3} more heads` : "";
    $("said").textContent = `${where}, from ${named(state.token)}: ${each.join("; ")}${more}.`;
  }

  // Colours: heads have one each, all else is the page's own -------------------------------------------------------

  const hue = (head) => Math.round((head * 137.508 + 210) % 360);
  const ofHead = (head) => `hsl(${hue(head)} 70% 48%)`;
  const ofPage = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function rgb(name) {
    const hex = ofPage(name);
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }

  function sized(canvas, width, height) {
    const scale = Math.min(window.devicePixelRatio || 1, TALLEST / height, TALLEST / width);
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(canvas.width / width, canvas.height / height);
    return pen;
  }

  // Between tokens -----------------------------------------------------------------------------------------------

  const lines = { cut: false };

  function fillTokens(list, role) {
    const fragment = document.createDocumentFragment();
    data.tokens.forEach((token, i) => {
      const item = document.createElement("li"), text = document.createElement("bdi");
      text.textContent = token;
      item.title = `${i + 1}: ${token}`;
      item.dataset.token = i;
      if (role) {
        item.role = role;
        item.id = `token-${i}`;
        item.setAttribute("aria-selected", "false");
      }
      if (data.sides[i] === 1) item.className = "second";
      item.append(text);
      fragment.append(item);
    });
    list.append(fragment);
  }

  function lowest(levels, from) { // the level under which lines are left out
    const counts = new Uint32Array(data.levels + 1);
    for (const head of state.heads) {
      for (const i of from) {
        const row = (head * T + i) * T;
        for (let j = 0; j < T; j++) counts[levels[row + j]]++;
      }
    }
    const asked = Math.ceil(Math.sqrt(state.token === null ? state.least : state.least / 10) * data.levels);
    let level = data.levels, sum = 0;
    while (level >= Math.max(1, asked) && sum + counts[level] <= MOST) sum += counts[level--];
    lines.cut = level >= Math.max(1, asked);
    return level + 1;
  }

  async function drawLines() {
    const layer = state.layer, levels = await roots(layer);
    if (layer !== state.layer) return;
    const canvas = $("between"), width = canvas.clientWidth || 300, pen = sized(canvas, width, T * ROW);
    const from = state.token === null ? [...Array(T).keys()] : [state.token];
    const least = lowest(levels, from), STEPS = 12;
    for (const head of state.heads) {
      const paths = Array.from({ length: STEPS }, () => null);
      for (const i of from) {
        const row = (head * T + i) * T;
        for (let j = 0; j < T; j++) {
          const level = levels[row + j];
          if (level < least || !isShown(i, j)) continue;
          const step = Math.min(STEPS - 1, Math.floor(weight[level] * STEPS));
          paths[step] ??= new Path2D();
          paths[step].moveTo(0, (i + 0.5) * ROW);
          paths[step].lineTo(width, (j + 0.5) * ROW);
        }
      }
      pen.strokeStyle = ofHead(head);
      paths.forEach((path, step) => {
        if (!path) return;
        pen.globalAlpha = Math.min(1, 0.12 + (step + 0.5) / STEPS);
        pen.lineWidth = 1 + (1.5 * step) / STEPS;
        pen.stroke(path);
      });
    }
    const shares = new Float32Array(T);
    if (state.token !== null) {
      for (const head of state.heads) {
        const row = (head * T + state.token) * T;
        for (let j = 0; j < T; j++) if (isShown(state.token, j)) shares[j] = Math.max(shares[j], weight[levels[row + j]]);
      }
    }
    [...$("to").children].forEach((item, j) => {
      item.style.background = shares[j] >= 0.01 ? `color-mix(in srgb, var(--accent) ${Math.round(55 * shares[j])}%, transparent)` : "";
    });
    [...$("from").children].forEach((item, i) => item.setAttribute("aria-selected", String(i === state.token)));
    if (state.token === null) $("from").removeAttribute("aria-activedescendant");
    else $("from").setAttribute("aria-activedescendant", `token-${state.token}`);
    say(levels);
  }

  // All heads ----------------------------------------------------------------------------------------------------

  function fillGrid() {
    const grid = $("grid"), label = (text) => {
      const box = document.createElement("span");
      box.className = "label";
      box.textContent = text;
      return box;
    };
    grid.style.gridTemplateColumns = `auto repeat(${H}, max-content)`;
    const head = document.createElement("div");
    head.className = "row";
    head.role = "row";
    head.append(label("layer / head"), ...data.heads.map((number) => label(number)));
    for (const box of head.children) box.role = "columnheader";
    grid.append(head);
    data.layers.forEach((layer, l) => {
      const row = document.createElement("div"), first = label(layer);
      row.className = "row";
      row.role = "row";
      first.role = "rowheader";
      row.append(first);
      data.heads.forEach((number, h) => {
        const cell = document.createElement("span"), button = document.createElement("button"), canvas = document.createElement("canvas");
        cell.role = "gridcell";
        button.type = "button";
        button.dataset.layer = l;
        button.dataset.head = h;
        button.tabIndex = l + h === 0 ? 0 : -1;
        button.title = `Layer ${layer}, head ${number}`;
        button.setAttribute("aria-label", button.title);
        button.append(canvas);
        cell.append(button);
        row.append(cell);
      });
      grid.append(row);
    });
  }

  function thumbnail(canvas, levels, head, [red, green, blue]) { // the largest of what falls into a pixel
    const size = Math.min(T, THUMB), largest = new Uint8Array(size * size);
    const place = Uint16Array.from({ length: T }, (_, i) => Math.floor((i * size) / T));
    for (let i = 0, at = head * T * T; i < T; i++) {
      const row = place[i] * size;
      for (let j = 0; j < T; j++, at++) if (levels[at] > largest[row + place[j]]) largest[row + place[j]] = levels[at];
    }
    canvas.width = canvas.height = size;
    const pen = canvas.getContext("2d"), image = pen.createImageData(size, size);
    for (let i = 0; i < largest.length; i++) image.data.set([red, green, blue, Math.round((255 * largest[i]) / data.levels)], 4 * i);
    pen.putImageData(image, 0, 0);
  }

  async function drawRow(layer) {
    const levels = await roots(layer), colour = rgb("--accent");
    for (const button of $("grid").querySelectorAll(`button[data-layer="${layer}"]`)) {
      thumbnail(button.firstChild, levels, +button.dataset.head, colour);
    }
  }

  async function drawRows() { // one after the other, with a pause for whatever else is to be done
    for (let layer = 0; layer < L; layer++) {
      await new Promise((go) => setTimeout(go, 20));
      await drawRow(layer);
    }
  }

  function markGrid() {
    for (const button of $("grid").querySelectorAll("button")) {
      const chosen = +button.dataset.layer === state.layer && state.heads.has(+button.dataset.head);
      button.setAttribute("aria-pressed", String(chosen));
    }
  }

  // Query and key ------------------------------------------------------------------------------------------------

  const cells = { geometry: null };

  async function drawProducts() {
    const layer = state.layer, levels = await roots(layer);
    const vectors = data.query ? await Promise.all([query(layer), key(layer)]) : null;
    if (layer !== state.layer) return;
    const head = Math.min(...state.heads), from = state.token ?? 0;
    const canvas = $("products"), width = canvas.clientWidth || 600, high = 18, top = vectors ? 2.5 * high : high;
    const pen = sized(canvas, width, top + T * high);
    pen.font = `12px ${ofPage("--mono")}`;
    pen.textBaseline = "middle";
    const ink = ofPage("--ink"), muted = ofPage("--muted"), plus = rgb("--accent"), minus = rgb("--second");
    if (!state.heads.size) return void ($("chosen").textContent = "No head is chosen.");
    $("chosen").textContent = `Layer ${data.layers[layer]}, head ${data.heads[head]}, from ${named(from)}: ${strongest(levels, head, from, 5)}.`;
    const D = vectors ? vectors[0].length / (H * T) : 0, names = Math.min(130, width * 0.2), sums = vectors ? 64 : 0;
    const cell = D ? Math.max(1, Math.min(6, Math.floor((width - names - sums - 100) / (2 * D)))) : 0;
    const x = { key: names, product: names + cell * D + 8, sum: names + 2 * (cell * D + 8), bar: names + 2 * (cell * D + 8) * (D ? 1 : 0) + sums };
    const scales = vectors && [data.queryScale[layer] / data.steps, data.keyScale[layer] / data.steps];
    const elements = (which, token) => Float32Array.from(vectors[which].subarray((head * T + token) * D, (head * T + token + 1) * D), (v) => v * scales[which]);
    const strip = (left, y, values, most) => {
      values.forEach((value, d) => {
        pen.fillStyle = `rgb(${(value < 0 ? minus : plus).join(" ")} / ${Math.min(1, Math.abs(value) / most)})`;
        pen.fillRect(left + d * cell, y + 2, Math.max(1, cell - (cell > 3 ? 1 : 0)), high - 4);
      });
    };
    const write = (text, left, y, colour, most) => {
      pen.fillStyle = colour;
      let short = text;
      while (short.length > 1 && pen.measureText(short).width > most) short = short.slice(0, -2) + "…";
      pen.fillText(short, left, y + high / 2);
    };
    const q = vectors && elements(0, from);
    if (vectors) {
      write("query", 0, 0, muted, names - 8);
      strip(x.key, 0, q, data.queryScale[layer] / 2);
      write("key", x.key, 1.25 * high, muted, cell * D);
      write("query × key", x.product, 1.25 * high, muted, cell * D + 4);
      write("score", x.sum, 1.25 * high, muted, sums);
    }
    write("attention", x.bar, vectors ? 1.25 * high : 0, muted, width - x.bar);
    const products = (to) => elements(1, to).map((value, d) => value * q[d]);
    const most = vectors ? Math.max(...data.tokens.map((_, to) => products(to).reduce((a, b) => Math.max(a, Math.abs(b)), 0))) / 2 : 1;
    for (let to = 0; to < T; to++) {
      const y = top + to * high, share = weight[levels[(head * T + from) * T + to]];
      write(data.tokens[to], 0, y, isShown(from, to) ? ink : muted, names - 8);
      if (vectors) {
        strip(x.key, y, elements(1, to), data.keyScale[layer] / 2);
        strip(x.product, y, products(to), most);
        write((products(to).reduce((a, b) => a + b, 0) * data.scaling[layer]).toFixed(2), x.sum, y, ink, sums);
      }
      pen.fillStyle = ofHead(head);
      pen.fillRect(x.bar, y + 3, share * Math.max(20, width - x.bar - 56), high - 6);
      write(percent(share), x.bar + share * Math.max(20, width - x.bar - 56) + 4, y, ink, 56);
    }
    cells.geometry = vectors && { x, cell, D, top, high, q, elements, from };
  }

  function pointAtCell(event) {
    const g = cells.geometry;
    if (!g) return;
    const box = $("products").getBoundingClientRect(), to = Math.floor((event.clientY - box.top - g.top) / g.high);
    const left = event.clientX - box.left, start = left >= g.x.product ? g.x.product : g.x.key;
    const d = Math.floor((left - start) / g.cell);
    if (to < 0 || to >= T || d < 0 || d >= g.D) return;
    const [q, k] = [g.q[d], g.elements(1, to)[d]];
    $("chosen").textContent = `Element ${d + 1} of ${g.D}, from ${named(g.from)} to ${named(to)}: query ${q.toFixed(2)} × key ${k.toFixed(2)} = ${(q * k).toFixed(2)}`;
  }

  // What people do -----------------------------------------------------------------------------------------------

  let due = null;
  function draw(...parts) { // once for all that happens in one turn
    if (!due) setTimeout(() => {
      const now = due;
      due = null;
      if (now.has("lines")) drawLines();
      if (now.has("products")) drawProducts();
      if (now.has("grid")) markGrid();
    });
    due = new Set([...(due ?? []), ...parts]);
  }
  const drawAll = () => draw("lines", "products", "grid");

  function chooseToken(token, keep) {
    if (keep) state.kept = token !== null;
    else if (token === state.token) return;
    state.token = token;
    draw("lines", ...(keep ? ["products"] : []));
  }

  function chooseHead(layer, head) {
    Object.assign(state, { layer, heads: new Set([head]) });
    $("layer").value = layer;
    for (const box of $("chips").querySelectorAll("input")) box.checked = +box.value === head;
    drawAll();
  }

  function listen() {
    const from = $("from");
    from.addEventListener("mouseover", (event) => {
      const item = event.target.closest("li");
      if (item && !state.kept) chooseToken(+item.dataset.token, false);
    });
    from.addEventListener("mouseleave", () => state.kept || chooseToken(null, false));
    from.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (!item) return;
      const token = +item.dataset.token;
      chooseToken(state.kept && token === state.token ? null : token, true);
    });
    from.addEventListener("keydown", (event) => {
      const now = state.token ?? -1;
      const next = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: T - 1, Enter: Math.max(0, now) }[event.key];
      if (event.key === "Escape") chooseToken(null, true);
      else if (next === undefined) return;
      else {
        chooseToken(Math.max(0, Math.min(T - 1, next)), true);
        from.children[state.token].scrollIntoView({ block: "nearest" });
      }
      event.preventDefault();
    });
    $("layer").addEventListener("change", (event) => {
      state.layer = +event.target.value;
      drawAll();
    });
    $("chips").addEventListener("change", (event) => {
      state.heads[event.target.checked ? "add" : "delete"](+event.target.value);
      drawAll();
    });
    for (const [id, heads] of [["all", [...data.heads.keys()]], ["none", []]]) {
      $(id).addEventListener("click", () => {
        state.heads = new Set(heads);
        for (const box of $("chips").querySelectorAll("input")) box.checked = state.heads.has(+box.value);
        drawAll();
      });
    }
    $("sides")?.addEventListener("change", (event) => {
      state.sides = event.target.value;
      drawAll();
    });
    $("special").addEventListener("change", (event) => {
      state.special = event.target.checked;
      drawAll();
    });
    $("least").addEventListener("input", (event) => {
      state.least = event.target.value / 100;
      $("least-said").textContent = `${event.target.value} %`;
      draw("lines");
    });
    $("grid").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) chooseHead(+button.dataset.layer, +button.dataset.head);
    });
    $("grid").addEventListener("keydown", (event) => {
      const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [];
      const here = event.target.closest("button");
      if (down === undefined || !here) return;
      const next = $("grid").querySelector(`button[data-layer="${+here.dataset.layer + down}"][data-head="${+here.dataset.head + right}"]`);
      if (!next) return;
      here.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      event.preventDefault();
    });
    $("products").addEventListener("mousemove", pointAtCell);
    $("products").addEventListener("mouseleave", () => draw("products"));
    let width = 0;
    new ResizeObserver(([entry]) => { // its height changes with what is drawn
      if (entry.contentRect.width !== width) draw("lines", "products");
      width = entry.contentRect.width;
    }).observe($("views"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      drawRows();
      drawAll();
    });
  }

  function start() {
    data.layers.forEach((number, l) => $("layer").append(new Option(number, l)));
    data.heads.forEach((number, h) => {
      const chip = document.createElement("label"), box = document.createElement("input");
      Object.assign(box, { type: "checkbox", value: h, checked: state.heads.has(h) });
      box.setAttribute("aria-label", `head ${number}`);
      chip.className = "chip";
      chip.style.setProperty("--chip", ofHead(h));
      chip.append(box, number);
      $("chips").append(chip);
    });
    $("least-said").textContent = "5 %";
    fillTokens($("from"), "option");
    fillTokens($("to"), "");
    fillGrid();
    $("views").hidden = false;
    listen();
    drawRows();
    markGrid();
  }

  start();
})();
