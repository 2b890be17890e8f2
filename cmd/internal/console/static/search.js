// The hits of a search, appended to the page as they are found.
import {element, live, notice} from "./app.js";

const hits = document.getElementById("hits");
const covers = document.getElementById("covers");
let end = null;

// search continues a search at an address, until the stream has its event "end".
function search(address) {
  end?.();
  end = live(address, {
    hit({html}) {
      const hit = element(html);
      if (!hits.querySelector(`[data-key="${CSS.escape(hit.dataset.key)}"]`)) hits.append(hit);
    },
    progress({html}) { show(html); },
    end({html}) {
      end();
      show(html);
      notice(`${hits.children.length} hits`);
    },
  });
}

function show(html) {
  covers.replaceChildren(element(html));
}

if (hits && covers) {
  const first = covers.querySelector("[data-live]");
  if (first.dataset.live && first.dataset.stop === "time") search(first.dataset.live);
  covers.addEventListener("click", (e) => {
    const more = e.target.closest("#more");
    if (!more || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    search(more.closest("[data-live]").dataset.live);
    more.remove();
  });
}
