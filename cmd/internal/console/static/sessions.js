// The list of sessions: replace rows that change, and keep the focus.
import {element, live} from "./app.js";

const table = document.querySelector("table.sessions");
const spokenText = document.getElementById("said");
const changed = document.getElementById("changed");
let waiting = [], timer = 0;

// announce passes texts to screen readers, at most every ten seconds.
function announce(text) {
  waiting.push(text);
  if (timer) return;
  timer = setTimeout(() => {
    const more = waiting.length - 3;
    spokenText.textContent = waiting.slice(0, 3).join(". ") + (more > 0 ? ". " + more + " more have changed" : "");
    waiting = [];
    timer = setTimeout(() => {
      timer = 0;
      if (waiting.length) announce(waiting.pop());
    }, 9000);
  }, 1000);
}

// replace replaces the row with a key.
function replace(key, html) {
  const old = document.getElementById("s-" + key);
  if (!old) return;
  const row = element("<table><tbody>" + html + "</tbody></table>").querySelector("tr");
  const focus = old.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  row.classList.add("fresh");
  old.replaceWith(row);
  if (focus) row.querySelector(`[data-focus="${focus}"]`)?.focus({preventScroll: true});
}

// offerReload shows a link with a text that loads the page again.
function offerReload(text) {
  changed.querySelector("a").textContent = text;
  changed.hidden = false;
}

if (table) {
  live(table.dataset.live, {
    rows({rows, others, anew}) {
      for (const {key, html, spoken} of rows ?? []) {
        replace(key, html);
        if (spoken) announce(spoken);
      }
      if (anew) offerReload("The list was made again. Show the present one");
      else if (others > 0) offerReload((others === 1 ? "1 other session has" : others + " other sessions have") + " changed. Show the present order");
    },
  });
}
