"""The client over Iggy's protocol: `bascule.connect("iggy://user:password@host")`. Imports no code of the broker.

* `target`: the URL. `link`: the connection, its login and its reconnects. `wire`: requests and replies, pure.
* `failures`: statuses as errors. `columns`, `reading`: batches and subscriptions; `writing`: batches of a producer.
* `client`: the methods of `bascule.Client` that the protocol has; the others are refused by name.
"""
