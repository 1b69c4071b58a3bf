// The conversations of test/interop/run. Every check says what it saw; the exit
// code is 1 if one failed.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import TelegramServer from "telegram-test-api";
import { LLMock } from "@copilotkit/aimock";

const TOKEN = "4242:AAinteropinteropinteropinterop";
const KEY = "sk-interop-0123456789";
const BOT = "TestNameBot"; // what telegram-test-api calls every bot
const GROUP = -1001234;

// ---- reporting

const failures = [];
function check(what, ok, saw = "") {
  console.log(`${ok ? "ok  " : "FAIL"}  ${what}${ok ? "" : `: ${typeof saw === "string" ? saw : JSON.stringify(saw)}`}`);
  if (!ok) failures.push(what);
}

async function until(what, ready, ms = 15_000) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await ready();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}

async function freePort() {
  const s = createServer().listen(0, "127.0.0.1");
  await once(s, "listening");
  const { port } = s.address();
  s.close();
  await once(s, "close");
  return port;
}

// ---- Telegram

const telegram = new TelegramServer({ port: await freePort(), host: "127.0.0.1", storeTimeout: 600 });
const calls = []; // of the bot: what it asked for and how it was answered
async function openTelegram() {
  await telegram.start();
  telegram.server.on("request", (req, res) => res.on("finish", () => {
    const method = new RegExp(`^/bot${TOKEN}/(\\w+)`).exec(req.url)?.[1];
    if (method) calls.push({ method, status: res.statusCode, body: req.body, time: Date.now() });
  }));
}
await openTelegram();

// A person in a chat.
class Person {
  constructor(userId, name, chatId = userId) {
    this.chatId = chatId;
    this.client = telegram.getClient(TOKEN, { userId, chatId, firstName: name, userName: name.toLowerCase(), type: chatId < 0 ? "supergroup" : "private" });
  }

  async says(text, more = {}) {
    const command = text?.startsWith("/") && !more.entities;
    await this.client[command ? "sendCommand" : "sendMessage"](this.client[command ? "makeCommand" : "makeMessage"](text, more));
  }

  // What the bot has said in this chat, all of it.
  heard() {
    return telegram.storage.botMessages.filter((m) => String(m.message.chat_id) === String(this.chatId)).map((m) => m.message);
  }

  async asks(text, more, ms) {
    const before = this.heard().length;
    await this.says(text, more);
    return (await until(`an answer to ${JSON.stringify(text)}`, () => this.heard().length > before && this.heard()[before], ms));
  }
}

// ---- the model

const model = new LLMock({ port: 0, strict: true, auth: { apiKeys: [KEY] }, journalMaxEntries: 0 });
await model.start();
const asked = () => model.getRequests().filter((r) => r.path === "/v1/chat/completions");
const round = (userMessage, toolCalls, content) => {
  model.on({ userMessage, hasToolResult: false }, { toolCalls });
  model.on({ userMessage, hasToolResult: true }, { content });
};

// ---- the daemon

const home = mkdtempSync(join(process.cwd(), "home-"));
const health = `127.0.0.1:${await freePort()}`;
writeFileSync(join(home, "config.yaml"), `
data_dir: ${home}/data
timezone: Europe/Berlin
agent: {turns_per_minute: 0}
models: {main: {provider: openai, base_url: "${model.url}/v1", api_key: "\${INTEROP_KEY}", model: gpt-interop}}
channels:
  telegram: {token: "\${INTEROP_TOKEN}", api_base: "${telegram.config.apiURL}", allow_users: ["1", "2"], rate: {global_per_sec: 0, per_chat_per_sec: 0, per_group_per_min: 0}}
log: {level: debug}
health: {listen: "${health}"}
`);
let log = "";

async function start() {
  const began = Date.now();
  const daemon = spawn(process.argv[2], ["gateway", "--config", join(home, "config.yaml")], {
    env: { HOME: home, PATH: process.env.PATH, INTEROP_TOKEN: TOKEN, INTEROP_KEY: KEY },
    stdio: ["ignore", "pipe", "pipe"],
  });
  for (const out of [daemon.stdout, daemon.stderr]) out.on("data", (b) => { log += b; });
  daemon.ended = once(daemon, "exit");
  await until("the daemon to be ready", async () => {
    if (daemon.exitCode !== null) throw new Error(`the daemon ended: ${log}`);
    return fetch(`http://${health}/readyz`).then((r) => r.ok, () => false);
  });
  console.log(`      ready after ${Date.now() - began} ms`);
  return daemon;
}

