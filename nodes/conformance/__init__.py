"""The conformance kit: does a worker, in whatever language, keep to docs/worker-protocol.md?

kit         a run: what is needed for it, rule after rule, what was found
rule        what a rule is
bench       the nodes' part in Redis, played by hand: attempts (dispatched), reports (read), signs (of life)
starts      their part over HTTP
proxy       between worker and Redis: loses connections and answers
process     the worker's process
server      a Redis of the kit's own
living … leaving    the rules, a file for each section of the protocol
"""

from duly.nodes.conformance.kit import KitError, Options, Outcome, chosen, run
from duly.nodes.conformance.rule import Finding, Rule

__all__ = ["Finding", "KitError", "Options", "Outcome", "Rule", "chosen", "run"]
