"use strict";
/*
 * Shows what /api/v1 tells, again every two seconds, and has done what its buttons say. Whatever is told becomes text, never markup.
 *
 * A link to the page has a secret behind its #, which no server's log and no referrer sees. It is given back once, for a cookie that scripts
 * cannot read, and for the guard, which is kept for this origin alone and sent with what changes something.
 */
(() => {
  const PERIOD_MS = 2000;
  const LINKS_EVERY = 15; /* looks: what was measured changes seldom */
  const LINKS_FIRST = 12; /* rows, before all are wished for */
  const GUARD = "remote-gpu-guard";
  const shown = new Map();
  let reader = null;
  const links = {age: 0, rows: [], whole: true, all: false};
  const byId = (id) => document.getElementById(id);

  const element = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    if (text !== undefined)
      made.textContent = text;
    for (const [key, value] of Object.entries(attributes))
      made.setAttribute(key, value);
    return made;
  };

  const bytes = (n) => {
    if (n === null || n === undefined)
      return "unknown";
    for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
      if (n >= size)
        return (n / size).toFixed(n / size < 10 ? 1 : 0) + " " + unit;
    return n + " B";
  };

  const seconds = (s) => s < 60 ? s.toFixed(1) + " s" : s < 3600 ? (s / 60).toFixed(1) + " min" : (s / 3600).toFixed(1) + " h";
  const since = (unix) => new Date(unix * 1000).toLocaleString();
  const part = (some, all) => all > 0 ? Math.max(0, Math.min(100, 100 * some / all)) : 0;

  /* Only what has changed is replaced, so that a reader's place and the focus stay. */
  const fill = (parent, made) => {
    const key = made.map((one) => one.outerHTML).join("");
    if (shown.get(parent) === key)
      return;
    shown.set(parent, key);
    const focused = parent.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    parent.replaceChildren(...made);
    if (focused)
      parent.querySelector('[aria-label="' + CSS.escape(focused) + '"]')?.focus();
  };

  const showServer = (server) => {
    byId("host").textContent = "on " + server.host;
    document.title = server.host + " – remote-gpu";
    const rows = [["State", server.ready ? "ready" : server.why], ["Sessions", server.sessions + " of " + server.sessions_limit],
      ["Waiting for memory", String(server.sessions_waiting)], ["Begun so far", String(server.sessions_started)],
      ["Refused", String(Object.values(server.refusals).reduce((a, b) => a + b, 0))],
      ["Driver", [server.driver.kind, server.driver.release].join(" ")], ["Accounts", server.accounts],
      ["Running since", since(server.began)], ["Version", server.version]];
    fill(byId("server"), rows.map(([name, value]) => {
      const row = element("div");
      row.append(element("dt", name), element("dd", value));
      return row;
    }));
    byId("pool").hidden = !server.pool;
    if (server.pool)
      byId("pool-status").textContent = server.pool.name + ": " + (server.pool.member
        ? server.pool.leases + " leases of this server's GPUs" : "cut off" + (server.pool.why ? ": " + server.pool.why : ""));
  };

  const bar = (name, used, kept, all) => {
    const made = element("div", undefined, {class: "bar", role: "img",
      "aria-label": name + ": " + part(used, all).toFixed(0) + " % used, " + part(kept, all).toFixed(0) + " % promised"});
    const one = element("span"), other = element("span", undefined, {class: "kept"});
    one.style.width = part(used, all) + "%";
    other.style.width = Math.max(0, part(kept, all) - part(used, all)) + "%";
    made.append(one, other);
    return made;
  };

  const mean = (values) => (values.reduce((a, b) => a + b, 0) / values.length).toFixed(0);

  /* The last hour as two lines, in per cent; what they say stands beside them as text. */
  const hour = (seconds, strong, dim, words) => {
    const n = strong.length;
    if (n < 2)
      return [];
    const text = "Last " + Math.round(n * seconds / 60) + " min: " + words;
    const picture = byId("hour").content.firstElementChild.cloneNode(true);
    picture.setAttribute("aria-label", text);
    for (const [name, points] of [["memory", dim], ["busy", strong]])
      picture.querySelector("." + name).setAttribute("points", points.map((y, i) => (60 - n + i) + "," + (99 - y * 0.98).toFixed(1)).join(" "));
    return [picture, element("p", text, {class: "label"})];
  };

  const hourOfGpu = ({seconds, busy_percent: busy, memory_percent: memory}) => hour(seconds, busy, memory,
    mean(busy) + " % busy in the mean, " + Math.max(...busy) + " % at most; memory " + memory[memory.length - 1] + " % held");

  /* Requests have no per cent: their line has the most of them as its height. */
  const hourOfPool = ({seconds, granted_percent: granted, waiting}) => {
    const most = Math.max(0, ...waiting);
    return hour(seconds, granted, waiting.map((n) => most ? 100 * n / most : 0),
      mean(granted) + " % granted in the mean, " + Math.max(...granted) + " % at most; " +
      (most ? most + " requests waited at most" : "nobody waited"));
  };

  const figures = (gpu) => {
    const f = gpu.figures, words = [];
    const add = (key, text) => { if (key in f) words.push(text(f[key])); };
    add("utilisation_percent", (n) => n + " % busy");
    add("temperature_c", (n) => n + " °C");
    add("power_w", (n) => n.toFixed(0) + " W");
    add("sm_clock_mhz", (n) => n + " MHz");
    return words.join(" · ");
  };

  const showGpus = (gpus) => fill(byId("gpu-list"), gpus.map((gpu) => {
    const card = element("li"), memory = gpu.memory, used = memory.used === null ? memory.held : memory.used;
    card.append(element("h3", "GPU " + gpu.index + ": " + gpu.name), element("p", gpu.uuid, {class: "label"}),
      bar("Memory", used, memory.reserved, memory.total),
      element("p", bytes(used) + " of " + bytes(memory.total) + " used, " + bytes(memory.reserved) + " promised"),
      element("p", gpu.sessions + (gpu.sessions === 1 ? " session" : " sessions") + " · " + seconds(gpu.busy_seconds) +
        " worked, " + seconds(gpu.throttled_seconds) + " waited"));
    if (figures(gpu))
      card.append(element("p", figures(gpu)));
    card.append(...hourOfGpu(gpu.history));
    return card;
  }));

  const sum = (list, key) => list.reduce((all, one) => all + one[key], 0);

  const shareOf = (session) => [session.exclusive ? "alone" : session.sharing === "mps" ? "by MPS" : "", session.compute_limit === null ? "" :
    "at most " + (100 * session.compute_limit).toFixed(0) + " %", session.weight ? "weight " + session.weight : "",
    session.priority === "normal" || session.priority === "default" ? "" : session.priority + " priority"].filter(Boolean).join(", ");

  /* --- what can be done --- */

  const told = (text) => { byId("done").textContent = text; };

  const post = async (path, body) => {
    const answer = await fetch("/api/v1/" + path, {method: "POST", cache: "no-store", credentials: "same-origin",
      headers: {"Content-Type": "application/json", "X-Remote-Gpu": localStorage.getItem(GUARD) || "1"},
      body: JSON.stringify(body || {}), signal: AbortSignal.timeout(30000)});
    const said = await answer.json().catch(() => ({}));
    if (!answer.ok)
      throw new Error(said.error || "status " + answer.status);
    return said;
  };

  /* Asked first, in words: what is lost by it. */
  const confirmed = (question, yes) => new Promise((resolve) => {
    const ask = byId("ask");
    byId("ask-title").textContent = question;
    byId("ask-yes").textContent = yes;
    ask.returnValue = "no";
    ask.addEventListener("close", () => resolve(ask.returnValue === "yes"), {once: true});
    ask.showModal();
  });

  const perform = async (path, what, question, yes, body) => {
    if (question && !await confirmed(question, yes))
      return;
    told(what + " …");
    try {
      told(what + ": " + (await post(path, body)).what);
    } catch (error) {
      told(what + ": " + error.message);
    }
  };

  const button = (text, label, strong, run) => {
    const made = element("button", text, {type: "button", "aria-label": label});
    if (strong)
      made.className = "strong";
    made.addEventListener("click", run);
    return made;
  };

  const actionsOf = (session) => {
    const cell = element("td", undefined, {"data-label": "Do"}), path = "sessions/" + session.id + "/", name = "Session " + session.id;
    if (!session.may_act)
      return cell;
    if (session.state === "suspended")
      cell.append(button("Resume", "Resume session " + session.id, false, () => perform(path + "resume", name)));
    else
      cell.append(button("Suspend", "Suspend session " + session.id, false, () => perform(path + "suspend", name)));
    cell.append(button("End", "End session " + session.id, true, () => perform(path + "end", name,
      "End session " + session.id + " (" + session.program + ")? Its program fails at its next call, and what it has not saved is lost.", "End it")));
    return cell;
  };

  const showReader = (server) => {
    const drain = byId("drain"), names = {operator: "operator", own: "sees what is theirs", public: "sees what everybody on this machine may"};
    byId("reader-name").textContent = (reader.name || "Nobody is logged in") + ": " + names[reader.sees];
    byId("logout").hidden = !reader.by_cookie;
    byId("how").parentElement.hidden = reader.sees === "operator";
    drain.hidden = reader.sees !== "operator";
    drain.textContent = server.draining ? "Take new sessions again" : "Drain";
    drain.onclick = () => server.draining ? perform("server/undrain", "The server")
      : perform("server/drain", "The server", "Drain the server? It takes nothing new; sessions that run go on.", "Drain it");
  };

  const showSessions = (sessions) => {
    byId("no-sessions").hidden = sessions.length > 0;
    byId("no-sessions").textContent = reader.sees === "own" ? "No session of yours runs." : "No session runs.";
    fill(byId("session-list"), sessions.map((session) => {
      const row = element("tr"), limit = sum(session.gpus, "memory_limit");
      const who = session.identity || session.user + "@" + session.host + " (unproven)";
      const cells = [["Session", String(session.id)], ["Who", who + (session.project ? ", " + session.project : "")],
        ["Program", session.program], ["State", session.state], ["GPU", session.gpus.map((gpu) => gpu.index).join(", ")],
        ["Memory", bytes(sum(session.gpus, "memory_used")) + (limit ? " of " + bytes(limit) : "")],
        ["GPU time", seconds(sum(session.gpus, "busy_seconds"))], ["Waited", seconds(sum(session.gpus, "throttled_seconds"))],
        ["Share", shareOf(session)],
        ["Round trip", session.round_trip_seconds === null ? "" : (1000 * session.round_trip_seconds).toFixed(2) + " ms"],
        ["Since", since(session.since)]];
      const made = cells.map(([name, text]) => element("td", text, {"data-label": name}));
      made.splice(4, 0, actionsOf(session));
      row.append(...made);
      return row;
    }));
  };

  const showQueue = (requests) => {
    byId("queue").hidden = requests.length === 0;
    fill(byId("queue-list"), requests.map((request) => {
      const row = element("tr");
      row.append(...[["Place", String(request.place)], ["Who", request.name || "unauthenticated"], ["GPUs", String(request.gpus)],
        ["Waits for", seconds(Math.max(0, Date.now() / 1000 - request.since))]].map(([name, text]) => element("td", text, {"data-label": name})));
      return row;
    }));
  };

  const showPool = (pool) => {
    showQueue(pool.requests);
    byId("pool-hour").replaceChildren(...hourOfPool(pool.history));
    fill(byId("member-list"), pool.members.map((member) => {
      const card = element("li");
      card.append(element("h3", (member.host || member.address || member.id) + (member.draining ? " (draining)" : "")),
        element("p", member.address || "", {class: "label"}));
      for (const gpu of member.gpus) {
        const suspended = gpu.granted.filter((share) => share.state === "suspended").length;
        card.append(element("p", "GPU " + gpu.index + ": " + gpu.name + ", " + (gpu.granted.length - suspended) + " granted" +
          (suspended ? ", " + suspended + " suspended" : "")),
          bar("Granted memory", gpu.memory - gpu.free, 0, gpu.memory));
      }
      return card;
    }));
    byId("pool-status").append(" · " + pool.members.length + (pool.members.length === 1 ? " server · " : " servers · ") + (pool.waiting === 1 ? "1 request waits" : pool.waiting + " requests wait"));
  };

  /* --- what was measured between machines and servers --- */

  const trip = (s) => s < 1e-3 ? (1e6 * s).toFixed(s < 1e-5 ? 1 : 0) + " µs" : s < 1 ? (1e3 * s).toFixed(s < 1e-2 ? 2 : 1) + " ms" : s.toFixed(2) + " s";
  const rate = (n) => n < 1e6 ? (n / 1e3).toFixed(0) + " kB/s" : n < 1e9 ? (n / 1e6).toFixed(n < 1e7 ? 1 : 0) + " MB/s" : (n / 1e9).toFixed(1) + " GB/s";
  const count = (n, one) => n + " " + one + (n === 1 ? "" : "s");
  const middle = (sorted) => sorted[Math.floor((sorted.length - 1) / 2)];
  const ORDERS = {slow: (a, b) => b.trip - a.trip, fast: (a, b) => a.trip - b.trip, narrow: (a, b) => a.rate - b.rate, server: () => 0};

  const summaryOf = (rows) => {
    const trips = rows.map((row) => row.trip).sort((a, b) => a - b), rates = rows.map((row) => row.rate).sort((a, b) => a - b);
    return count(rows.length, "link") + " from " + count(new Set(rows.map((row) => row.from)).size, "machine") + " to " +
      count(new Set(rows.map((row) => row.address)).size, "server") + ". Round trip " + trip(trips[0]) + " to " + trip(trips[trips.length - 1]) + ", " +
      trip(middle(trips)) + " in the median; bandwidth " + rate(rates[0]) + " to " + rate(rates[rates.length - 1]) + ", " + rate(middle(rates)) +
      " in the median." + (links.whole ? "" : " There are more than are told.");
  };

  const summarise = (text) => {
    if (byId("links-summary").textContent !== text)
      byId("links-summary").textContent = text;
  };

  const showLinks = () => {
    const order = byId("links-order").value, from = byId("links-from").value;
    byId("links").hidden = links.rows.length === 0;
    if (links.rows.length === 0) {
      summarise("No link to a server was measured" + (reader.sees === "operator" ? "" : " by you") +
        ": remote-gpu netperf --pool measures those from the machine that it runs on.");
      return;
    }
    const names = [...new Set(links.rows.map((row) => row.from))].sort();
    fill(byId("links-from"), [element("option", "all machines", {value: ""}), ...names.map((name) => element("option", name, {value: name}))]);
    byId("links-from").value = names.includes(from) ? from : "";
    const rows = links.rows.filter((row) => !names.includes(from) || row.from === from);
    rows.sort((a, b) => ORDERS[order](a, b) || a.server.localeCompare(b.server) || a.from.localeCompare(b.from));
    summarise(summaryOf(rows));
    const all = byId("links-all");
    all.hidden = rows.length <= LINKS_FIRST;
    all.textContent = links.all ? "Show the first " + LINKS_FIRST : "Show all " + rows.length;
    all.setAttribute("aria-expanded", String(links.all));
    fill(byId("link-list"), rows.slice(0, links.all ? rows.length : LINKS_FIRST).map((row) => {
      const made = element("tr");
      made.append(...[["From", row.from], ["Server", row.server], ["Round trip", trip(row.trip)], ["Bandwidth", rate(row.rate)],
        ["Measured", since(row.measured)]].map(([name, text]) => element("td", text, {"data-label": name})));
      return made;
    }));
  };

  /* Of a machine that several have measured from, it is said who; a server's own machine is called so. */
  const takeLinks = (told, members) => {
    const hosts = new Map(members.map((member) => [member.address, member.host || member.address])), names = new Set(hosts.values());
    const users = new Map();
    for (const one of told.links)
      users.set(one.machine, (users.get(one.machine) || 0) + 1);
    links.whole = !told.more && told.links.every((one) => one.left_out === 0);
    const named = (address) => hosts.has(address) && hosts.get(address) !== address ? hosts.get(address) + " (" + address + ")" : address;
    links.rows = told.links.flatMap((one) => one.servers.map((server) => ({
      from: one.machine + (names.has(one.machine) ? " (a server)" : "") + (users.get(one.machine) > 1 ? ", " + (one.name || "unauthenticated") : ""),
      server: named(server.address), address: server.address, trip: server.round_trip_seconds, rate: server.bytes_per_second, measured: one.measured})));
  };

  const lookAtLinks = async (members) => {
    if (links.age % LINKS_EVERY === 0)
      takeLinks(await get("pool/links"), members);
    links.age++;
    showLinks();
  };

  for (const id of ["links-order", "links-from"])
    byId(id).addEventListener("change", showLinks);
  byId("links-all").addEventListener("click", () => {
    links.all = !links.all;
    showLinks();
  });

  const say = (text, bad) => {
    const status = byId("status");
    if (status.textContent !== text)
      status.textContent = text;
    status.classList.toggle("bad", bad);
    document.body.classList.toggle("old", bad && text.startsWith("No answer"));
  };

  const get = async (path) => {
    const answer = await fetch("/api/v1/" + path, {cache: "no-store", signal: AbortSignal.timeout(10000)});
    if (!answer.ok)
      throw Object.assign(new Error((await answer.json().catch(() => ({}))).error || "status " + answer.status), {status: answer.status});
    return answer.json();
  };

  const look = async () => {
    try {
      const [server, gpus, sessions, who] = await Promise.all([get("server"), get("gpus"), get("sessions"), get("reader")]);
      reader = who;
      showServer(server);
      showReader(server);
      showGpus(gpus.gpus);
      showSessions(sessions.sessions);
      if (server.pool) {
        const pool = await get("pool");
        showPool(pool);
        await lookAtLinks(pool.members);
      }
      say(server.ready ? "Ready for new sessions" : "Not ready: " + server.why, !server.ready);
    } catch (error) {
      if (error.status === 401)
        say(error.message, true);
      else
        say("No answer from the server (" + error.message + ")" + (shown.size ? "; what is shown is old" : ""), true);
    }
    setTimeout(look, PERIOD_MS);
  };

  /* By a link: its secret is used up, and leaves the address. */
  const login = async () => {
    const secret = /^#login=([0-9a-f]{64})$/.exec(location.hash);
    if (!secret)
      return;
    history.replaceState(null, "", "/");
    try {
      localStorage.setItem(GUARD, (await post("login", {token: secret[1]})).guard);
      links.age = 0;
    } catch (error) {
      told("Not logged in: " + error.message);
    }
  };

  byId("logout").addEventListener("click", async () => {
    await perform("logout", "Logout");
    localStorage.removeItem(GUARD);
  });
  window.addEventListener("hashchange", login);
  login().then(look);
})();
