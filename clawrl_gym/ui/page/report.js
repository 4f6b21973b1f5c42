(() => {
  const tip = document.getElementById("tip");
  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
    tip.style.top = (y + box.height + 26 > innerHeight ? y - box.height - 12 : y + 18) + "px";
  };
  const hide = () => { tip.hidden = true; };
  for (const svg of document.querySelectorAll("svg[data-hover]")) {
    const rows = JSON.parse(svg.dataset.hover);
    const cursor = svg.querySelector(".cursor");
    svg.addEventListener("pointermove", (event) => {
      const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
      const row = rows.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      cursor.setAttribute("transform", `translate(${row[0]} 0)`);
      cursor.style.visibility = "visible";
      show(row.slice(1).join("\n"), event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", () => { cursor.style.visibility = "hidden"; hide(); });
  }
  const point = (event) => {
    const token = event.target.closest("[data-tip]");
    if (token) show(token.dataset.tip, event.clientX, event.clientY);
    else if (!event.target.closest("svg[data-hover]")) hide();
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("click", point);
  document.addEventListener("scroll", hide, { passive: true });
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => {
      navigator.clipboard?.writeText(button.dataset.copy).then(() => { button.textContent = "copied"; });
    });
  }
})();
