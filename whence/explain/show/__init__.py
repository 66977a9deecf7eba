"""Answers as people and other programs read them: text, JSON, Graphviz, HTML.

| module | what it holds |
|---|---|
| `explanation` | `Explanation`: the answer of `why`, in every form |
| `origins` | `Origins`: the explanation of a row of a stream |
| `trace` | `Trace`: where a row of a stream went |
| `answers` | `Critical`, `Resilience`, `Contribution`, `Reliability` |
| `choose` | which part of a large graph is shown |
| `tree` | derivations as a tree of text |
| `shares` | what each row of a group is to its aggregates |
| `dot` | derivations for Graphviz |
| `layout` | where rows and steps are drawn |
| `fragment` | an explanation in a notebook |
| `missing_tree` | a missing row as text, JSON and DOT |
| `page` | the HTML page of an explanation |
| `table_page` | HTML pages of tables |
"""