async function stop(daemon) {
  daemon.kill("SIGTERM");
  const [code, signal] = await daemon.ended;
  check("SIGTERM ends it with 0", code === 0, `${code} ${signal}`);
}

// ---- the conversations

const ann = new Person(1, "Ann"), bob = new Person(2, "Bob"), eve = new Person(3, "Eve");
const typing = () => calls.filter((c) => c.method === "sendChatAction" && c.body.chat_id === "1").length; // in Ann's chat
const last = (list) => list[list.length - 1];
const entitiesOf = (m) => (m.entities ?? []).map((e) => [e.type, m.text.slice(e.offset, e.offset + e.length)]); // JavaScript's strings are UTF-16, as Telegram's offsets

async function basics() {
  model.onMessage("hello", { content: "Good day 🙂, *Ann*. Here is **bold 🚀 text**, `code` and [a link](https://example.org/a_b)." });
  const m = await ann.asks("hello");
  check("a private message is answered", m.text === "Good day 🙂, Ann. Here is bold 🚀 text, code and a link.", m);
  check("markup is entities, at the right UTF-16 offsets", JSON.stringify(entitiesOf(m)) === JSON.stringify([["italic", "Ann"], ["bold", "bold 🚀 text"], ["code", "code"], ["text_link", "a link"]]), entitiesOf(m));
  check("link previews are off", JSON.parse(m.link_preview_options).is_disabled === true, m);
  check("a private answer quotes nothing", m.reply_parameters === undefined, m);
  const stranger = await eve.asks("hello");
  check("a stranger is told their id, without the model", stranger.text.includes("3") && !asked().some((r) => JSON.stringify(r.body).includes("Eve")), stranger);
  const told = eve.heard().length;
  await eve.says("hello again");
  await ann.asks("/help");
  await ann.asks("hello once more");
  check("a stranger is told once", eve.heard().length === told, eve.heard());
}

async function tools() {
  round("keep a note", [
    { id: "call_w", name: "write_file", arguments: { path: "notes/a.txt", content: "buy milk\n" } },
  ], "Kept it.");
  check("write_file, then text", (await ann.asks("keep a note")).text === "Kept it.");
  round("what do I have", [
    { id: "call_l", name: "list_dir", arguments: { path: "notes" } },
    { id: "call_r", name: "read_file", arguments: { path: "notes/a.txt" } },
  ], "A note that says milk.");
  check("two tools in one reply, then text", (await ann.asks("what do I have?")).text === "A note that says milk.");
  const results = asked().at(-1).body.messages.filter((m) => m.role === "tool").slice(-2);
  check("their results come back under their ids", results[0]?.tool_call_id === "call_l" && results[0].content.includes("a.txt") && results[1]?.tool_call_id === "call_r" && results[1].content.includes("buy milk"), results);

  round("read somebody's file", [{ id: "call_x", name: "read_file", arguments: { path: "../../../../etc/passwd" } }], "I may not.");
  await ann.asks("read somebody's file");
  check("a path out of the workspace is refused", !JSON.stringify(asked().at(-1).body).includes("root:"), asked().at(-1).body.messages.at(-1));
  round("what does Ann have", [{ id: "call_b", name: "list_dir", arguments: {} }], "Nothing.");
  await bob.asks("what does Ann have?");
  check("another chat sees none of it", !JSON.stringify(asked().at(-1).body).includes("notes"), asked().at(-1).body.messages);
  round("use a tool wrongly", [{ id: "call_e", name: "read_file", arguments: { file: 7 } }, { id: "call_u", name: "no_such_tool", arguments: {} }], "I did it wrong.");
  check("wrong arguments and an unknown tool do not end the turn", (await ann.asks("use a tool wrongly")).text === "I did it wrong.");
  console.log(`      the model is told: ${asked().at(-1).body.messages.slice(-2).map((m) => JSON.stringify(m.content)).join(" and ")}`);

  round("remind me", [{ id: "call_m", name: "remind", arguments: { delay: "2s", text: "stretch" } }], "I will.");
  const before = ann.heard().length;
  check("remind, then text", (await ann.asks("remind me to stretch in two seconds")).text === "I will.");
  await until("the reminder", () => ann.heard().length >= before + 2);
  check("the reminder comes by itself, in its chat", ann.heard().at(-1).text === "⏰ stretch", ann.heard().at(-1));

  round("take your time", [{ id: "call_s", name: "message", arguments: { content: "One moment." } }], "Done.");
  const from = ann.heard().length;
  await ann.says("please take your time");
  await until("both messages", () => ann.heard().length >= from + 2);
  check("the message tool speaks before the answer", ann.heard().slice(from).map((m) => m.text).join("|") === "One moment.|Done.", ann.heard().slice(from));
}

