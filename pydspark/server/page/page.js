// The page: sends what is typed, and shows what comes back.

import { Answer, Chat } from "./chat.js";
import { byId } from "./dom.js";
import { Panel } from "./panel.js";
import { Settings } from "./settings.js";
import { chunks, get } from "./stream.js";

const RETRY_MS = 1000;

const settings = new Settings();
const chat = new Chat();
const panel = new Panel();
const prompt = byId("prompt");
let hasDrafter = false;
let running = null; // stops the answer that is being written

function say(text) {
  byId("status").textContent = text;
}

async function connect() {
  try {
    const props = await get("props", settings.headers());
    hasDrafter = props.speculative !== null;
    panel.setDrafter(hasDrafter);
    byId("model").textContent = props.model_alias;
    say("");
  } catch (error) {
    const isLoading = error.status === 503;
    const done = isLoading ? Math.round(100 * (error.details.progress ?? 0)) : 0;
    if (isLoading) say(`Loading the model, ${done} %`);
    else if (error.status === 401) say("This server needs an API key; it goes into the settings.");
    else say("The server does not answer.");
    if (error.status !== 401) setTimeout(connect, RETRY_MS);
  }
}

function request() {
  const said = chat.messages.map(({ pieces, ...message }) => message);
  const system = settings.values.system.trim();
  return {
    messages: system ? [{ role: "system", content: system }, ...said] : said,
    stream: true,
    stream_options: { include_usage: true },
    timings_per_token: true,
    return_tokens: true,
    return_progress: true,
    plain_speed: hasDrafter,
    ...settings.fields(hasDrafter),
  };
}

async function send(text) {
  chat.add({ role: "user", content: text });
  setRunning(new AbortController());
  say("Waiting");
  const view = chat.element("assistant");
  const answer = new Answer(view);
  let problem = null;
  try {
    for await (const chunk of chunks("v1/chat/completions", request(), settings.headers(), running.signal)) {
      if (chunk.prompt_progress) showProgress(chunk.prompt_progress);
      answer.add(chunk);
      if (chunk.timings) panel.show(chunk.timings);
      if (chunk.usage && chunk.timings) view.footer(chunk.timings);
      if (answer.pieces.length) say("Writing");
      chat.follow();
    }
  } catch (error) {
    problem = error;
  }
  finish(text, view, answer, problem);
}

function finish(text, view, answer, problem) {
  setRunning(null);
  const isStopped = problem?.name === "AbortError";
  if (answer.pieces.length || answer.reasoning) {
    chat.messages.push(answer.message());
    chat.save();
  } else if (problem) {
    view.root.remove();
    chat.takeBack();
    prompt.value = text;
  }
  if (problem && !isStopped) chat.error(problem.message);
  say(isStopped ? "Stopped" : problem ? "" : "The answer is complete");
  prompt.focus();
}

function showProgress({ processed, total }) {
  say(`Reading the prompt, ${Math.round((100 * processed) / Math.max(total, 1))} %`);
}

function setRunning(controller) {
  running = controller;
  byId("send").hidden = controller !== null;
  byId("stop").hidden = controller === null;
  byId("new-chat").disabled = controller !== null;
  byId("log").setAttribute("aria-busy", String(controller !== null));
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value.trim();
  if (!text || running) return;
  prompt.value = "";
  send(text);
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("new-chat").addEventListener("click", () => {
  chat.clear();
  prompt.focus();
});
byId("settings").addEventListener("close", connect);

connect();
prompt.focus();
