// Requests to the server, at addresses relative to the page's own.
"use strict";

(function (root) {
  const { phrases } = root.fairdial;

  async function get(path) {
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

  // Changes the dial; returns a message if the server refused, else null.
  async function put(change, version, token) {
    const answer = await fetch("v1/dial", {
      method: "PUT",
      headers: {
        "Content-Type": "application/json",
        Authorization: `Bearer ${token}`,
        "If-Match": `"${version}"`,
      },
      body: JSON.stringify(change),
    });
    return answer.ok ? null : phrases.refused(answer.status, await detailOf(answer));
  }

  root.fairdial.server = {
    audit: () => get("v1/audit"),
    dial: () => get("v1/dial"),
    frontier: () => get("v1/frontier"),
    put,
  };
})(globalThis);
