// The elements of the page, and how new ones are made.

export const byId = (id) => document.getElementById(id);

export function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

export function number(value, digits = 1) {
  return Number.isFinite(value) ? value.toFixed(digits) : "–";
}
