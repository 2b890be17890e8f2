// The list of sessions: rows that change are replaced where they are, and keep the focus.
import {element, live} from "./app.js";

const table = document.querySelector("table.sessions");
const said = document.getElementById("said");
const changed = document.getElementById("changed");
let waiting = [], timer = 0;

// say tells those who do not see the list what has changed, at most every ten seconds.
function say(text) {
  waiting.push(text);
  if (timer) return;
  timer = setTimeout(() => {
    const more = waiting.length - 3;
    said.textContent = waiting.slice(0, 3).join(". ") + (more > 0 ? ". " + more + " more have changed" : "");
    waiting = [];
    timer = setTimeout(() => {
      timer = 0;
      if (waiting.length) say(waiting.pop());
    }, 9000);
  }, 1000);
}

// replace puts a row in place of the one of the same key.
function replace(key, html) {
  const old = document.getElementById("s-" + key);
  if (!old) return;
  const row = element("<table><tbody>" + html + "</tbody></table>").querySelector("tr");
  const focus = old.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  row.classList.add("fresh");
  old.replaceWith(row);
  if (focus) row.querySelector(`[data-focus="${focus}"]`)?.focus({preventScroll: true});
}

// tell shows that the list is another one by now, with a link that loads it.
function tell(text) {
  changed.querySelector("a").textContent = text;
  changed.hidden = false;
}

if (table) {
  live(table.dataset.live, {
    rows({rows, others, anew}) {
      for (const {key, html, says} of rows ?? []) {
        replace(key, html);
        if (says) say(says);
      }
      if (anew) tell("The list was made again. Show the present one");
      else if (others > 0) tell((others === 1 ? "1 other session has" : others + " other sessions have") + " changed. Show the present order");
    },
  });
}
