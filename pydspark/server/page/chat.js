// The messages of a chat, and the answer that is being written.

import { byId, make, number } from "./dom.js";
import { stored } from "./settings.js";

const NAME = "pydspark.chat";
const LAST_TINT = 7;
const NAMES = { user: "You", assistant: "Model", error: "Error" };

export class Chat {
  constructor() {
    this.log = byId("log");
    this.messages = stored(NAME, []);
    this.messages.forEach((message) => this.show(message));
  }

  clear() {
    this.messages = [];
    this.save();
    this.log.querySelectorAll(".message").forEach((element) => element.remove());
    byId("empty").hidden = false;
  }

  save() {
    localStorage.setItem(NAME, JSON.stringify(this.messages));
  }

  add(message) {
    this.messages.push(message);
    this.save();
    this.show(message);
  }

  // Takes back the last message, which was not answered.
  takeBack() {
    this.messages.pop();
    this.save();
  }

  show(message) {
    const view = this.element(message.role);
    if (message.reasoning_content) view.reasoning(message.reasoning_content);
    if (message.pieces) message.pieces.forEach((piece) => view.piece(...piece));
    else view.piece(message.content, null);
    return view;
  }

  error(text) {
    const view = this.element("error");
    view.root.setAttribute("role", "alert");
    view.piece(text, null);
  }

  element(role) {
    byId("empty").hidden = true;
    const view = new MessageView(role);
    this.log.append(view.root);
    view.root.scrollIntoView({ block: "end" });
    return view;
  }

  follow() {
    const rest = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight;
    if (rest < 120) this.log.scrollTop = this.log.scrollHeight; // not when somebody has scrolled up to read
  }
}

class MessageView {
  constructor(role) {
    this.root = make("article", `message ${role}`);
    this.root.append(make("h3", "", NAMES[role]));
    this.body = make("div", "text");
    this.root.append(this.body);
  }

  reasoning(text) {
    if (!this.details) {
      this.details = make("details");
      this.details.append(make("summary", "", "Reasoning"), make("div"));
      this.body.before(this.details);
    }
    this.details.lastChild.textContent += text;
  }

  // Text, and the position in its block if it was drafted.
  piece(text, position) {
    const kind = position === null ? "own" : `drafted d${Math.min(position, LAST_TINT)}`;
    this.body.append(make("span", `token ${kind}`, text));
  }

  footer(timings) {
    const ms = timings.saved_ms;
    const saved = ms === undefined ? "" : `, ${number(Math.abs(ms), 0)} ms ${ms < 0 ? "lost to drafts" : "saved"}`;
    const speed = number(timings.predicted_per_second);
    this.root.append(make("footer", "", `${timings.predicted_n} tokens, ${speed} tokens/s${saved}`));
  }
}

// Collects an answer from its chunks.
export class Answer {
  constructor(view) {
    this.view = view;
    this.pieces = [];
    this.reasoning = "";
    this.calls = [];
  }

  add(chunk) {
    const delta = chunk.choices[0]?.delta ?? {};
    const position = chunk.draft_positions?.[0] ?? null;
    if (delta.reasoning_content) {
      this.reasoning += delta.reasoning_content;
      this.view.reasoning(delta.reasoning_content);
    }
    if (delta.content) {
      this.pieces.push([delta.content, position]);
      this.view.piece(delta.content, position);
    }
  }

  message() {
    return {
      role: "assistant",
      content: this.pieces.map(([text]) => text).join(""),
      pieces: this.pieces,
      ...(this.reasoning ? { reasoning_content: this.reasoning } : {}),
    };
  }
}
