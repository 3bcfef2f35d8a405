// What the page asks of its server, by addresses relative to its own.
"use strict";

(function (root) {
  const { words } = root.fairdial;

  async function ask(path) {
    const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" });
    if (!answer.ok) throw new Error(`The server answered ${answer.status} to ${path}.`);
    return answer.json();
  }

  async function detailOf(answer) {
    try {
      const { detail } = await answer.json();
      return typeof detail === "string" ? detail : "";
    } catch {
      return "";
    }
  }

  // Asks for a new position; gives back what to say if it was refused, else null.
  async function put(wish, version, token) {
    const answer = await fetch("v1/dial", {
      method: "PUT",
      headers: {
        "Content-Type": "application/json",
        Authorization: `Bearer ${token}`,
        "If-Match": `"${version}"`,
      },
      body: JSON.stringify(wish),
    });
    return answer.ok ? null : words.refused(answer.status, await detailOf(answer));
  }

  root.fairdial.server = {
    audit: () => ask("v1/audit"),
    dial: () => ask("v1/dial"),
    frontier: () => ask("v1/frontier"),
    put,
  };
})(globalThis);