async function background() {
  round("count the sheep", [{ id: "call_sp", name: "spawn", arguments: { task: "count them, one by one", label: "sheep" } }], "Counting.");
  model.onMessage('The background task "sheep" has finished', { content: "There are 4711 sheep." });
  model.onMessage("one by one", { content: "4711 sheep" });
  const from = ann.heard().length;
  await ann.says("count the sheep");
  await until("the result", () => ann.heard().length >= from + 2);
  check("a task in the background comes back as a turn of its own", ann.heard().slice(from).map((m) => m.text).join("|") === "Counting.|There are 4711 sheep.", ann.heard().slice(from));

  model.on({ userMessage: "never ends", toolName: "list_dir" }, () => ({ toolCalls: [{ id: `call_${Math.random()}`, name: "list_dir", arguments: "{}" }] }));
  model.onMessage("made all the tool calls", { content: "I had to stop looking." });
  const requests = asked().length;
  const m = await ann.asks("this never ends");
  check(`a model that never stops calling tools has to answer (${asked().length - requests} requests)`, m.text === "I had to stop looking." && asked().length - requests === 21, m);
}

async function commands() {
  model.onMessage("a fresh start", { content: "Fresh." });
  await ann.asks("/new");
  await ann.asks("a fresh start");
  check("/new forgets the conversation", last(asked()).body.messages.length === 2, last(asked()).body.messages);

  model.onMessage("think for ever", async () => { await new Promise((done) => setTimeout(done, 4000)); return { content: "Too late." }; });
  const from = ann.heard().length, requests = asked().length;
  const before = typing();
  await ann.says("think for ever");
  await until("the turn to run", () => typing() > before);
  const stopped = await ann.asks("/stop");
  await ann.asks("a fresh start");
  check(`/stop stops (${JSON.stringify(stopped.text)})`, ann.heard().length === from + 2 && asked().length > requests, ann.heard().slice(from));

  const code = /send it in a private chat: \/start (\w+)/.exec(log)?.[1];
  const owner = await eve.asks(`/start ${code}`);
  check(`the code of the log makes an owner (${JSON.stringify(owner.text.split("\n")[0])})`, (await eve.asks("a fresh start")).text === "Fresh.");
  check("it works once", !(await bob.asks(`/start ${code}`)).text.includes("owner"), last(bob.heard()));
}

// What the platform may send and we cannot use must neither stop nor kill us.
async function oddities() {
  const sticker = await ann.asks(undefined, { sticker: { file_id: "s1", emoji: "🙂", width: 1, height: 1, type: "regular" } });
  check(`a sticker gets a polite answer (${JSON.stringify(sticker.text)})`, sticker.text.length > 10);
  await ann.client.sendCallback(ann.client.makeCallbackQuery("a button"));
  await ann.says("", { new_chat_members: [{ id: 9, first_name: "Zoe", is_bot: false }] });
  check("buttons and service messages do no harm", (await ann.asks("hello")).text.startsWith("Good day"));
  const joke = "read this: \u0000\ud83d <b>&amp;</b> _*[x](javascript:alert(1))";
  model.onMessage("read this", { content: "*a _b* c_ [x](javascript:alert(1)) <b>&amp;</b> `` ` `` ||y|| \\* \u202e" });
  const m = await ann.asks(joke);
  check(`markup that does not add up is sent as text (${JSON.stringify(m.text)})`, m.text.includes("<b>") && !JSON.stringify(m.entities ?? []).includes("javascript"), m);
}

