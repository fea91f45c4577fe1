// The order of search results: guides before references, and these before notes on internals.
const weights = [
  [/^start\//, 14],
  [/^guide\//, 12],
  [/^(polish|jobshop|own)$/, 8],
  [/^extend\//, 4],
  [/^internals\/|^kernels$|^architecture$/, 0],
  [/^results\//, -2],
  [/^changelog$|^contributing$/, -12],
];

var Scorer = {
  score: ([docname, , , , score]) => {
    const found = weights.find(([pattern]) => pattern.test(docname));
    return score + (found ? found[1] : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 4,
  objPrio: { 0: 8, 1: 3, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
