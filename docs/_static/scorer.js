// Titles decide the order of search results; among equals, guides come before references, and these
// before notes on internals.
const weights = [
  [/^guide\/solve$/, 9],
  [/^(start|guide|notebooks)\//, 4],
  [/^(polish|jobshop|own)$/, 4],
  [/^extend\//, 3],
  [/^reference\//, 1],
  [/^internals\//, -4],
  [/^results\//, -2],
  [/^(changelog|contributing|index)$/, -8],
];

var Scorer = {
  score: ([docname, , , , score]) => {
    const found = weights.find(([pattern]) => pattern.test(docname));
    return score + (found ? found[1] : 0);
  },
  objNameMatch: 4,
  objPartialMatch: 2,
  objPrio: { 0: 3, 1: 1, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
