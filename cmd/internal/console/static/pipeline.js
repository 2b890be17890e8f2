// The pipeline: keep its sections current, and show the progress of a comparison of generations.
import {live, notice} from "./app.js";

const sections = document.querySelector("[data-pipeline]");
if (sections) {
  live(sections.dataset.pipeline, {section: ({name, html}) => update(sections.querySelector(`[data-section="${name}"]`), html)});
}

// update replaces the content of a section. Open details stay open, and the focus stays on the same link. A section with a
// selection is not replaced.
function update(section, html) {
  const selected = document.getSelection();
  if (!section || !selected.isCollapsed && section.contains(selected.anchorNode)) return;
  const link = section.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const folded = [...section.querySelectorAll("details")].map((d) => d.open), summary = section.contains(document.activeElement) && document.activeElement.localName === "summary";
  section.innerHTML = html;
  section.querySelectorAll("details").forEach((d, i) => { d.open = folded[i] ?? d.open; });
  if (summary) section.querySelector("summary")?.focus();
  if (link) [...section.querySelectorAll("a")].find((a) => a.getAttribute("href") === link)?.focus();
}

const form = document.querySelector("form[data-diff]");
if (form) {
  const progress = document.getElementById("progress"), result = document.getElementById("result"), button = form.querySelector("button");
  const bar = progress.querySelector("progress"), text = progress.querySelector("p");
  let source = null;
  const end = () => {
    source?.close();
    source = null;
    progress.hidden = true;
    button.disabled = false;
  };
  const count = (n) => n.toLocaleString("en");
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    end();
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    history.replaceState(null, "", form.action + "?" + query);
    result.replaceChildren();
    text.textContent = "The comparison begins.";
    bar.removeAttribute("value");
    progress.hidden = false;
    button.disabled = true;
    source = new EventSource(form.dataset.diff + "?" + query);
    source.addEventListener("waiting", () => { text.textContent = "Another comparison is running: this one waits for it."; });
    source.addEventListener("progress", (e) => {
      const {read, total} = JSON.parse(e.data);
      if (!read) return;
      text.textContent = `${count(read)} of about ${count(total)} events were read.`;
      bar.max = Math.max(read, total);
      bar.value = read;
    });
    source.addEventListener("result", (e) => {
      end();
      result.innerHTML = JSON.parse(e.data).html;
    });
    source.addEventListener("problem", (e) => {
      end();
      const {text, cure} = JSON.parse(e.data);
      notice(cure ? text + ": " + cure : text, "bad");
    });
    source.onerror = () => {
      end();
      notice("The comparison was cut: ask for it again.", "bad");
    };
  });
}
