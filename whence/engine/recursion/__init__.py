"""Recursion: a component of views that depend on each other, kept at its least fixpoint.

One operator (`fixpoint`) made of a policy, how a derived row chooses and loses what it stands on, and a mailbox, which
rows live in other partitions.

| word        | meaning |
|-------------|---------|
| store, slot | all rows of a component's relations are in one array of slots of fixed size |
| external    | a relation that rules read and do not derive; its rows come with multiplicities |
| copy        | a relation of rows that partitions derive and send |
| sender      | a partition that derives a row of a copy |
| rank        | one more than the largest rank in a row's chosen derivation; it is sent with the row |
| round       | one call of a policy's `work`: what a partition does between two exchanges of messages |
| touched     | changed in this epoch |
| published   | of an annotation: what other rows have been derived with; *buffered*: what came later |
| variable    | the number by which formulas mention a base row |

| module               | what it is for |
|----------------------|-----------------|
| `components`         | build the operators of a recursive component |
| `fixpoint`           | the operator, and its ports |
| `iterative`          | what the dataflow asks of an operator with peers |
| `policies`           | support, dred, absorption, relative |
| `mailbox`            | which rows live in other partitions |
| `ranked_messages`    | messages of rows with their ranks: support |
| `senders`            | messages of rows without: dred |
| `annotated_messages` | messages of annotated rows |
| `annotated_state`    | what annotated policies keep |
| `rule_runner`        | kernel calls, limits, rows that only Python can compute |
| `rule_plans`         | rules as the integers that kernels run |
| `rule_orders`        | the orders of atoms in rules, by the rows that there are |
| `slot_lookup`        | lookups by key: indexes over slots |
| `slot_store`         | the arrays of a component |
| `annotations`        | published and buffered formulas by slot |
| `row_variables`      | variables of base rows |
| `limits`             | limits of a recursion, and their error |
| `kernels`            | the compiled part of the above |
"""
