// The script of every page. Views import live and notice from here.

// live keeps a stream of events open while the page is visible, and returns a function that ends it. handlers has a
// function for each name of an event, which gets the value of the event. An interrupted stream continues after the last
// event.
export function live(address, handlers) {
  let source = null, timer = 0, last = "", over = false;
  const url = () => last ? address + (address.includes("?") ? "&" : "?") + "last=" + encodeURIComponent(last) : address;
  function open() {
    if (over || source || document.hidden) return;
    const opened = source = new EventSource(url());
    for (const [name, handle] of Object.entries(handlers)) {
      opened.addEventListener(name, (e) => {
        if (e.lastEventId) last = e.lastEventId;
        handle(JSON.parse(e.data));
      });
    }
    opened.addEventListener("problem", (e) => {
      const {text, cure} = JSON.parse(e.data);
      notice(cure ? text + ": " + cure : text, "bad");
      end();
    });
    opened.onopen = () => document.body.classList.remove("cut");
    opened.onerror = () => {
      document.body.classList.add("cut");
      if (opened.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      close();
      timer = setTimeout(open, 5000); // refused: too many streams, or the console is away
    };
  }
  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }
  function seen() {
    if (document.hidden) close(); else open();
  }
  function end() {
    over = true;
    close();
    document.removeEventListener("visibilitychange", seen);
  }
  document.addEventListener("visibilitychange", seen);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", seen);
  open();
  return end;
}

// notice shows a line for some seconds; screen readers read it. kind is "", "good", "warn" or "bad".
export function notice(text, kind = "") {
  const line = document.createElement("p");
  line.className = "notice " + kind;
  line.textContent = text;
  document.getElementById("notices").append(line);
  setTimeout(() => line.remove(), 8000);
}

// element makes an element of a block of HTML of this console.
export function element(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

// ago writes how long ago a time was. The texts of such times are kept current.
function ago(seconds) {
  if (seconds < 60) return Math.max(0, Math.floor(seconds)) + " s ago";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min ago";
  if (seconds < 48 * 3600) return Math.floor(seconds / 3600) + " h ago";
  return Math.floor(seconds / 86400) + " days ago";
}

setInterval(() => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const text = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);

// Empty fields of a filter stay out of the address.
for (const form of document.querySelectorAll("form.filter")) {
  form.addEventListener("formdata", (e) => {
    for (const [name, value] of [...e.formData]) if (value === "") e.formData.delete(name);
  });
}

// Keys: / goes to the first field of a filter or search, g and the first letter of a view opens it, ? lists the keys.
let pressed = "";
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest?.("input, select, textarea, [contenteditable]")) return;
  const links = [...document.querySelectorAll("header.bar nav a")];
  if (pressed === "g") {
    const link = links.find((a) => a.textContent.toLowerCase().startsWith(e.key));
    if (link) {
      e.preventDefault();
      link.click();
    }
  } else if (e.key === "/") {
    const field = document.querySelector("main input[type=search], main form.filter input:not([type=hidden])");
    if (field) {
      e.preventDefault();
      field.closest("details")?.setAttribute("open", "");
      field.focus();
    }
  } else if (e.key === "?") {
    notice("/ search or filter · g o overview · g s sessions · g t tools · g p pipeline");
  }
  pressed = e.key === "g" && pressed !== "g" ? "g" : "";
});
