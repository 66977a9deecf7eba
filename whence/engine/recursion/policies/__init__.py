"""Policies: how a derived row of a recursive component chooses, and loses, what it stands on.

| module       | what a row keeps | when external rows go |
|--------------|------------------|-----------------------|
| `support`    | one chosen derivation, of rows of smaller rank | withdrawn by rank, unless another is found |
| `dred`       | nothing | what has some derivation through them dies; what can be derived comes back |
| `absorption` | which sets of base rows suffice for it | false is put in their place; what is false dies |
| `relative`   | its derivations, as edges between rows | the same |
| `plain`      | what `support` and `dred` have in common | |
| `annotated`  | what `absorption` and `relative` have in common | |
| `policy`     | the protocol | |

A policy works with a mailbox that has peers or none; `Mailbox.admit` says under which one rows may cross partitions.
"""

from __future__ import annotations

from whence.engine.recursion.mailbox import Mailbox
from whence.engine.recursion.policies.absorption import AbsorptionPolicy
from whence.engine.recursion.policies.dred import DRed
from whence.engine.recursion.policies.policy import Policy
from whence.engine.recursion.policies.relative import RelativePolicy
from whence.engine.recursion.policies.support import Support
from whence.engine.recursion.rule_runner import RuleRunner
from whence.plan.recursion.settings import Maintain


def make_policy(policy: str | Maintain, runner: RuleRunner, mailbox: Mailbox) -> Policy:
    """Make the policy that a view asks for."""
    if isinstance(policy, Maintain):
        return (RelativePolicy if policy.algebra == "relative" else AbsorptionPolicy)(policy, runner, mailbox)
    return (Support if policy == "support" else DRed)(runner, mailbox)
