// The explorer of report.html: pick a text and methods, see their tokens side by side.
// Data: the JSON in #explorer-data (report/explorer.py). Arrow keys move along a text's bytes.
"use strict";
(() => {
  const home = document.getElementById("explorer");
  const { ticked, texts } = JSON.parse(document.getElementById("explorer-data").textContent);
  const select = home.querySelector("select");
  const choices = home.querySelector(".methods");
  const strips = home.querySelector(".strips");
  const readout = home.querySelector(".readout");
  const wanted = new Set(ticked); // kept from text to text
  const LONGEST = 24;

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  function lengthsOf(strip) {
    const lengths = [];
    for (const mark of strip.boundary) {
      if (mark || !lengths.length) lengths.push(0);
      lengths[lengths.length - 1] += 1;
    }
    return lengths;
  }

  function describe(text, strip, place) {
    let first = place, end = place + 1;
    while (first > 0 && !strip.boundary[first]) first -= 1;
    while (end < text.signs.length && !strip.boundary[end]) end += 1;
    readout.textContent =
      `${strip.name}, byte ${place + 1} “${text.signs[place]}”: boundary probability ` +
      `${(strip.prob[place] / 100).toFixed(2)}${strip.boundary[place] ? ", a token starts here" : ""}; ` +
      `${strip.bits[place].toFixed(1)} bits; in “${text.signs.slice(first, end).join("")}”, ` +
      `a token of ${end - first} ${end - first === 1 ? "byte" : "bytes"}`;
  }

  function histogram(lengths) {
    const counts = new Array(LONGEST).fill(0);
    for (const length of lengths) counts[Math.min(length, LONGEST) - 1] += 1;
    const top = Math.max(...counts);
    const chart = make("div", "lengths");
    chart.setAttribute("role", "img");
    const words = counts.map((count, i) => count && `${i + 1}${i + 1 === LONGEST ? "+" : ""}: ${count}`);
    chart.setAttribute("aria-label", `token lengths in bytes: ${words.filter(Boolean).join(", ")}`);
    for (const [i, count] of counts.entries()) {
      const bar = make("span");
      bar.style.height = `${(100 * count) / top}%`;
      bar.title = `${i + 1}${i + 1 === LONGEST ? "+" : ""} bytes: ${count}`;
      chart.append(bar);
    }
    return chart;
  }

  function draw(text, strip) {
    const lengths = lengthsOf(strip);
    const bits = strip.bits.reduce((sum, value) => sum + value, 0) / strip.bits.length;
    const box = make("section", "strip");
    box.append(make("h3", "", strip.shown));
    box.append(make("p", "quiet", `seed ${strip.seed}; ${lengths.length} tokens, ` +
      `${(text.signs.length / lengths.length).toFixed(2)} bytes each; ${bits.toFixed(3)} bits per byte here`));
    const line = make("div", "bytes");
    line.tabIndex = 0;
    line.setAttribute("role", "group");
    line.setAttribute("aria-label",
      `${text.title} under ${strip.name}; arrow keys move from byte to byte`);
    let token = 0, at = -1;
    const cells = text.signs.map((sign, i) => {
      if (strip.boundary[i] && i) token += 1;
      const kinds = [token % 2 ? "odd" : "even"];
      if (strip.boundary[i]) kinds.push("start");
      if ([...sign].length > 1) kinds.push("hex");
      const cell = make("i", kinds.join(" "), sign);
      cell.style.setProperty("--p", strip.prob[i]);
      return cell;
    });
    const go = (place) => {
      if (at >= 0) cells[at].classList.remove("at");
      at = Math.min(Math.max(place, 0), cells.length - 1);
      cells[at].classList.add("at");
      describe(text, strip, at);
    };
    line.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 20, ArrowUp: -20,
        Home: -cells.length, End: cells.length };
      if (!(event.key in steps)) return;
      event.preventDefault();
      go(at + steps[event.key]);
    });
    line.addEventListener("mouseover", (event) => {
      const place = cells.indexOf(event.target);
      if (place >= 0) go(place);
    });
    for (const [i, cell] of cells.entries()) {
      line.append(cell);
      if (text.signs[i] === "↵") line.append(make("br"));
    }
    box.append(line, histogram(lengths), make("p", "quiet",
      `token lengths, 1 to ${LONGEST} bytes and more`));
    return box;
  }

  function show() {
    const text = texts[select.value];
    strips.replaceChildren(...text.strips
      .filter((strip) => wanted.has(strip.name)).map((strip) => draw(text, strip)));
    readout.textContent = strips.children.length
      ? "Point at a byte, or tab to a text and use the arrow keys." : "No method is ticked.";
  }

  function choose() {
    const text = texts[select.value];
    choices.replaceChildren(...text.strips.map((strip) => {
      const label = make("label"), box = make("input");
      box.type = "checkbox";
      box.checked = wanted.has(strip.name);
      box.value = strip.name;
      box.addEventListener("change", () => {
        if (box.checked) wanted.add(strip.name); else wanted.delete(strip.name);
        show();
      });
      label.append(box, ` ${strip.shown}`);
      return label;
    }));
    show();
  }

  select.addEventListener("change", choose);
  choose();
})();
