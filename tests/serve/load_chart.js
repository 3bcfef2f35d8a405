// Loads the chart library as the page does, in a browser with a given language; prints the one used.
//
//     node load_chart.js STATIC LANGUAGE [FILE ...]
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const [folder, language, ...files] = process.argv.slice(2);
const quiet = () => {};
const root = vm.createContext({
  navigator: { language },
  document: {},
  devicePixelRatio: 1,
  CustomEvent,
  dispatchEvent: quiet,
  matchMedia: () => ({ addEventListener: quiet, removeEventListener: quiet }),
  addEventListener: quiet,
  removeEventListener: quiet,
});
root.window = root;
files.forEach((name) => vm.runInContext(fs.readFileSync(path.join(folder, name), "utf8"), root));
console.log(root.navigator.language, vm.runInContext("typeof uPlot", root));
