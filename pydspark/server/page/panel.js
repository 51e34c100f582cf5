// The panel: speeds, and how many drafts were accepted at each position.

import { byId, make, number } from "./dom.js";

const WIDTH = 320, HEIGHT = 150, TOP = 16, BOTTOM = 18;
const SVG = "http://www.w3.org/2000/svg";

export class Panel {
  constructor() {
    this.bars = [];
  }

  setDrafter(hasDrafter) {
    byId("no-drafter").hidden = hasDrafter;
    byId("chart-figure").hidden = !hasDrafter;
  }

  show(timings) {
    byId("speed").textContent = number(timings.predicted_per_second);
    byId("per-round").textContent = number(timings.accept_len, 2);
    if (timings.plain_per_token_ms) byId("plain-speed").textContent = number(1000 / timings.plain_per_token_ms);
    if (timings.saved_ms !== undefined) byId("saved").textContent = number(timings.saved_ms, 0);
    if (timings.drafted_at) this.draw(timings.drafted_at, timings.draft_n_accepted_at);
  }

  draw(drafted, accepted) {
    if (this.bars.length !== drafted.length) this.build(drafted.length);
    drafted.forEach((n, i) => {
      const share = n ? (accepted[i] ?? 0) / n : 0;
      const height = share * (HEIGHT - TOP - BOTTOM);
      const { bar, label, cells } = this.bars[i];
      bar.setAttribute("y", HEIGHT - BOTTOM - height);
      bar.setAttribute("height", height);
      label.setAttribute("y", HEIGHT - BOTTOM - height - 4);
      label.textContent = `${Math.round(share * 100)}%`;
      cells[0].textContent = n;
      cells[1].textContent = accepted[i] ?? 0;
    });
  }

  build(n) {
    const chart = byId("chart"), rows = byId("chart-table").tBodies[0];
    chart.replaceChildren();
    rows.replaceChildren();
    const step = WIDTH / n, width = Math.min(step * 0.7, 40);
    this.bars = Array.from({ length: n }, (_, i) => {
      const center = step * (i + 0.5);
      const size = { x: center - width / 2, y: TOP, width, height: HEIGHT - TOP - BOTTOM };
      chart.append(shape("rect", { ...size, class: "back" }));
      const bar = chart.appendChild(shape("rect", { ...size, y: HEIGHT - BOTTOM, height: 0, class: "bar" }));
      const label = chart.appendChild(shape("text", { x: center, y: HEIGHT - BOTTOM - 4 }));
      chart.appendChild(shape("text", { x: center, y: HEIGHT - 4 })).textContent = i + 1;
      const row = rows.appendChild(make("tr"));
      row.append(make("th", "", i + 1), make("td"), make("td"));
      row.firstChild.scope = "row";
      return { bar, label, cells: [row.children[1], row.children[2]] };
    });
  }
}

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  return element;
}
