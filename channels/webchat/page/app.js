// The chat page. It shows what the server says was said, sends what is typed,
// and keeps both right over lost connections: a message has an id of its own,
// so sending it again is safe, and the stream goes on from the last event seen.
"use strict";

const $ = (id) => document.getElementById(id);
const scroll = $("scroll"), log = $("log"), typing = $("typing"), welcome = $("welcome");
const composer = $("composer"), text = $("text"), send = $("send"), state = $("state");
const down = $("down"), login = $("login");

const STALE = 50_000;       // the server beats every 20 s; after this the line is dead
const TYPING_FOR = 8_000;   // the server repeats it every few seconds
const RETRIES = 3;          // silent attempts before a message counts as failed

// ---- talking to the server

class Refused extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
}

async function call(path, body) {
  const json = JSON.stringify(body ?? {});
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: json,
    keepalive: json.length < 15_000, // sent even if the page closes meanwhile; browsers bound what they do so for
    signal: AbortSignal.timeout(30_000),
  });
  const data = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, data.error || "The server did not accept that.");
  return data;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const backoff = (n) => Math.min(15_000, 500 * 2 ** n) * (0.75 + Math.random() / 2);

// ---- the connection

let source = null, cursor = 0, heard = 0, attempts = 0, timer = 0, loading = null, replaced = false;

function show(kind, words) {
  if (state.dataset.state === kind && state.textContent === words) return;
  state.dataset.state = kind;
  state.textContent = words;
}

// start loads the conversation and follows it from there.
function start() {
  loading ??= load().finally(() => { loading = null; });
  return loading;
}

async function load() {
  stop();
  try {
    const session = await call("/api/session");
    draw(session.lines ?? []);
    cursor = session.cursor;
    attempts = 0;
    follow();
    flush();
  } catch (err) {
    if (err.status === 401) return askToken();
    again(err instanceof Refused ? err.message : "");
  }
}

function stop() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

// again tries to connect once more, later.
function again(sentence) {
  stop();
  show(navigator.onLine && attempts < 2 ? "connecting" : "offline", sentence || (attempts < 2 ? "Connecting…" : "Offline, trying again…"));
  timer = setTimeout(start, backoff(attempts++));
}

function follow() {
  const es = source = new EventSource(`/api/events?after=${cursor}`);
  const on = (name, handle) => es.addEventListener(name, (ev) => {
    if (es !== source) return;
    heard = Date.now();
    if (ev.lastEventId) cursor = Math.max(cursor, Number(ev.lastEventId));
    handle(ev.data ? JSON.parse(ev.data) : {});
  });
  es.onopen = () => { heard = Date.now(); attempts = 0; replaced = false; show("online", "Connected"); };
  es.onerror = () => {
    if (es !== source) return;
    if (es.readyState === EventSource.CLOSED) again();
    else show("connecting", "Reconnecting…");
  };
  on("ping", () => {});
  on("message", receive);
  on("typing", showTyping);
  on("clear", ({ before }) => clearBefore(before));
  on("retract", ({ id }) => retract(id));
  on("reset", start);
  on("replaced", () => { stop(); replaced = true; show("offline", "Open in another tab"); });
}

// A line can die without a word, for example while a laptop sleeps.
setInterval(() => {
  if (source && Date.now() - heard > STALE && source.readyState === EventSource.OPEN) again();
}, 5_000);
window.addEventListener("online", () => { if (!source || source.readyState !== EventSource.OPEN) start(); });
window.addEventListener("offline", () => show("offline", "Offline"));
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  unread(0);
  if (replaced || !source || source.readyState === EventSource.CLOSED) start();
});
window.addEventListener("focus", () => { unread(0); if (replaced) start(); });

// ---- the log

const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat([], { weekday: "long", day: "numeric", month: "long" });

// draw shows the whole conversation anew. What is not sent yet stays.
function draw(lines) {
  const known = new Set(lines.map((l) => l.id).filter(Boolean));
  const unsent = [...log.querySelectorAll(".user.pending, .user.failed")].filter((n) => !known.has(n.dataset.id));
  log.setAttribute("aria-busy", "true");
  log.replaceChildren();
  for (const line of lines) append(line);
  log.append(...unsent);
  log.removeAttribute("aria-busy");
  hideTyping();
  refresh();
  toEnd();
}

