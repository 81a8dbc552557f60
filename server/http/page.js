"use strict";
/* Shows what /api/v1 tells, again every two seconds. Whatever is told becomes text, never markup. */
(() => {
  const PERIOD_MS = 2000;
  const shown = new Map();
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
    parent.replaceChildren(...made);
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
    return card;
  }));

  const sum = (list, key) => list.reduce((all, one) => all + one[key], 0);

  const shareOf = (session) => [session.exclusive ? "alone" : "", session.compute_limit === null ? "" :
    "at most " + (100 * session.compute_limit).toFixed(0) + " %", session.weight ? "weight " + session.weight : "",
    session.priority === "normal" || session.priority === "default" ? "" : session.priority + " priority"].filter(Boolean).join(", ");

  const showSessions = (sessions) => {
    byId("no-sessions").hidden = sessions.length > 0;
    fill(byId("session-list"), sessions.map((session) => {
      const row = element("tr"), limit = sum(session.gpus, "memory_limit");
      const who = session.identity || session.user + "@" + session.host + " (unproven)";
      const cells = [["Session", String(session.id)], ["Who", who + (session.project ? ", " + session.project : "")],
        ["Program", session.program], ["State", session.state], ["GPU", session.gpus.map((gpu) => gpu.index).join(", ")],
        ["Memory", bytes(sum(session.gpus, "memory_used")) + (limit ? " of " + bytes(limit) : "")],
        ["GPU time", seconds(sum(session.gpus, "busy_seconds"))], ["Waited", seconds(sum(session.gpus, "throttled_seconds"))],
        ["Share", shareOf(session)], ["Since", since(session.since)]];
      row.append(...cells.map(([name, text]) => element("td", text, {"data-label": name})));
      return row;
    }));
  };

  const showPool = (pool) => {
    fill(byId("member-list"), pool.members.map((member) => {
      const card = element("li");
      card.append(element("h3", (member.host || member.address || member.id) + (member.draining ? " (draining)" : "")),
        element("p", member.address || "", {class: "label"}));
      for (const gpu of member.gpus)
        card.append(element("p", "GPU " + gpu.index + ": " + gpu.name + ", " + gpu.granted.length + " granted"),
          bar("Granted memory", gpu.memory - gpu.free, 0, gpu.memory));
      return card;
    }));
    byId("pool-status").append(" · " + pool.members.length + " servers · " + pool.waiting + " requests wait");
  };

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
      throw new Error((await answer.json().catch(() => ({}))).error || "status " + answer.status);
    return answer.json();
  };

  const look = async () => {
    try {
      const [server, gpus, sessions] = await Promise.all([get("server"), get("gpus"), get("sessions")]);
      showServer(server);
      showGpus(gpus.gpus);
      showSessions(sessions.sessions);
      if (server.pool)
        showPool(await get("pool"));
      say(server.ready ? "Ready for new sessions" : "Not ready: " + server.why, !server.ready);
    } catch (error) {
      say("No answer from the server (" + error.message + ")" + (shown.size ? "; what is shown is old" : ""), true);
    }
    setTimeout(look, PERIOD_MS);
  };
  look();
})();
