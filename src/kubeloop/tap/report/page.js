"use strict";
// Shows the recording. Recorded texts reach the page by textContent and canvas only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const ROW = 28, LANE = 20, AXIS = 20, LABEL = 170;
  const state = { chosen: -1, from: 0, to: Math.max(data.meta.end, 1), rows: data.rows };

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function duration(ms) {
    if (ms < 999.5) return `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
    return `${Math.floor(ms / 60000)} min ${Math.floor((ms % 60000) / 1000)} s`;
  }
  function size(bytes) {
    if (bytes < 1000) return `${bytes} B`;
    for (const unit of ["kB", "MB", "GB"]) {
      bytes /= 1000;
      if (bytes < 999.5) return `${bytes < 9.95 ? bytes.toFixed(1) : bytes.toFixed(0)} ${unit}`;
    }
    return `${bytes.toFixed(0)} TB`;
  }
  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const seconds = (ms) => (ms / 1000).toFixed(3);
  const side = (one) => ("value" in one ? (typeof one.value === "string" ? one.value : JSON.stringify(one.value)) : "");
  function changeText(row) {
    if (!row.df || !row.df.length) return "";
    const [path, before, after] = row.df[0];
    const first = `${path}: ${"value" in before ? side(before) + " → " : "+ "}${"value" in after ? side(after) : "removed"}`;
    return row.df.length > 1 ? `${first}  (+${row.df.length - 1})` : first;
  }
  function resultText(row) {
    if (row.k === "e") return changeText(row) || (row.rv ? `rv ${row.rv}` : "");
    if (row.k === "c") return row.x;
    const more = changeText(row) || row.x || "";
    return `${row.st || "no response"}${more ? "  " + more : ""}`;
  }
  // The searched text of each row, made once.
  for (const row of data.rows) {
    const changes = (row.df || []).map(([path, before, after]) => `${path} ${side(before)} ${side(after)}`).join(" ");
    row.text = `${row.v} ${row.res} ${row.s} ${row.p || ""} ${row.x || ""} ${row.st || ""} ${row.rv || ""} ${changes}`.toLowerCase();
  }

  // Facts of the whole recording.
  byId("command").textContent = (data.meta.command || []).join(" ") || data.meta.file;
  const facts = [
    ["Server", data.meta.server], ["Context", data.meta.context], ["Started", data.meta.started.replace("T", " ").replace(/\.\d+/, "").replace(/\+00:00$|Z$/, " UTC")],
    ["Duration", duration(data.meta.end)], ["Connections", String(data.connections.length)], ["Requests", String(data.requests.length)],
    ["Events", data.rows.filter((row) => row.k === "e").length.toLocaleString("en")],
    ["Secrets", data.meta.redacted ? "taken out" : "included"], ["State", data.meta.complete ? "" : "the recording was not finished"],
  ];
  for (const [name, value] of facts) {
    if (!value) continue;
    const pair = element("div");
    pair.append(element("dt", "", name), element("dd", "", value));
    byId("facts").append(pair);
  }

  // Filters.
  function options(select, name, all) {
    const counts = new Map();
    for (const row of data.rows) counts.set(row[name], (counts.get(row[name]) || 0) + 1);
    select.append(new Option(all, ""));
    for (const [value, number] of [...counts].sort((a, b) => a[0].localeCompare(b[0]))) select.append(new Option(`${value} (${number})`, value));
  }
  const search = byId("search"), resource = byId("resource"), verb = byId("verb"), lanes = byId("lanes");
  options(resource, "res", "all resources");
  options(verb, "v", "all verbs and events");
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = state.rows[state.chosen];
    state.rows = data.rows.filter((row) =>
      (!resource.value || row.res === resource.value) && (!verb.value || row.v === verb.value) &&
      row.t <= state.to && row.t + (row.d || 0) >= state.from && words.every((word) => row.text.includes(word)));
    state.chosen = chosen ? state.rows.indexOf(chosen) : -1;
    byId("count").textContent = state.rows.length === data.rows.length ? count(data.rows.length, "row") : `${state.rows.length.toLocaleString("en")} of ${count(data.rows.length, "row")}`;
    byId("empty").hidden = state.rows.length > 0;
    list.hidden = state.rows.length === 0;
    byId("space").style.height = `${state.rows.length * ROW}px`;
    byId("range").hidden = state.from === 0 && state.to >= data.meta.end;
    if (state.chosen >= 0) reveal(); else if (!chosen) list.scrollTop = 0;
    if (state.chosen < 0) closeDetail();
    render();
    draw();
  }

  // The list: only visible rows have elements.
  const list = byId("list"), pool = [];
  function rowElement() {
    const made = element("div", "row");
    made.setAttribute("role", "option");
    for (const name of ["time dim", "dim", "verb", "", "", "number dim", "number dim"]) made.append(element("span", name));
    made.addEventListener("click", () => { choose(made.index); openDetail(); });
    list.append(made);
    return made;
  }
  function fill(made, row, index) {
    const kind = row.k === "e" ? "row event" : "row";
    if (made.className !== kind) made.className = kind;
    made.index = index;
    made.id = `row-${index}`;
    made.setAttribute("aria-selected", index === state.chosen ? "true" : "false");
    made.setAttribute("aria-setsize", String(state.rows.length));
    made.setAttribute("aria-posinset", String(index + 1));
    made.style.transform = `translateY(${index * ROW}px)`;
    const [time, connection, verbCell, object, result, took, bytes] = made.children;
    time.textContent = seconds(row.t);
    connection.textContent = row.c ? `#${row.c}` : "";
    verbCell.textContent = row.v;
    verbCell.className = `verb v-${/^[A-Za-z]+$/.test(row.v) ? row.v : "data"}`;
    object.textContent = row.s || "";
    object.title = row.p ? `${row.s}  ${row.p}` : row.s || "";
    result.textContent = resultText(row);
    result.className = row.k === "c" || (row.k === "r" && (!row.st || row.st >= 400)) || row.v === "ERROR" ? "bad" : "";
    took.textContent = row.d !== undefined ? duration(row.d) : "";
    bytes.textContent = row.dn !== undefined ? size(row.dn) : "";
  }
  function render() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 6);
    const last = Math.min(state.rows.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 6);
    while (pool.length < last - first) pool.push(rowElement());
    pool.forEach((made, at) => {
      const index = first + at;
      made.hidden = index >= last;
      if (!made.hidden) fill(made, state.rows[index], index);
    });
    if (state.chosen >= 0) list.setAttribute("aria-activedescendant", `row-${state.chosen}`);
    else list.removeAttribute("aria-activedescendant");
  }
  let waiting = false;
  list.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; render(); });
  }, { passive: true });
  function reveal() {
    const top = state.chosen * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  }
  function choose(index) {
    if (!state.rows.length) return;
    state.chosen = Math.max(0, Math.min(state.rows.length - 1, index));
    reveal();
    render();
    draw();
    if (!detail.hidden) openDetail();
  }

  // The details of a row.
  const detail = byId("detail");
  function table(pairs, className) {
    const made = element("table", className), body = element("tbody");
    for (const cells of pairs) {
      const line = element("tr");
      cells.forEach((cell, at) => {
        const made = element("td", className === "change" && at > 0 && cell !== null ? (at === 1 ? "was" : "is") : "");
        if (at) made.textContent = cell === null ? "" : cell; else made.append(...breakable(cell));
        line.append(made);
      });
      body.append(line);
    }
    made.append(body);
    return made;
  }
  // A path or name that breaks at its dots first.
  function breakable(text) { return text.split(/(?<=[./])/).flatMap((one) => [one, element("wbr")]); }
  function part(title, ...content) { detail.append(element("h3", "", title), ...content); }
  function pretty(text) {
    try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
  }
  function timings(request) {
    const bar = element("div", "bar"), legend = element("div", "legend"), known = request.timings || {};
    const total = Math.max(request.time, 0.001);
    for (const [name, text] of [["connect", "connect"], ["wait", "wait for headers"], ["receive", "receive"]]) {
      const value = known[name];
      if (!(value >= 0)) continue;
      const piece = element("span", name), entry = element("span"), mark = element("i", "");
      piece.style.width = `${(100 * value) / total}%`;
      mark.style.background = `var(--${{ connect: "bookmark", wait: "modified", receive: "read" }[name]})`;
      bar.append(piece);
      entry.append(mark, `${text} ${duration(value)}`);
      legend.append(entry);
    }
    if (known._firstByte >= 0) legend.append(element("span", "", `first byte after ${duration(known._firstByte)}`));
    legend.append(element("span", "", `total ${duration(request.time)}`));
    return [bar, legend];
  }
  function openDetail() {
    const row = state.rows[state.chosen];
    if (!row) return;
    detail.replaceChildren();
    const close = element("button", "close", "×");
    close.type = "button";
    close.title = "Close (Esc)";
    close.setAttribute("aria-label", "Close details");
    close.addEventListener("click", () => { closeDetail(); list.focus(); });
    const title = element("h2");
    title.append(element("span", `v-${/^[A-Za-z]+$/.test(row.v) ? row.v : "data"}`, row.v), ` ${row.s || ""}`);
    detail.append(close, title);
    detail.append(element("div", "dim", [`${seconds(row.t)} s`, row.c && `connection ${row.c}`, row.rv && `resourceVersion ${row.rv}`].filter(Boolean).join(" · ")));
    if (row.x) detail.append(element("div", row.k === "c" || row.st >= 400 || !row.st ? "bad" : "dim", row.x));
    if (row.df) {
      const lines = row.df.map(([path, before, after]) => [path, "value" in before ? side(before) : null, "value" in after ? side(after) : null]);
      if (lines.length) part("What changed", table(lines, "change")); else part("What changed", element("div", "dim", "Only versions and managed fields."));
    }
    if (row.o) part("Object", element("pre", "", pretty(row.o)));
    const request = data.requests[row.q];
    if (request) {
      if (row.k === "r") part("Time", ...timings(request));
      const [address, query] = request.url.split(/\?(.*)/s);
      part(row.k === "r" ? "Request" : "Request of this stream", table([["URL", address], ["Method", request.method], ["Status", String(request.status || "no response")]]));
      const parameters = [...new URLSearchParams(query || "")];
      if (parameters.length) part("Parameters", table(parameters));
      if (row.k === "r") {
        if (request.requestBody) part("Request body", element("pre", "", pretty(request.requestBody)));
        if (request.responseBody) part("Response body", element("pre", "", pretty(request.responseBody)));
        part("Request headers", table(request.requestHeaders));
        part("Response headers", table(request.responseHeaders));
      }
    }
    detail.hidden = false;
    document.querySelector("main").className = "with-detail";
    detail.scrollTop = 0;
    reveal();
    render();
  }
  function closeDetail() { if (!detail.hidden) { detail.hidden = true; document.querySelector("main").className = ""; render(); } }

  // The timeline: a lane for each resource or connection.
  const canvas = byId("timeline"), context = canvas.getContext("2d"), tip = byId("tip");
  let marks = [], drag = null;
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const label = () => (canvas.clientWidth < 900 ? 124 : LABEL);
  const place = (time) => label() + ((time - state.from) / Math.max(state.to - state.from, 0.001)) * (canvas.clientWidth - label() - 16);
  const timeAt = (x) => state.from + ((x - label()) / (canvas.clientWidth - label() - 16)) * (state.to - state.from);
  function laneNames() {
    const names = [...new Set(data.rows.map((row) => (lanes.value === "c" ? row.c : row.res)))];
    names.sort((a, b) => a.startsWith("(") - b.startsWith("(") || a.localeCompare(b, "en", { numeric: true }));
    return new Map(names.map((name, at) => [name, at]));
  }
  function step(range) {
    const rough = range / Math.max(2, Math.floor((canvas.clientWidth - label()) / 110)), power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  }
  function draw() {
    const names = laneNames(), width = canvas.clientWidth, height = names.size * LANE + AXIS + 6, scale = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const font = getComputedStyle(document.body).fontFamily, line = variable("--line"), muted = variable("--muted");
    const colours = Object.fromEntries(["added", "modified", "deleted", "bookmark", "read", "watch", "write", "accent"].map((name) => [name, variable(`--${name}`)]));
    const colour = (row) => ({ ADDED: "added", MODIFIED: "modified", DELETED: "deleted", ERROR: "deleted", FAILED: "deleted", BOOKMARK: "bookmark", data: "bookmark", WATCH: "watch", LIST: "read", GET: "read", HEAD: "read" }[row.v] || "write");
    context.font = `11px ${font}`;
    context.textBaseline = "middle";
    const every = step(Math.max(state.to - state.from, 0.001)), unit = every >= 1000 ? ["s", 1000] : ["ms", 1];
    context.textAlign = "center";
    for (let time = Math.ceil(state.from / every) * every; time <= state.to; time += every) {
      const x = Math.round(place(time)) + 0.5;
      context.strokeStyle = line;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height - AXIS);
      context.stroke();
      context.fillStyle = muted;
      if (x + 26 < width) context.fillText(`${+(time / unit[1]).toFixed(3)} ${unit[0]}`, x, height - AXIS / 2);
    }
    context.textAlign = "left";
    for (const [name, lane] of names) {
      let text = lanes.value === "c" ? (name ? `connection ${name}` : "no connection") : name;
      while (text.length > 4 && context.measureText(text).width > label() - 24) text = `${text.slice(0, -2).replace(/…$/, "")}…`;
      context.fillStyle = muted;
      context.fillText(text, 16, lane * LANE + LANE / 2 + 4);
    }
    marks = [];
    const matching = new Set(state.rows);
    context.save();
    context.beginPath();
    context.rect(label() - 2, 0, width - label() - 10, height - AXIS);
    context.clip();
    const ticks = names.size ? Array.from(names, () => new Map()) : [];
    for (const row of data.rows) {
      if (row.t > state.to || row.t + (row.d || 0) < state.from) continue;
      const shown = matching.has(row), lane = names.get(lanes.value === "c" ? row.c : row.res), y = lane * LANE + 4, x = place(row.t);
      const long = row.k === "r" ? Math.max(3, place(row.t + row.d) - x) : 2;
      if (row.k === "r") {
        context.globalAlpha = shown ? (row.v === "WATCH" ? 0.3 : 1) : 0.1;
        context.fillStyle = row.st >= 400 || !row.st ? colours.deleted : colours[colour(row)];
        context.fillRect(x, y + 3, long, LANE - 8);
      } else {
        const at = 2 * Math.round(x / 2), tick = ticks[lane].get(at) || { sum: 0 }, name = `${shown ? 1 : 0}${colour(row)}`;
        tick.sum += 1;
        tick[name] = (tick[name] || 0) + 1;
        ticks[lane].set(at, tick);
      }
      if (shown) marks.push([x, x + long, y, row]);
    }
    // Thousands of events share pixels: the height of a tick shows how many, its colours which.
    ticks.forEach((lane, at) => {
      const most = Math.max(1, ...Array.from(lane.values(), (tick) => tick.sum));
      for (const [x, tick] of lane) {
        const tall = Math.max(5, (LANE - 4) * Math.sqrt(tick.sum / most));
        let bottom = at * LANE + LANE + 1;
        for (const name of ["modified", "added", "bookmark", "deleted"].flatMap((one) => [`1${one}`, `0${one}`])) {
          if (!tick[name]) continue;
          const part = Math.max(2, (tall * tick[name]) / tick.sum);
          context.globalAlpha = name[0] === "1" ? 1 : 0.15;
          context.fillStyle = colours[name.slice(1)];
          context.fillRect(x - 1, bottom - part, 2, part);
          bottom -= part;
        }
      }
    });
    context.restore();
    const chosen = state.rows[state.chosen];
    if (chosen) {
      context.strokeStyle = colours.accent;
      context.lineWidth = 1.5;
      context.strokeRect(place(chosen.t) - 3, names.get(lanes.value === "c" ? chosen.c : chosen.res) * LANE + 4, 6, LANE - 2);
      context.lineWidth = 1;
    }
    if (drag) {
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.18;
      context.fillRect(Math.min(drag.start, drag.end), 0, Math.abs(drag.end - drag.start), height - AXIS);
      context.globalAlpha = 1;
    }
  }
  function markAt(x, y) {
    let best = null, distance = 7;
    for (const [left, right, top, row] of marks) {
      if (y < top || y > top + LANE) continue;
      const away = x < left ? left - x : x > right ? x - right : row.k === "r" ? 0.5 : 0;
      if (away < distance) { best = row; distance = away; }
    }
    return best;
  }
  canvas.addEventListener("pointerdown", (event) => { if (event.offsetX >= label() - 4) { drag = { start: event.offsetX, end: event.offsetX }; canvas.setPointerCapture(event.pointerId); } });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) { drag.end = Math.max(label(), event.offsetX); tip.hidden = true; draw(); return; }
    const row = markAt(event.offsetX, event.offsetY);
    tip.hidden = !row;
    if (!row) return;
    tip.textContent = `${seconds(row.t)} s  ${row.v} ${row.s || ""}  ${resultText(row)}`.slice(0, 300);
    tip.style.left = `${Math.max(4, Math.min(event.offsetX + 12, canvas.clientWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${event.offsetY + 18}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { start, end } = drag;
    drag = null;
    if (Math.abs(end - start) > 5) {
      const [from, to] = [timeAt(Math.min(start, end)), timeAt(Math.max(start, end))];
      [state.from, state.to] = [Math.max(0, from), Math.min(data.meta.end, to)];
      filter();
      return;
    }
    const row = markAt(event.offsetX, event.offsetY);
    if (row) { choose(state.rows.indexOf(row)); openDetail(); list.focus(); } else draw();
  });
  function allTimes() { [state.from, state.to] = [0, Math.max(data.meta.end, 1)]; filter(); }
  canvas.addEventListener("dblclick", allTimes);
  byId("range").addEventListener("click", allTimes);

  // Light and dark: the system's choice until the button is used.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let theme = "";
  function paint() { document.documentElement.dataset.theme = theme || (dark.matches ? "dark" : "light"); draw(); }
  function toggleTheme() { theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; paint(); }
  dark.addEventListener("change", paint);
  byId("theme").addEventListener("click", toggleTheme);

  // Keyboard.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === search;
    if (event.key === "Escape") {
      if (!detail.hidden) { closeDetail(); list.focus(); }
      else if (search.value || resource.value || verb.value || !byId("range").hidden) { search.value = resource.value = verb.value = ""; allTimes(); list.focus(); }
      else if (typing) list.focus();
      event.preventDefault();
      return;
    }
    if (typing) {
      if (event.key === "Enter" || event.key === "ArrowDown") { list.focus(); choose(Math.max(state.chosen, 0)); event.preventDefault(); }
      return;
    }
    if (event.target.tagName === "SELECT" || (event.target.tagName === "BUTTON" && event.key === "Enter")) return;
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const moves = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "/") { search.focus(); search.select(); }
    else if (event.key === "t") toggleTheme();
    else if (event.key === "Enter") { if (state.chosen < 0) choose(0); openDetail(); }
    else if (event.key in moves) choose(state.chosen < 0 ? (moves[event.key] > 0 && event.key !== "End" ? 0 : state.rows.length - 1) : state.chosen + moves[event.key]);
    else return;
    event.preventDefault();
  });
  let typingTimer = 0;
  search.addEventListener("input", () => { clearTimeout(typingTimer); typingTimer = setTimeout(filter, data.rows.length > 3000 ? 120 : 0); });
  for (const select of [resource, verb]) select.addEventListener("change", filter);
  lanes.addEventListener("change", draw);
  function resize() {
    document.querySelector(".head").style.marginRight = `${list.offsetWidth - list.clientWidth}px`;
    render();
    draw();
  }
  new ResizeObserver(resize).observe(document.body);
  paint();
  filter();
  list.focus();
})();
