// The page of a session: follow it, jump by keys, show the raw record beside an event, and reveal the event that the
// address names.
import {live, notice} from "./app.js";

const turns = document.getElementById("turns");
const beside = document.getElementById("beside");

// reveal opens the details around the event that the address names.
function reveal() {
  const id = decodeURIComponent(location.hash.slice(1));
  const target = id && document.getElementById(id);
  if (!target) return;
  for (let d = target.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
  const own = target.querySelector(":scope > details");
  if (own) own.open = true;
  target.scrollIntoView();
  target.focus?.({preventScroll: true});
}
window.addEventListener("hashchange", reveal);
reveal();

// folds returns which details are open, so that a refresh keeps that. The key of details is their item, and their number
// in it.
function folds() {
  const state = new Map();
  for (const d of turns.querySelectorAll("details")) state.set(keyOf(d), d.open);
  return state;
}

function keyOf(details) {
  const item = details.closest("[id]");
  const all = [...item.querySelectorAll("details")];
  return item.id + "/" + all.indexOf(details);
}

async function refresh() {
  const address = new URL(location.href);
  address.searchParams.set("part", "live");
  address.hash = "";
  const answer = await fetch(address, {headers: {Accept: "application/json"}});
  if (!answer.ok) throw new Error("status " + answer.status);
  const parts = await answer.json();
  const state = folds(), focus = document.activeElement?.closest?.("#turns [id]")?.id;
  const atEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
  document.getElementById("heading").innerHTML = parts.heading;
  turns.innerHTML = parts.turns;
  for (const d of turns.querySelectorAll("details")) {
    const open = state.get(keyOf(d));
    if (open !== undefined) d.open = open;
  }
  if (focus) document.getElementById(focus)?.focus({preventScroll: true});
  if (atEnd) window.scrollTo(0, document.body.scrollHeight);
}

// Follow the session, one refresh at a time.
let busy = false, again = false;
async function more() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    do {
      again = false;
      await refresh();
    } while (again);
  } catch (e) {
    notice("What is new could not be loaded: " + e.message + ". Load the page again.", "warn");
  }
  busy = false;
  if (turns.querySelector("a[rel=next]")) { // the page is full
    end();
    notice("The session goes on on the next page.");
  }
}
let end = () => {};
if (turns.dataset.live) {
  end = live(turns.dataset.live, {
    more,
    other: () => notice("Another generation is live now: load the page again.", "warn"),
  });
}

// The raw record beside an event.
async function show(link) {
  const address = new URL(link.href);
  address.searchParams.set("part", "beside");
  try {
    const answer = await fetch(address, {headers: {Accept: "application/json"}});
    if (!answer.ok) throw new Error("status " + answer.status);
    beside.innerHTML = (await answer.json()).html;
  } catch (e) {
    notice("The event could not be loaded: " + e.message, "warn");
    return;
  }
  const close = document.createElement("button");
  close.textContent = "Close";
  close.className = "close";
  close.addEventListener("click", () => hide(link));
  beside.prepend(close);
  beside.hidden = false;
  close.focus();
}

function hide(link) {
  beside.hidden = true;
  beside.replaceChildren();
  link?.focus();
}

let shown = null;
turns.addEventListener("click", (e) => {
  const link = e.target.closest("a[data-beside]");
  if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button !== 0) return;
  e.preventDefault();
  shown = link;
  show(link);
});

// Keys: t and T to the next and the previous turn, x and X error, e and E edit, o opens or folds, r the raw record, n and p pages.
const jumps = {t: ".turn", x: ".item.failed, .item.error", e: ".item.edit"};

function jump(selector, back) {
  const list = [...turns.querySelectorAll(selector)];
  if (back) list.reverse();
  const edge = 60; // below the bar of the page
  const current = document.activeElement?.closest?.(selector);
  let next;
  if (current) next = list[list.indexOf(current) + 1];
  else next = list.find((i) => (back ? i.getBoundingClientRect().top < edge - 4 : i.getBoundingClientRect().top > edge + 4));
  if (!next) {
    notice(back ? "There is none before, on this page." : "There is no other on this page.");
    return;
  }
  for (let d = next.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
  next.scrollIntoView();
  next.focus({preventScroll: true});
}

document.addEventListener("keydown", (e) => {
  if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || e.target.closest?.("input, select, textarea, [contenteditable]")) return;
  const selector = jumps[e.key.toLowerCase()];
  const item = document.activeElement?.closest?.(".item");
  if (e.key === "Escape" && !beside.hidden) hide(shown);
  else if (selector) jump(selector, e.key !== e.key.toLowerCase());
  else if (e.key === "o" && item) {
    const own = item.matches("details") ? item : item.querySelector("details");
    if (own) own.open = !own.open;
  } else if (e.key === "r" && item) {
    const link = item.querySelector("a[data-beside]");
    if (link) show(shown = link);
  } else if (e.key === "n" || e.key === "p") {
    document.querySelector(`a[rel=${e.key === "n" ? "next" : "prev"}]`)?.click();
  } else if (e.key === "?") {
    notice("t turn · x error · e edit, with Shift back · o open or fold · r raw record · n p next and previous page");
  }
});