function refresh() {
  welcome.hidden = log.childElementCount > 0;
}

function append(line) {
  const node = line.role === "user" ? userNode(line) : assistantNode(line);
  separateDays(line.time);
  log.append(node);
  return node;
}

// separateDays puts the date between messages of different days.
function separateDays(time) {
  const day = new Date(time).toDateString();
  const last = [...log.querySelectorAll("[data-day]")].at(-1)?.dataset.day ?? new Date().toDateString();
  if (day === last) return;
  const mark = document.createElement("div");
  mark.className = "day";
  mark.dataset.day = day;
  mark.textContent = day === new Date().toDateString() ? "Today" : date.format(time);
  log.append(mark);
}

function stamp(node, line) {
  if (line.seq) node.dataset.seq = line.seq;
  node.dataset.day = new Date(line.time).toDateString();
  const t = node.querySelector("time");
  t.dateTime = new Date(line.time).toISOString();
  t.textContent = clock.format(line.time);
  return node;
}

function userNode(line) {
  const node = $("user-template").content.firstElementChild.cloneNode(true);
  node.querySelector(".bubble").textContent = line.text;
  if (line.id) node.dataset.id = line.id;
  node.classList.toggle("command", /^\/\w+\s*$/.test(line.text));
  return stamp(node, line);
}

function assistantNode(line) {
  const node = $("assistant-template").content.firstElementChild.cloneNode(true);
  const body = node.querySelector(".body");
  body.innerHTML = line.html; // rendered and sanitised by the server
  body.querySelectorAll("pre").forEach(frameCode);
  body.querySelectorAll("table").forEach((table) => wrap(table, "table").setAttribute("tabindex", "0"));
  return stamp(node, line);
}

function wrap(node, name) {
  const box = document.createElement("div");
  box.className = name;
  node.replaceWith(box);
  box.append(node);
  return box;
}

function frameCode(pre) {
  const language = /language-(\S+)/.exec(pre.firstElementChild?.className ?? "")?.[1] ?? "";
  const head = document.createElement("div");
  head.className = "code-head";
  const label = document.createElement("span");
  label.textContent = language;
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "copy";
  copy.textContent = "Copy";
  copy.addEventListener("click", async () => {
    copy.textContent = (await toClipboard(pre.textContent)) ? "Copied" : "Not copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1600);
  });
  head.append(label, copy);
  pre.tabIndex = 0; // can be scrolled with the keyboard
  wrap(pre, "code").prepend(head);
}

async function toClipboard(words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch { // not offered outside of https and localhost
    const box = document.createElement("textarea");
    box.value = words;
    box.className = "off-screen";
    document.body.append(box);
    box.select();
    const ok = document.execCommand("copy");
    box.remove();
    return ok;
  }
}

// receive shows one message from the stream.
function receive(line) {
  if (line.seq && log.querySelector(`[data-seq="${line.seq}"]`)) return;
  const own = line.id && log.querySelector(`[data-id="${CSS.escape(line.id)}"]`);
  if (own) return sent(own, line);
  const follows = atEnd();
  if (line.role === "assistant") {
    hideTyping();
    if (document.hidden) unread(waiting + 1);
  }
  append(line);
  refresh();
  if (follows) toEnd();
  else offerDown("New message");
}

function clearBefore(seq) {
  for (const node of [...log.children]) {
    if (Number(node.dataset.seq) >= seq) break;
    if (!node.matches(".pending, .failed")) node.remove();
  }
  refresh();
}

function retract(id) {
  const node = log.querySelector(`[data-id="${CSS.escape(id)}"]`);
  if (node && !node.matches(".pending, .failed")) node.remove();
  refresh();
}

// ---- typing, scrolling, title

let typingTimer = 0;
function showTyping() {
  const follows = atEnd();
  typing.hidden = false;
  clearTimeout(typingTimer);
  typingTimer = setTimeout(hideTyping, TYPING_FOR);
  if (follows) toEnd();
}
function hideTyping() {
  clearTimeout(typingTimer);
  typing.hidden = true;
}

