"""Our own administrative methods: the service `bascule.admin.v1.Admin` (`specs/proto/bascule_admin_v1.proto`).

* `service`: what all methods have in common: reading the request, rights, the answer's bytes.
* `removal`: TrimPartition, PurgeStream; `editing`: EditStream, ResumeStream, CheckCreateStream.
* `details`: FetchStreamDetails, FetchStreams, FetchGroupDetails, FetchBrokerDetails.
* `sinks`: those of exactly-once writers; `queries`: ReportQuery, FetchLags; `archives`: ReportArchived.
* `requests`, `settings`: messages in and out of plain values.
"""

from bascule.protocols.admin.service import AdminService, Managed

__all__ = ["AdminService", "Managed"]
