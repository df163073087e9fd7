"""The HTTP API of a node (design, section 6).

app         the application: routes, middleware, headers
access      tokens and roles: who may do what
route_roles the role that each route needs
own_machine what a node without tokens takes for its own machine
throttle    how often somebody may do something
problems    errors as application/problem+json
bodies      reading and decoding request bodies
json_guard  what JSON the store can hold exactly
wire        request shapes
replies     reply shapes
submissions a checked body becomes a task
changes     a checked body becomes a change
views       rows become JSON
answers     answers that are not errors
queries     ids, query strings, If-Match
batches     the checks of many submissions at once
submit      handlers: submit, batch
tasks       handlers: get, list, patch, cancel, retry, runs
audits      handler: who changed what
nodes       handler: the live nodes
explain     handler: why a task has not run: gathers the facts
facts       what is known of such a task
judging     from facts to reasons: pure
underway    the same, of a task that was claimed
reasons     the reasons
moments     times in words
cluster     handlers: the live workers, who owns the slots
workers     handlers: start, report
health      handlers: healthz, readyz
parameters  what that description says of parameters
openapi     the description of all this
"""
