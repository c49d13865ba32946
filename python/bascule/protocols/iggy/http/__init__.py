"""The HTTP interface of Iggy, as far as it is decided here: JSON of requests becomes payloads of the binary protocol's
commands, and their replies become JSON. Requests about messages, stored offsets, groups and connections are answered
natively (`crates/broker/src/iggy/http`).

* `service`: requests of the data plane, from their bytes to the bytes of the answer; `exchange`: a request and a reply.
* `routes`: every path with its methods. `bodies`: JSON of requests; `payloads`: payloads of commands; `shapes`: JSON of
  replies.
* `access`: tokens of the interface. `openapi`: its description; `gauges`: its metrics.
"""

from bascule.protocols.iggy.http.service import HttpService

__all__ = ["HttpService"]
