// uPlot asks Intl for the browser's language as it loads. Some browsers name one that Intl refuses,
// such as "en-US@posix" of chromium where LANG is C: English then.
"use strict";

(function (root) {
  try {
    new Intl.NumberFormat(root.navigator.language);
  } catch {
    Object.defineProperty(root.navigator, "language", { value: "en", configurable: true });
  }
})(globalThis);
