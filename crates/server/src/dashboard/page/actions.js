// Changes: what the page may ask of hemi, each with a question first. They need the token, unless the page
// came through the control socket.

import { Refused, get, post, token } from "./api.js";
import { make } from "./panels.js";
import { nameOf, stateOf } from "./state.js";

const byId = (id) => document.getElementById(id);

/** The buttons, and the dialog that they open. */
export class Changes {
  constructor() {
    this.access = null;
    this.said = "";
    this.running = "";
    byId("dialog-cancel").addEventListener("click", () => byId("dialog").close());
    byId("dialog-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#go();
    });
  }

  /** Asks what may be done. Returns the answer. */
  async ask() {
    this.access = (await get("v1/access")) ?? { read: "open", change: "off", why_not: "This server takes no changes over HTTP." };
    this.settings = (await get("v1/settings").catch(() => null)) ?? [];
    return this.access;
  }

  /** Shows the buttons that make sense now. */
  show(status) {
    const legs = status.legs ?? [];
    const facts = [this.access, this.settings, this.running, status.scrub?.running, legs.map((leg) => [leg.leg, leg.name, leg.state, leg.out_reason, Boolean(leg.injected)])];
    const said = JSON.stringify(facts);
    if (said === this.said || !this.access) return;
    this.said = said;
    const place = byId("changes");
    if (this.access.change === "off") {
      place.replaceChildren(make("p", { textContent: `Nothing can be changed here. ${this.access.why_not ?? ""}` }));
      return;
    }
    if (!this.access.granted && this.access.change !== "open") {
      place.replaceChildren(make("p", { textContent: "Changes need the token in the file that http_token_file names on the machine that serves the volume. " },
        this.#button("Unlock changes", () => this.#unlock())));
      return;
    }
    const parts = [];
    if (this.running) parts.push(make("p", { className: "note", textContent: this.running }));
    parts.push(this.#row("All legs", this.#scrub(status)));
    for (const leg of legs) parts.push(this.#row(nameOf(leg), this.#leg(leg, legs)));
    const live = this.settings.filter((setting) => setting.live);
    if (live.length > 0) parts.push(this.#row("Settings", live.map((setting) => this.#setting(setting))));
    if (token.get()) parts.push(this.#row("This tab", [this.#button("Forget the token", () => { token.forget(); location.reload(); })]));
    place.replaceChildren(...parts);
  }

  #row(title, buttons) {
    return make("div", { className: "row" }, make("h3", { textContent: title }), make("p", { className: "buttons" }, ...buttons));
  }

  #button(text, action) {
    const button = make("button", { type: "button", textContent: text });
    button.addEventListener("click", action);
    return button;
  }

  #scrub(status) {
    if (status.scrub?.running) {
      return [this.#asks("Stop the scrub", "What was compared so far is not remembered.", "v1/scrub", { stop: true })];
    }
    return [
      this.#asks("Compare all legs", "Reads all of every leg. Clients go first.", "v1/scrub", { repair: false }, "The scrub runs."),
      this.#asks("Compare, and rewrite what cannot be read", "Rewrites what a leg cannot read from the others. What differs is left: hemi scrub --show lists it, and you decide which leg is right.", "v1/scrub", { repair: true }, "The scrub runs."),
    ];
  }

  #leg(leg, legs) {
    const name = nameOf(leg);
    const slot = leg.leg;
    const wipe = { name: "wipe", label: "Overwrite what is on it", kind: "checkbox" };
    const path = { name: "path", label: "Drive", kind: "text", placeholder: "/dev/disk/by-id/…", value: leg.path };
    const buttons = [];
    if (leg.state === "out" || leg.state === "gone") {
      const send = (fields) => ({ config: fields.path, wipe: fields.wipe });
      buttons.push(this.#asks(`Attach ${name} again`, `${name} is ${stateOf(leg)}. It is filled with what it lacks. A leg that was detached has to be overwritten.`, "v1/legs/attach", send, "", [path, wipe]));
      buttons.push(this.#asks(`Replace ${name}`, "Another drive takes this leg's place, and is filled from the others.", "v1/legs/replace", (fields) => ({ leg: slot, ...send(fields) }), "", [{ ...path, value: "" }, wipe]));
    }
    if (!["gone"].includes(leg.state) && !["detached", "removed"].includes(leg.out_reason) && legs.length > 1) {
      buttons.push(this.#asks(`Detach ${name}`, `${name} first gets all it lacks, and is then released as a plain copy of the volume. What is written later is on ${legs.length === 2 ? "one leg only" : "the others only"}.`, "v1/legs/detach", { leg: slot }, `${name} is being drained and detached.`));
    }
    if (this.access.inject) {
      const fault = (text, about, what) => this.#asks(text, about, "v1/inject", { leg: slot, fault: what });
      buttons.push(fault(`Freeze ${name} for 10 s`, "A test: the leg answers nothing for ten seconds.", { freeze: { duration: "10s" } }));
      buttons.push(fault(`Delay ${name} by 50 ms`, "A test: every request to the leg takes 50 ms longer, until the faults are ended.", { delay: { delay: "50ms" } }));
      if (leg.injected) buttons.push(fault(`End the faults of ${name}`, "The leg answers as it does by itself.", "clear"));
    }
    return buttons.length ? buttons : [make("span", { className: "fine", textContent: "nothing to change" })];
  }

  #setting({ key, value }) {
    const field = { name: "value", label: key, kind: "text", value: String(value) };
    return this.#asks(`${key}: ${value}`, "It is in force at once.", "v1/set", (fields) => ({ key, value: fields.value }), "", [field], "Set");
  }

  /** Returns a button that asks before it sends. `body` is sent, or made from the fields. */
  #asks(text, about, path, body, meanwhile = "", fields = [], go = text) {
    return this.#button(`${text}${fields.length || go !== text ? "…" : ""}`, () => this.#open({ text, about, fields, go, send: async (values) => {
      const sent = typeof body === "function" ? body(values) : body;
      const task = post(path, sent);
      if (meanwhile) {
        // It answers when all is done, which may take hours; a refusal comes at once.
        const early = await Promise.race([task.then(() => "done"), new Promise((tell) => setTimeout(tell, 700, "runs"))]);
        if (early === "runs") this.#watch(task, meanwhile);
      } else await task;
      this.settings = (await get("v1/settings").catch(() => null)) ?? [];
    } }));
  }

  #watch(task, meanwhile) {
    this.running = meanwhile;
    task.then(() => { this.running = ""; }, (error) => { this.running = `${meanwhile} It ended: ${error.message}. ${error.wayOut ?? ""}`; });
  }

  #unlock() {
    const field = { name: "token", label: "Token", kind: "password" };
    this.#open({ text: "Unlock changes", about: "This tab keeps the token until it is closed.", fields: [field], go: "Unlock", send: async ({ token: sent }) => {
      const before = token.get();
      token.set(sent.trim());
      const access = await this.ask();
      if (access.granted) return;
      if (before) token.set(before);
      else token.forget();
      throw new Refused(401, { what: "That is not the token." });
    } });
  }

  #open(question) {
    this.question = question;
    byId("dialog-title").textContent = question.text;
    byId("dialog-text").textContent = question.about;
    byId("dialog-wrong").textContent = "";
    byId("dialog-go").textContent = question.go;
    byId("dialog-fields").replaceChildren(...question.fields.map(({ name, label, kind, value = "", placeholder = "" }) => {
      const input = make("input", { name, type: kind, placeholder, autocomplete: "off", spellcheck: false, required: kind !== "checkbox" });
      if (kind !== "checkbox") input.value = value;
      return make("label", { className: kind }, kind === "checkbox" ? input : `${label} `, kind === "checkbox" ? ` ${label}` : input);
    }));
    byId("dialog").showModal();
  }

  async #go() {
    const values = {};
    for (const input of byId("dialog-fields").querySelectorAll("input")) values[input.name] = input.type === "checkbox" ? input.checked : input.value;
    byId("dialog-go").disabled = true;
    try {
      await this.question.send(values);
      byId("dialog").close();
    } catch (error) {
      byId("dialog-wrong").textContent = [error.message, error.wayOut].filter(Boolean).join(" ");
    } finally {
      byId("dialog-go").disabled = false;
    }
  }
}
