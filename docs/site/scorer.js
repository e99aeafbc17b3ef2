/* The order of the site's search. Sphinx gives a page 15 points as soon as one word of the query is in a heading; here
   the points grow with the number of words that are. Logs and generated lists, which have every word, come last. */
var Scorer = {
  lists: /^(CHANGELOG|CONTRIBUTING|docs\/(commands|findings|history\/.*))$/,

  score: ([page, , , , score, , kind]) => {
    if (kind !== "text") return score;
    const query = new URLSearchParams(window.location.search).get("q") ?? "";
    const words = [...Search._parseQuery(query)[1]];
    const file = Search._index.docnames.indexOf(page);
    const headings = words.filter((word) => [Search._index.titleterms[word] ?? []].flat().includes(file)).length;
    const points = Math.min(score, Scorer.term + ((Scorer.title - Scorer.term) * headings) / words.length);
    return Scorer.lists.test(page) ? points - Scorer.title : points;
  },

  // Sphinx's own numbers
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