async function crowd() {
  model.on({ userMessage: "my number is" }, async (req) => {
    await new Promise((done) => setTimeout(done, 700));
    return { content: `You said ${last(req.messages).content.match(/\d{4}/g).join(" and ")}.` };
  });
  const people = Array.from({ length: 40 }, (_, i) => new Person(i % 2 + 1, `P${i}`, i < 20 ? -2000 - i : -3000)); // groups of their own, and topics of one
  const at = `@${BOT}`, mention = { entities: [{ type: "mention", offset: 0, length: at.length }] };
  const began = Date.now();
  await Promise.all(people.map((p, i) => p.says(`${at} my number is ${1000 + i}`, i < 20 ? mention : { ...mention, message_thread_id: i, is_topic_message: true, chat: { is_forum: true } })));
  const answers = (p, i) => p.heard().filter((m) => i < 20 || String(m.message_thread_id) === String(i)).map((m) => m.text);
  await until("40 answers", () => people.every((p, i) => answers(p, i).length > 0));
  check(`40 conversations at once, 20 of them topics, with a model that takes 700 ms, each get their own answer (${Date.now() - began} ms)`, people.every((p, i) => answers(p, i).join() === `You said ${1000 + i}.`), people.map(answers));

  const from = ann.heard().length;
  const before = typing();
  await ann.says("my number is 5001");
  await until("the first turn to run", () => typing() > before);
  for (const n of [5002, 5003]) await ann.says(`my number is ${n}`);
  await until("an answer to the last", () => ann.heard().slice(from).some((m) => m.text.includes("5003")));
  const said = ann.heard().slice(from).map((m) => m.text);
  check(`what is added while it works is answered together (${JSON.stringify(said)})`, said.length === 2 && said.join(" ").match(/\d{4}/g).join() === "5001,5002,5003", said);
}

async function groups() {
  const annHere = new Person(1, "Ann", GROUP), bobHere = new Person(2, "Bob", GROUP);
  model.onMessage("in the group", { content: "Yes, Bob?" });
  const requests = asked().length;
  await annHere.says("nobody asked the bot, hello");
  const at = `@${BOT}`;
  const m = await bobHere.asks(`${at} are you in the group?`, { entities: [{ type: "mention", offset: 0, length: at.length }] });
  check("a mention in a group is answered, there", m.text === "Yes, Bob?" && bob.heard().every((x) => x.text !== "Yes, Bob?"), m);
  const quoted = JSON.parse(m.reply_parameters ?? "{}").message_id;
  const question = telegram.storage.userMessages.find((u) => u.message.text?.endsWith("are you in the group?"));
  check("it quotes the question", quoted === question.messageId, `${quoted}, not ${question.messageId}`);
  check("what was not addressed to it reaches no model", asked().length === requests + 1 && !JSON.stringify(asked().at(-1).body).includes("nobody asked"), asked().slice(requests));
  check("the model is told who speaks", asked().at(-1).body.messages.at(-1).content.includes("Bob:"), asked().at(-1).body.messages.at(-1));
  const help = await annHere.asks(`/help${at}`);
  check("a command with its name is answered", help.text.includes("/new") && help.reply_parameters, help);
  const reply = await annHere.asks("in the group, really?", { reply_to_message: { message_id: 7, from: { id: 666, is_bot: true, first_name: "Test First name", username: BOT }, chat: { id: GROUP, type: "supergroup" }, text: "the words of the bot" } });
  check("a reply to it is answered, and the model reads what was quoted", reply.text === "Yes, Bob?" && last(last(asked()).body.messages).content.includes("the words of the bot"), last(last(asked()).body.messages));
  const count = annHere.heard().length;
  await annHere.says("/help@OtherBot");
  await annHere.asks(`/id${at}`);
  check("another bot's command is not", annHere.heard().length === count + 1, annHere.heard().slice(count));
}

async function long() {
  const code = Array.from({ length: 150 }, (_, i) => `line ${i}: 🙂 of a rather long program`).join("\n");
  const words = Array.from({ length: 900 }, (_, i) => `word${i}`).join(" ");
  model.onMessage("a long story", { content: `${words}\n\n\`\`\`go\n${code}\n\`\`\`\n\nThe end.` });
  const from = ann.heard().length;
  await ann.says("tell me a long story");
  await until("the end", () => ann.heard().at(-1).text.endsWith("The end."));
  const parts = ann.heard().slice(from);
  check(`a long answer comes in parts Telegram takes (${parts.map((p) => p.text.length)})`, parts.length > 2 && parts.every((p) => p.text.length <= 4096 && p.text.trim() !== ""), parts.map((p) => p.text.length));
  const flat = (s) => s.replace(/\s+/g, "");
  check("nothing is lost between the parts", flat(parts.map((p) => p.text).join("")) === flat(`${words}${code}The end.`));
  check("the code is code in every part", parts.filter((p) => p.text.includes("line ")).every((p) => entitiesOf(p).some(([type, text]) => type === "pre" && text.includes("line "))), parts.map(entitiesOf));
}

