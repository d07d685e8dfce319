"use strict";
for (const box of document.querySelectorAll(".slider")) {
  const { points } = JSON.parse(document.getElementById(box.dataset.points).textContent);
  const input = box.querySelector("input");
  const output = box.querySelector("output");
  const show = () => {
    const point = points[Number(input.value)];
    input.setAttribute("aria-valuetext", point.at);
    const list = document.createElement("dl");
    for (const [name, text] of [[box.dataset.name, point.at], ...point.facts]) {
      const term = document.createElement("dt");
      const value = document.createElement("dd");
      term.textContent = name;
      value.textContent = text;
      list.append(term, value);
    }
    const words = point.words.map((text) => {
      const line = document.createElement("p");
      line.textContent = text;
      return line;
    });
    output.replaceChildren(list, ...words);
  };
  input.addEventListener("input", show);
  box.hidden = false;
  show();
}
