// uPlot passes the browser's language to Intl when it loads. Some browsers report one that Intl
// rejects, such as "en-US@posix" of Chromium if LANG is C; use English then.
"use strict";

(function (root) {
  try {
    new Intl.NumberFormat(root.navigator.language);
  } catch {
    Object.defineProperty(root.navigator, "language", { value: "en", configurable: true });
  }
})(globalThis);
