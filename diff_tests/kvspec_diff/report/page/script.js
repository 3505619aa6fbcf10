"use strict";
// Each run is walked through by its buttons or the arrow keys: the step's panel is shown, later columns fade.
document.documentElement.classList.add("js");
for (const run of document.querySelectorAll(".run")) {
  const picks = [...run.querySelectorAll(".pick")];
  const panels = [...run.querySelectorAll(".panel")];
  const buttons = Object.fromEntries([...run.querySelectorAll("[data-go]")].map((each) => [each.dataset.go, each]));
  const map = run.querySelector(".map");
  const names = map.querySelector("tbody th");
  const place = run.querySelector("[data-place]");
  const last = panels.length - 1;
  let at = last;
  const show = (step, focus) => {
    at = Math.min(Math.max(step, 0), last);
    panels.forEach((panel, number) => { panel.hidden = number !== at; });
    picks.forEach((pick, number) => {
      if (number === at) pick.setAttribute("aria-current", "step");
      else pick.removeAttribute("aria-current");
      pick.tabIndex = number === at ? 0 : -1;
    });
    for (const cell of run.querySelectorAll("[data-step]")) cell.classList.toggle("later", Number(cell.dataset.step) > at);
    buttons.first.disabled = buttons.back.disabled = at === 0;
    buttons.next.disabled = buttons.last.disabled = at === last;
    place.textContent = `Step ${at} of ${last}`;
    if (focus) picks[at].focus({ preventScroll: true });
    // sideways only: the page stays where it is
    const column = picks[at].getBoundingClientRect();
    const frame = map.getBoundingClientRect();
    const left = frame.left + names.getBoundingClientRect().width;
    if (column.left < left) map.scrollLeft -= left - column.left;
    else if (column.right > frame.right) map.scrollLeft += column.right - frame.right;
  };
  picks.forEach((pick, number) => pick.addEventListener("click", () => show(number, false)));
  buttons.first.addEventListener("click", () => show(0, false));
  buttons.back.addEventListener("click", () => show(at - 1, false));
  buttons.next.addEventListener("click", () => show(at + 1, false));
  buttons.last.addEventListener("click", () => show(last, false));
  const keys = { ArrowLeft: () => at - 1, ArrowRight: () => at + 1, Home: () => 0, End: () => last };
  run.addEventListener("keydown", (event) => {
    const held = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey;
    if (held || !(event.key in keys) || !event.target.closest(".pick, .walk")) return;
    event.preventDefault();
    show(keys[event.key](), Boolean(event.target.closest(".pick")));
  });
  show(last, false);
}