async function trouble() {
  const logged = log.length;
  model.onMessage("a busy minute", { content: "Here I am." });
  let requests = asked().length;
  model.nextRequestError(429, { message: "Rate limit reached", type: "requests" });
  let from = Date.now();
  let m = await ann.asks("a busy minute");
  check("429 with Retry-After: 1 is waited out, unnoticed", m.text === "Here I am." && asked().length === requests + 2 && Date.now() - from >= 1000, `${m.text}, ${asked().length - requests} requests, ${Date.now() - from} ms`);

  for (const [name, response, most, words] of [
    ["a broken model", { error: { message: "internal boom 4711", type: "server_error" }, status: 500 }, 6, /too busy/],
    ["an overloaded model", { error: { message: "overloaded 4711", type: "overloaded" }, status: 503 }, 6, /too busy/],
    ["an hour of silence", { error: { message: "rate 4711", type: "requests" }, status: 429, retryAfter: 3600 }, 1, /too busy/],
    ["an empty purse", { error: { message: "quota 4711", type: "insufficient_quota", code: "insufficient_quota" }, status: 429 }, 1, /account/],
    ["a refused key", { error: { message: `Incorrect API key provided: ${KEY}`, type: "invalid_request_error", code: "invalid_api_key" }, status: 401 }, 1, /account/],
    ["too many words", { error: { message: "maximum context length 4711", type: "invalid_request_error", code: "context_length_exceeded" }, status: 400 }, 1, /\/new/],
  ]) {
    model.on({ userMessage: name }, response);
    requests = asked().length;
    from = Date.now();
    const before = ann.heard().length;
    m = await ann.asks(name, {}, 60_000);
    const spent = Date.now() - from, tried = asked().length - requests;
    await ann.asks("hello after it");
    const said = ann.heard().slice(before, -1).map((x) => x.text);
    check(`${name}: told once and kindly (${tried} attempts, ${spent} ms: ${JSON.stringify(m.text)})`, said.length === 1 && words.test(m.text) && !/4711|HTTP|\b[45]\d\d\b|sk-/.test(m.text) && tried <= most, { said, tried });
  }

  for (const [name, chaos] of [["a malformed answer", { malformedRate: 1 }], ["a cut line", { disconnectRate: 1 }]]) {
    model.on({ userMessage: name }, { content: "never seen" }, { chaos });
    requests = asked().length;
    from = Date.now();
    const before = ann.heard().length;
    m = await ann.asks(name, {}, 60_000);
    const spent = Date.now() - from;
    await ann.asks("hello after it");
    check(`${name}: told once and kindly (${asked().length - requests - 1} attempts, ${spent} ms: ${JSON.stringify(m.text)})`, ann.heard().length === before + 2 && !/json|eof|http/i.test(m.text), ann.heard().slice(before));
  }

  const gone = asked().length;
  model.onMessage("a slow one", async () => { await new Promise((done) => setTimeout(done, 1500)); return { content: "Slow but sure." }; });
  check("a slow model is waited for", (await ann.asks("a slow one")).text === "Slow but sure." && asked().length === gone + 1);
  check("the sign that somebody types is asked for", calls.some((c) => c.method === "sendChatAction" && c.body.action === "typing" && c.body.chat_id === "1"));
  console.log(`      in the operator's log: ${log.slice(logged).split("\n").filter((l) => /level=(WARN|ERROR)/.test(l)).length} warnings and errors, for example`);
  for (const line of log.slice(logged).split("\n").filter((l) => /level=(WARN|ERROR)/.test(l)).slice(0, 3)) console.log(`        ${line}`);
}

async function outage() {
  round("wake me", [{ id: "call_k", name: "remind", arguments: { delay: "1s", text: "wake up" } }], "I will.");
  await ann.asks("wake me in a second");
  await telegram.stop();
  await until("the daemon to notice", async () => (await fetch(`http://${health}/readyz`)).status === 503);
  const away = log.length;
  await until("the reminder to find nobody there", () => log.slice(away).includes("send failed, trying again"));
  await openTelegram();
  await until("the daemon to be ready again", async () => (await fetch(`http://${health}/readyz`)).ok, 40_000);
  await until("the reminder", () => ann.heard().length > 0, 40_000);
  check("a reminder that came due while Telegram was away is sent when it is back", ann.heard().map((m) => m.text).join("|") === "⏰ wake up", ann.heard());
  check("and it goes on as before", (await ann.asks("hello")).text.startsWith("Good day"));
}

