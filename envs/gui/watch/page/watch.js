"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const FIELDS = new Set(["textbox", "spinbutton", "searchbox"]);
  const CHOICES = new Set(["combobox", "listbox"]);
  let state = null;
  let busy = false;

  const make = (tag, name, text) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  async function ask(path, body) {
    const wanted = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const answer = await fetch(path, wanted || {});
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  async function act(body) {
    if (busy) return;
    setBusy(true);
    try {
      show(await ask("act", body));
    } catch (error) {
      at("said").textContent = String(error.message || error);
    } finally {
      setBusy(false);
    }
  }

  const reply = (text) => act({ do: "reply", text });

  function setBusy(now) {
    busy = now;
    document.body.classList.toggle("busy", now);
    for (const button of document.querySelectorAll("form button, .buttons button")) {
      const always = button.id === "again";
      button.disabled = now || (!always && state && state.over) || (button.id === "oracle" && state && !state.has_oracle);
    }
  }

  function light(element) {
    const mark = at("mark"), picture = at("picture");
    for (const lit of document.querySelectorAll(".one.lit")) lit.classList.remove("lit");
    if (!element || !picture.naturalWidth || !element.box.some(Boolean)) { mark.hidden = true; return; }
    const scale = picture.clientWidth / picture.naturalWidth;
    const [x, y, wide, high] = element.box.map((value) => value * scale);
    Object.assign(mark.style, { left: `${x}px`, top: `${y}px`, width: `${wide}px`, height: `${high}px` });
    mark.hidden = false;
    const row = document.querySelector(`.one[data-id="${element.id}"]`);
    if (row) row.classList.add("lit");
  }

  function write(line) {
    const text = at("text");
    text.value = line;
    text.focus();
    const inside = line.lastIndexOf('"');
    if (inside > 0) text.setSelectionRange(inside, inside);
  }

  function chosen(element) {
    if (FIELDS.has(element.role)) write(`type(${element.id}, "")`);
    else if (CHOICES.has(element.role)) write(`select(${element.id}, "")`);
    else reply(`click(${element.id})`);
  }

  function elementView(element) {
    const one = make("button", "one");
    one.type = "button";
    one.dataset.id = element.id;
    one.append(make("i", "", String(element.id)), make("em", "", `${element.role} `), element.name);
    const more = [
      element.value && ` = ${JSON.stringify(element.value)}`,
      element.options.length && ` (${element.options.join(", ")})`,
      element.states.length && ` ${element.states.join(" ")}`,
    ].filter(Boolean).join("");
    if (more) one.append(make("em", "", more));
    one.addEventListener("click", () => !state.over && chosen(element));
    one.addEventListener("pointerenter", () => light(element));
    one.addEventListener("pointerleave", () => light(null));
    return one;
  }

  function showTree(view) {
    const tree = at("tree");
    tree.replaceChildren();
    at("where").textContent = view ? `${view.title} (${view.url})` : "";
    for (const line of view ? view.lines : []) {
      const row = make("div", "row");
      for (const part of line) {
        if (typeof part !== "string") row.append(elementView(part));
        else row.append(make("span", part.startsWith("# ") ? "words head" : "words", part));
      }
      tree.append(row);
    }
  }

  function showTurns(turns) {
    at("turns").replaceChildren(...turns.map((turn) => {
      const item = make("li");
      item.append(make("pre", "", turn.text));
      const wrong = turn.observation.split("\n").filter((line) => line.startsWith("Error:"));
      if (wrong.length) item.append(make("pre", "wrong", wrong.join("\n")));
      return item;
    }));
  }

  function showOutcome() {
    const box = at("outcome");
    box.hidden = !state.over;
    if (!state.over) return;
    const solved = state.reward !== null && state.reward >= 1;
    box.className = state.reward === null ? "" : solved ? "good" : "bad";
    at("word").textContent = state.error ? "failed by itself" : solved ? "solved" : "not solved";
    at("reward").textContent = state.reward === null ? "no reward" : `reward ${state.reward}`;
    at("report").textContent = state.error || state.report;
  }

  function show(next) {
    state = next;
    document.body.classList.toggle("over", state.over);
    at("task").textContent = state.task;
    at("instruction").textContent = state.instruction;
    at("said").textContent = state.said;
    at("picture").src = `page.jpg?${state.picture}`;
    at("film").hidden = state.turns.length === 0;
    if (state.turns.length) at("film").src = `film.jpg?${state.picture}-${state.turns.length}-${state.over}`;
    light(null);
    showTree(state.view);
    showTurns(state.turns);
    showOutcome();
    if (!state.said && state.by_oracle && !state.over && state.has_oracle) setTimeout(() => act({ do: "oracle" }), 900);
  }

  const place = (event) => {
    const picture = at("picture"), box = picture.getBoundingClientRect();
    const scale = picture.naturalWidth / box.width;
    return [Math.round((event.clientX - box.left) * scale), Math.round((event.clientY - box.top) * scale)];
  };
  at("picture").addEventListener("click", (event) => {
    if (!state || state.over) return;
    const [x, y] = place(event);
    reply(`click(x=${x}, y=${y})`);
  });
  at("picture").addEventListener("pointermove", (event) => {
    if (!state || !state.view) return;
    const [x, y] = place(event);
    const inside = state.view.lines.flat().filter((one) => typeof one !== "string")
      .filter(({ box: [left, top, wide, high] }) => x >= left && x < left + wide && y >= top && y < top + high);
    inside.sort((one, other) => one.box[2] * one.box[3] - other.box[2] * other.box[3]);
    light(inside[0] || null);
  });
  at("picture").addEventListener("pointerleave", () => light(null));
  at("line").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = at("text").value.trim();
    if (!text || !state || state.over) return;
    at("text").value = "";
    reply(text);
  });
  at("done").addEventListener("click", () => reply("done()"));
  at("give-up").addEventListener("click", () => reply('give_up("cannot be done")'));
  at("oracle").addEventListener("click", () => act({ do: "oracle" }));
  at("again").addEventListener("click", () => act({ do: "again" }));
  ask("state").then((first) => { show(first); setBusy(false); }, (error) => { at("said").textContent = error.message; });
})();