const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
function toEnd() {
  scroll.scrollTop = scroll.scrollHeight;
  down.hidden = true;
}
function offerDown(words) {
  $("down-text").textContent = words;
  down.hidden = false;
}
scroll.addEventListener("scroll", () => {
  if (atEnd()) down.hidden = true;
  else if (down.hidden && scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight > 600) offerDown("Latest");
}, { passive: true });
down.addEventListener("click", toEnd);
// The keyboard of a phone makes the page smaller: stay where the talk is.
new ResizeObserver(() => { if (down.hidden) toEnd(); }).observe(scroll);

let waiting = 0;
function unread(n) {
  waiting = n;
  document.title = n ? `(${n}) Dragoman` : "Dragoman";
}

// ---- sending: one at a time, so that the order is the order of writing

const queue = [];
let sending = false;

function write(words) {
  const node = append({ role: "user", id: crypto.randomUUID?.() ?? randomID(), text: words, time: Date.now() });
  mark(node, "pending", "Sending…");
  refresh();
  toEnd();
  queue.push(node);
  flush();
}

function randomID() { // crypto.randomUUID is not offered outside of https and localhost
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

async function flush() {
  if (sending) return;
  sending = true;
  while (queue.length) await deliver(queue.shift());
  sending = false;
}

async function deliver(node) {
  const body = { id: node.dataset.id, text: node.querySelector(".bubble").textContent };
  for (let n = 0; ; n++) {
    if (!node.matches(".pending")) return; // the stream has shown that it arrived
    try {
      return sent(node, await call("/api/messages", body));
    } catch (err) {
      const final = err instanceof Refused && err.status < 500;
      if (err.status === 401) askToken();
      if (err.status === 409) await start(); // the cookie is gone: a new conversation
      if ((final && err.status !== 409) || n + 1 >= RETRIES) {
        return mark(node, "failed", err instanceof Refused ? err.message : "Not sent: no connection.");
      }
    }
    await pause(backoff(n));
  }
}

function sent(node, line) {
  mark(node, "", "");
  stamp(node, line);
}

function mark(node, kind, words) {
  node.classList.toggle("pending", kind === "pending");
  node.classList.toggle("failed", kind === "failed");
  node.querySelector(".status").textContent = words;
  const retry = node.querySelector(".retry");
  retry.hidden = kind !== "failed";
  retry.onclick = () => { mark(node, "pending", "Sending…"); queue.push(node); flush(); };
}

// ---- the composer

const finger = window.matchMedia("(hover: none) and (pointer: coarse)");

function grow() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
  send.disabled = !text.value.trim();
}
text.addEventListener("input", grow);
text.addEventListener("keydown", (ev) => {
  if (ev.key !== "Enter" || ev.shiftKey || ev.isComposing || finger.matches) return;
  ev.preventDefault();
  composer.requestSubmit();
});
composer.addEventListener("submit", (ev) => {
  ev.preventDefault();
  const words = text.value.trim();
  if (!words) return;
  text.value = "";
  grow();
  write(words);
  text.focus();
});
for (const chip of document.querySelectorAll(".chip")) {
  chip.addEventListener("click", () => { write(chip.textContent); if (!finger.matches) text.focus(); });
}
$("new").addEventListener("click", () => { write("/new"); if (!finger.matches) text.focus(); });

// ---- logging in

function askToken() {
  stop();
  show("offline", "Not logged in");
  if (!login.open) login.showModal();
}
login.addEventListener("cancel", (ev) => ev.preventDefault());
$("login-form").addEventListener("submit", async (ev) => {
  ev.preventDefault();
  const error = $("login-error");
  error.textContent = "";
  try {
    await call("/api/login", { token: $("token").value });
    $("token").value = "";
    login.close();
    start();
    text.focus();
  } catch (err) {
    error.textContent = err instanceof Refused ? err.message : "No connection. Please try again.";
    $("token").select();
  }
});

grow();
start();
if (!finger.matches) text.focus();
