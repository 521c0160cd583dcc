// The page works without this. With it, what changes is shown without a reload, and there are a few keys.
"use strict";
(() => {
  const state = document.getElementById("state");
  const announce = document.getElementById("announce");
  const LEAST = 1000; // milliseconds between two reloads of the content
  const IDLE = 10000; // ages, and what is told in no change, grow old meanwhile; soon after a change they do so faster
  let idle = LEAST;
  let last = Date.now();
  let waiting = null;
  let busy = false;

  const say = (name, text) => {
    state.className = "state " + name;
    state.textContent = text;
  };

  // The same address again; only the part that lives is taken from it.
  const refresh = async () => {
    waiting = null;
    if (busy) return soon();
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = fresh.getElementById("live");
      if (next) replace(next, fresh.title);
    } catch {
      say("lost", "cannot be reached");
    } finally {
      busy = false;
      last = Date.now();
    }
  };

  const soon = () => {
    if (waiting === null && !document.hidden) {
      waiting = setTimeout(refresh, Math.max(0, last + LEAST - Date.now()));
    }
  };

  const rows = (root) => new Map(Array.from(root.querySelectorAll("tbody tr"), (row) => {
    const link = row.querySelector("th a");
    return [link ? link.getAttribute("href") : row.textContent, row];
  }));

  const replace = (next, title) => {
    const live = document.getElementById("live");
    const before = rows(live);
    const focus = document.activeElement;
    const kept = live.contains(focus) ? focus.getAttribute("href") : null;
    const scrolls = Array.from(live.querySelectorAll(".scroll"), (box) => box.scrollLeft);
    live.replaceWith(next);
    document.title = title;
    for (const [key, row] of rows(next)) {
      const old = before.get(key);
      if (!old || old.className.replace(" fresh", "") !== row.className) row.classList.add("fresh");
    }
    next.querySelectorAll(".scroll").forEach((box, index) => { box.scrollLeft = scrolls[index] || 0; });
    if (kept !== null) {
      const again = Array.from(next.querySelectorAll("a")).find((link) => link.getAttribute("href") === kept);
      (again || document.getElementById("main")).focus({ preventScroll: true });
    }
  };

  let changes = null;
  const listen = () => {
    changes = new EventSource(document.body.dataset.changes);
    changes.addEventListener("hello", () => say("live", "live"));
    changes.addEventListener("change", (event) => {
      idle = LEAST;
      announce.textContent = JSON.parse(event.data).text;
      soon();
    });
    changes.addEventListener("missed", soon);
    changes.onerror = () => say("lost", "not live, trying again");
  };
  listen();
  // A page that is kept for the way back would keep its connection too, and a browser has only six for one place.
  addEventListener("pagehide", () => changes.close());
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    listen();
    soon();
  });
  setInterval(() => {
    if (Date.now() - last < idle) return;
    idle = Math.min(idle * 2, IDLE);
    soon();
  }, LEAST / 2);
  document.addEventListener("visibilitychange", soon);

  const step = (by) => {
    const links = Array.from(document.querySelectorAll("#live tbody th a"));
    if (links.length === 0) return;
    const at = links.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1);
    links[next].focus();
  };

  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const search = document.getElementById("search");
    if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
  });
})();
