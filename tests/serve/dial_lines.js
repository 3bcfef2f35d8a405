// Answers calls of the page's pure functions, one line of JSON each, for the tests.
"use strict";

const path = require("node:path");
const readline = require("node:readline");

const folder = process.argv[2];
["dial.js", "phrases.js"].forEach((name) => require(path.join(folder, name)));
const { dial, phrases } = globalThis.fairdial;

let opened = null;
const calls = {
  open(document) {
    opened = dial.open(document);
    return { points: opened.points.length, reachable: Array.from(opened.reachable) };
  },
  many(name, ...lines) {
    return lines.map((line) => calls.dial(name, ...line));
  },
  dial(name, ...rest) {
    const answer = dial[name](opened, ...rest);
    return ArrayBuffer.isView(answer) ? Array.from(answer) : answer;
  },
  histogram() {
    const found = dial.histogram(opened);
    const groups = found.groups.map(({ edges, labels }) => (
      { edges: Array.from(edges), labels: labels.map((bins) => Array.from(bins)) }));
    return { ...found, groups };
  },
  ints: (text, length) => Array.from(dial.ints(text, length)),
  floats: (text) => Array.from(dial.floats(text)),
  say: (name, ...rest) => phrases[name](opened, ...rest),
  phrases: (name, ...rest) => phrases[name](...rest),
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const [name, ...rest] = JSON.parse(line);
  let answer;
  try {
    answer = { value: calls[name](...rest) };
  } catch (error) {
    answer = { error: String(error.message) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
});
