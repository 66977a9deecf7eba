"""SQL: from text to statements, and from statements to bound queries.

Parsing is sqlglot's; binding resolves names and types, and refuses what it does not read (`ledger`).

| module             | what it is for |
|--------------------|-----------------|
| `parse`            | scripts to statements |
| `reader`           | sqlglot, restricted: tokens, and expressions from runs of them |
| `parameter_tokens` | parameters in the text: `?`, `$1`, `:name`, `$name` |
| `parameters`       | values for the parameters of statements |
| `parameter_values` | the literals of Python values |
| `statements`       | the statements |
| `templates`        | CREATE TEMPLATE: the parameters and their types |
| `open_bounds`      | NULL parameters as "no bound" |
| `parameter_join`   | a template's query, joined with its parameters |
| `bind`             | the binder's interface: statements against a program |
| `tables`           | CREATE TABLE |
| `promises`         | CHECK, ordered and closes |
| `views`            | CREATE VIEW: views bound together |
| `queries`          | WITH, set operations and VALUES |
| `select`           | one SELECT |
| `relations`        | FROM and joins |
| `grouping`         | GROUP BY |
| `ordering`         | ORDER BY and LIMIT |
| `expressions`      | scalar expressions over a scope |
| `scope`            | which column a name means |
| `types`            | type rules and conversions |
| `literals`         | literals |
| `operators`        | operators |
| `functions`        | built-in functions |
| `zones`            | AT TIME ZONE |
| `aggregates`       | aggregate functions |
| `stream_functions` | slide, latest, bsort and provenance in FROM |
| `tick_time`        | which column is the tick time of a stream |
| `subqueries`       | subqueries to joins |
| `lift`             | correlation lifted out of a subquery |
| `placeholders`     | expressions that exist only during binding |
| `options`          | the options of WITH (…) |
| `plan_text`        | plans written back as SQL |
| `addresses`        | the addresses of sources |
| `ledger`           | the parts of a statement that binding has read |
| `limits`           | the largest query |
| `position`         | where an error stands in the text |
"""