async function restart(daemon) {
  await stop(daemon);
  const before = ann.heard().length;
  model.onMessage("while you were away", { content: "I am back." });
  await ann.says("said while you were away");
  const again = await start();
  await until("the answer", () => ann.heard().length > before);
  check("what was said while it was away is answered", ann.heard().at(-1).text === "I am back.", ann.heard().slice(before));
  await ann.asks("hello, are you well?");
  check("nothing is answered twice after the restart", ann.heard().length === before + 2, ann.heard().slice(before));
  return again;
}

// protocol looks at everything that was asked of both servers.
function protocol() {
  const refused = calls.filter((c) => c.status !== 200 && c.method !== "sendChatAction");
  check(`Telegram refused nothing of ${calls.length} calls (${[...new Set(calls.map((c) => c.method))]})`, refused.length === 0, refused);
  const offsets = calls.filter((c) => c.method === "getUpdates" && c.body.offset !== undefined).map((c) => Number(c.body.offset));
  check("the offset grows", offsets.length > 0 && offsets.every((o, i) => i === 0 || o >= offsets[i - 1]), offsets);
  check("every text that was sent is one", calls.filter((c) => c.method === "sendMessage").every((c) => c.body.text?.trim() && c.body.text.length <= 4096));

  const wrong = model.getRequests().filter((r) => r.response.status >= 400 && !r.response.fixture && !r.response.chaosAction);
  check(`the model refused nothing of ${model.getRequests().length} requests`, wrong.length === 0, wrong.map((r) => [r.method, r.path, r.response.status, r.body?.messages?.at(-1)]));
  const problems = asked().flatMap((r) => complaints(r.body));
  check(`${asked().length} conversations keep the API's rules`, problems.length === 0, problems.slice(0, 5));
  check("neither the token nor the key is in the log", !log.includes(TOKEN) && !log.includes(TOKEN.split(":")[1]) && !log.includes(KEY));
  check("there was no panic", !/panic|goroutine \d+ \[/.test(log));
}

// complaints lists what the API would object to in a request.
function complaints(body) {
  const out = [];
  const complain = (what, where) => out.push(`${what}: ${JSON.stringify(where).slice(0, 300)}`);
  if (body.model !== "gpt-interop") complain("another model", body.model);
  if (body.messages[0].role !== "system") complain("no system message", body.messages[0]);
  let open = [];
  for (const m of body.messages) {
    if (m.role === "tool") {
      if (!open.includes(m.tool_call_id)) complain("a result without its call", m);
      open = open.filter((id) => id !== m.tool_call_id);
    } else if (open.length) {
      complain("a call without its result", open);
      open = [];
    }
    for (const c of m.tool_calls ?? []) {
      open.push(c.id);
      if (c.type !== "function" || typeof JSON.parse(c.function.arguments) !== "object" || !/^[\w-]{1,64}$/.test(c.function.name)) complain("a strange call", c);
    }
    if (!m.tool_calls && (typeof m.content !== "string" || m.content === "")) complain("no content", m);
  }
  for (const t of body.tools ?? []) {
    if (t.type !== "function" || t.function.parameters?.type !== "object" || !t.function.description) complain("a strange tool", t);
  }
  return out;
}

let daemon;
try {
  daemon = await start();
  for (const part of [basics, tools, background, groups, long, commands, oddities, crowd, trouble, outage]) {
    console.log(`\n${part.name}`);
    await part();
  }
  console.log("\nrestart");
  daemon = await restart(daemon);
  console.log("\nprotocol");
  protocol();
  await stop(daemon);
} catch (err) {
  check("it runs to its end", false, err.stack);
  console.log(log.split("\n").slice(-40).join("\n"));
} finally {
  if (daemon?.exitCode === null && daemon.signalCode === null) daemon.kill("SIGKILL");
  writeFileSync("daemon.log", log);
  writeFileSync("telegram.json", JSON.stringify(calls, null, 1));
  writeFileSync("model.json", JSON.stringify(model.getRequests().map(({ timestamp, method, path, body, response }) => ({ timestamp, method, path, body, status: response.status })), null, 1));
  await model.stop();
  await telegram.stop();
}
console.log(failures.length ? `\n${failures.length} checks failed` : "\nall checks passed");
process.exit(failures.length ? 1 : 0);
