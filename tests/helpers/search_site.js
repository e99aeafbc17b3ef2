// Run Sphinx's own search on a built site: node search_site.js SITE QUERY ... prints the hits of each query as JSON.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const [site, ...queries] = process.argv.slice(2);

const page = { readyState: "loading", addEventListener() {}, getElementById: () => null };
const context = vm.createContext({ document: page, localStorage: { setItem() {} }, console, URLSearchParams });
context.window = context;

function load(name) {
  vm.runInContext(fs.readFileSync(path.join(site, name), "utf8"), context, { filename: name });
}

function scripts() {
  const html = fs.readFileSync(path.join(site, "search.html"), "utf8");
  const named = [...html.matchAll(/<script src="([^"?]+)/g)].map((match) => match[1]);
  const needed = ["doctools.js", "sphinx_highlight.js", "language_data.js", "searchtools.js"];
  return named.filter((name) => needed.some((each) => name.endsWith(`/${each}`)));
}

scripts().forEach(load);
load("searchindex.js");

// Hits come last first: the page takes them from the end of the array.
const search = `Search._performSearch(...Search._parseQuery(query)).reverse()`;
const hits = queries.map((query) => {
  context.query = query;
  context.location = { search: `?q=${encodeURIComponent(query)}` };
  return vm.runInContext(search, context).map(([page, title, anchor, , score]) => ({ page, title, anchor, score }));
});
console.log(JSON.stringify(hits));
