// Sends a prompt to the server, and shows each token at the moment when it arrives.

const $ = (id) => document.getElementById(id);
const RARE = [0.9, 0.5, 0.1, 0.01]; // probabilities below which a token is marked one degree more
const DRAW_MS = 40; // between two drawings
const KNOBS = ["temperature", "top_k", "top_p", "min_p", "max_tokens", "seed"];
const PENALTIES = ["repetition_penalty", "presence_penalty", "frequency_penalty"]; // sent only where one is changed
const VISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥" };

let running = null; // the AbortController of the request that is under way
let model = null; // its name, when the server has said it
let waiting = false; // to draw what has arrived

// What has arrived: one entry for each piece of text, with its tokens and its time since the request.
const seen = { pieces: [], times: [], steps: [], shown: 0, finish: null, usage: null, stopped: false, started: 0 };

// --- the server ----------------------------------------------------------------------------------

function headers() {
  const key = $("key").value;
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

// The response, or an Error in the server's words.
async function ask(path, options = {}) {
  const response = await fetch(path, { ...options, headers: headers() });
  if (response.ok) return response;
  if (response.status === 401) askForKey();
  const body = await response.json().catch(() => null);
  throw new Error(body?.error?.message ?? `status ${response.status}`);
}

function askForKey() {
  $("key-row").hidden = false;
  $("key").focus();
}

async function findModel() {
  const { data } = await (await ask("/v1/models")).json();
  model = $("model").textContent = data[0].id;
}

// The data of each server-sent event as it comes, until the server says that it is done.
async function* events(response) {
  let rest = "";
  for await (const text of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
    const blocks = (rest + text).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data[0] === "[DONE]") return;
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
  throw new Error("the connection ended before the answer did");
}

// A stream's parts; not every browser can iterate over a stream itself.
async function* chunks(stream) {
  const reader = stream.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
}

// --- a request -----------------------------------------------------------------------------------

// What is wrong with a field's text, or "". Which numbers are allowed is for the server to say.
function complaint({ name, value, validity }) {
  if (name === "seed") return /^\s*\d*\s*$/.test(value) ? "" : "a whole number, or nothing";
  const empty = value === "" && !PENALTIES.includes(name); // an empty penalty is off
  return validity.badInput || empty ? "a number is missing" : "";
}

// Says beside each field what is wrong with it, and goes to the first that is; whether all are right.
function fieldsAreRight() {
  const fields = [...KNOBS, ...PENALTIES].map((name) => $("form").elements[name]);
  fields.forEach(tell);
  const wrong = fields.find(complaint);
  wrong?.closest("details")?.setAttribute("open", "");
  wrong?.focus();
  return !wrong;
}

// The words go into the field's label, so that they are read out with it.
function tell(field) {
  const said = complaint(field);
  field.ariaInvalid = said ? "true" : null;
  field.labels[0].querySelector("small")?.remove();
  if (said) field.labels[0].append(Object.assign(document.createElement("small"), { textContent: said }));
}

// The request as JSON. A seed has up to 64 bits, more than a number of JavaScript holds, so its digits stay text.
function body() {
  const form = new FormData($("form"));
  const knobs = [...KNOBS.filter((name) => name !== "seed"), ...changedPenalties()];
  const settings = Object.fromEntries(knobs.map((name) => [name, Number(form.get(name))]));
  const seed = form.get("seed").trim();
  const prompt = $("prompt").value;
  const asked = form.get("mode") === "chat"
    ? { messages: [{ role: "user", content: prompt }], logprobs: true }
    : { prompt, logprobs: 0 };
  const json = JSON.stringify({ model, stream: true, stream_options: { include_usage: true }, return_step_seconds: true,
                                ...settings, ...asked });
  return seed ? `${json.slice(0, -1)},"seed":${BigInt(seed)}}` : json;
}

function changedPenalties() {
  const { elements } = $("form");
  return PENALTIES.filter((name) => {
    const { value, defaultValue } = elements[name];
    return value !== "" && Number(value) !== Number(defaultValue);
  });
}

// So that a penalty is seen while its field is folded.
function namePenalties() {
  const { elements } = $("form");
  $("penalties").textContent = changedPenalties().map((name) => `${name.split("_")[0]} ${elements[name].value}`)
    .join(", ") || "none";
}

async function send() {
  if (!fieldsAreRight()) return;
  running?.abort();
  const mine = (running = new AbortController());
  begin();
  try {
    if (!model) await findModel();
    const path = $("form").elements.mode.value === "chat" ? "/v1/chat/completions" : "/v1/completions";
    const asked = body();
    seen.started = performance.now();
    const response = await ask(path, { method: "POST", body: asked, signal: mine.signal });
    for await (const event of events(response)) {
      if (running !== mine) return; // another request has taken its place
      take(event);
    }
  } catch (error) {
    if (running !== mine) return;
    if (mine.signal.aborted) seen.stopped = true;
    else fail(error);
  }
  if (running === mine) end();
}

function begin() {
  Object.assign(seen, { pieces: [], times: [], steps: [], shown: 0, finish: null, usage: null, stopped: false });
  for (const id of ["text", "rows", "numbers"]) $(id).replaceChildren();
  $("error").hidden = true;
  $("stop").disabled = false;
  $("text").ariaBusy = "true";
  $("status").textContent = "Reading the prompt.";
  draw();
}

function end() {
  running = null;
  if (document.activeElement === $("stop")) $("send").focus();
  $("stop").disabled = true;
  $("text").ariaBusy = "false";
  draw();
  $("status").textContent = seen.times.length ? summary() : seen.stopped ? "Stopped before the first token." : "";
}

function fail(error) {
  $("error").textContent = error.message;
  $("error").hidden = false;
}

// --- what arrives --------------------------------------------------------------------------------

function take(event) {
  if (event.error) throw new Error(event.error.message);
  seen.usage = event.usage ?? seen.usage;
  const choice = event.choices[0];
  if (!choice) return;
  seen.finish = choice.finish_reason ?? seen.finish;
  seen.steps.push(...(choice.step_seconds ?? []));
  const text = choice.delta?.content ?? choice.text ?? "";
  const logprobs = choice.logprobs?.content?.map((one) => one.logprob) ?? choice.logprobs?.token_logprobs ?? [];
  if (text || logprobs.length) arrive({ text, logprobs, at: performance.now() - seen.started });
}

// Only the time is noted at once. Drawing waits a little, for while a browser draws it does not see what arrives.
function arrive(piece) {
  seen.pieces.push(piece);
  seen.times.push(...Array(Math.max(piece.logprobs.length, 1)).fill(piece.at));
  if (!waiting) setTimeout(draw, DRAW_MS);
  waiting = true;
}

// A piece of text and its row of the table. It has several tokens where they share a character.
function show(piece, before) {
  const probability = piece.logprobs.length ? Math.exp(piece.logprobs.reduce((a, b) => a + b)) : null;
  const share = probability === null ? "not known" : `${(100 * probability).toPrecision(3)} %`;
  if (piece.text) {
    const span = document.createElement("span");
    span.className = piece.text.includes("\n") ? "token newline" : "token";
    span.dataset.rare = RARE.filter((bound) => (probability ?? 1) < bound).length;
    span.title = `probability ${share}, after ${ms(piece.at)}`;
    span.append(piece.text);
    $("text").append(span);
  }
  const name = piece.text.replace(/[ \n\t]/g, (c) => VISIBLE[c]) || "(end)";
  const row = $("rows").insertRow();
  for (const value of [`${row.rowIndex}`, name, share, ms(piece.at), before ? ms(piece.at - before.at) : ""]) {
    row.insertCell().append(value);
  }
}

// --- the time line -------------------------------------------------------------------------------

const ms = (value) => (value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(value < 100 ? 1 : 0)} ms`);

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// Gaps between pieces, each with the time at which it begins.
function gaps() {
  return seen.pieces.slice(1).map((piece, i) => ({ from: seen.pieces[i].at, size: piece.at - seen.pieces[i].at }));
}

function numbers() {
  const all = gaps(), sizes = all.map((gap) => gap.size);
  return {
    "first token": ms(seen.times[0]),
    ...(all.length && { "median gap": ms(median(sizes)), "longest gap": ms(Math.max(...sizes)) }),
    ...(seen.steps.length > 1 && { "median step": ms(1000 * median(seen.steps.slice(1))) }),
    tokens: `${seen.times.length}`,
    ...(seen.usage && { "tokens of the prompt": `${seen.usage.prompt_tokens}` }),
  };
}

function summary() {
  const end = seen.stopped ? "Stopped" : { stop: "Finished", length: "Cut at max tokens" }[seen.finish] ?? "Broken off";
  const n = seen.times.length;
  return `${running ? "So far" : end}: ${n} token${n === 1 ? "" : "s"} in ${ms(seen.times.at(-1))}, `
    + `the first after ${ms(seen.times[0])}.`;
}

function draw() {
  waiting = false;
  $("result").hidden = !seen.times.length;
  if (!seen.times.length) return;
  for (; seen.shown < seen.pieces.length; seen.shown++) show(seen.pieces[seen.shown], seen.pieces[seen.shown - 1]);
  const last = seen.times.at(-1), first = seen.times[0];
  const longest = gaps().reduce((a, b) => (b.size > a.size ? b : a), { from: first, size: 0 });
  $("timeline").setAttribute("viewBox", `0 0 ${1.01 * last} 10`);
  $("timeline").setAttribute("aria-label", summary());
  $("wait").setAttribute("width", first);
  $("longest").setAttribute("d", longest.size ? `M${longest.from} 1H${longest.from + longest.size}` : "");
  $("ticks").setAttribute("d", seen.pieces.map((piece) => `M${piece.at.toFixed(2)} 3V10`).join(""));
  $("end").textContent = ms(last);
  $("numbers").replaceChildren(...Object.entries(numbers()).map(([name, value]) => {
    const group = document.createElement("div");
    group.append(Object.assign(document.createElement("dt"), { textContent: name }),
                 Object.assign(document.createElement("dd"), { textContent: value }));
    return group;
  }));
  $("text").scrollTop = $("text").scrollHeight;
}

// --- the reader ----------------------------------------------------------------------------------

$("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("form").addEventListener("input", namePenalties);
$("form").addEventListener("input", ({ target }) => { if (target.ariaInvalid) tell(target); });
$("stop").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("form").requestSubmit();
});
namePenalties(); // some browsers keep what was typed before a reload
findModel().catch(fail);
