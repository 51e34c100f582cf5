// What a person has chosen, kept by the browser.

import { byId } from "./dom.js";

const NAME = "pydspark.settings";
const DEFAULTS = {
  system: "", temperature: "", max_tokens: "", seed: "", n_max: "", key: "", drafts: true, tint: true, theme: "",
};

export class Settings {
  constructor() {
    this.values = { ...DEFAULTS, ...stored(NAME, {}) };
    this.form = byId("settings-form");
    this.listeners = [];
    for (const field of this.form.elements) {
      if (!(field.name in DEFAULTS)) continue;
      if (field.type === "checkbox") field.checked = this.values[field.name];
      else field.value = this.values[field.name];
    }
    this.form.addEventListener("input", () => this.read());
    byId("open-settings").addEventListener("click", () => byId("settings").showModal());
    this.apply();
  }

  read() {
    for (const field of this.form.elements) {
      if (!(field.name in DEFAULTS)) continue;
      this.values[field.name] = field.type === "checkbox" ? field.checked : field.value;
    }
    localStorage.setItem(NAME, JSON.stringify(this.values));
    this.apply();
  }

  apply() {
    document.documentElement.dataset.theme = this.values.theme;
    byId("log").classList.toggle("tint", this.values.tint);
    this.listeners.forEach((listener) => listener());
  }

  // The fields of a request that are set.
  fields(hasDrafter) {
    const fields = {};
    for (const name of ["temperature", "max_tokens", "seed"]) {
      if (this.values[name] !== "") fields[name] = Number(this.values[name]);
    }
    if (hasDrafter && !this.values.drafts) fields.speculative = false;
    else if (hasDrafter && this.values.n_max !== "") fields.speculative = { n_max: Number(this.values.n_max) };
    return fields;
  }

  headers() {
    const key = this.values.key;
    return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  }
}

export function stored(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise; // somebody else's, or damaged
  }
}
