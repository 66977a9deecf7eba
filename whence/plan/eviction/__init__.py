"""Which rows a join in bounded memory keeps: those with the greatest expected benefit.

| module         | what it is for |
|----------------|-----------------|
| `lifetimes`    | the probability that a row is still kept after d arrivals, by assumption |
| `value_models` | how the values of a stream go on: stationary, trend, random walk, AR(1), seasonal |
| `benefit`      | the results that a kept row is expected to make, weighed by its lifetime (HEEB) |
| `scoring`      | benefits and other scores in the form that kernels take |

Time is counted in arrivals: step d is the d-th row that is still to come of the stream that a row is joined with. A row
makes a result with each arrival of its value; a cached row (of a look-up) with the first only.
"""
