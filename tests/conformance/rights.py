"""Each method as a call on a stream, with the rights that it needs."""

from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

import grpc

from tests.conformance.api import NONE, Api, Failed
from tests.conformance.mutual import rule

__all__ = ["CALLS", "action", "check_creation", "rules_for"]


def check_creation(api: Api, name: str, subject: str, partitions: int = 1) -> None:
    api.admin("CheckCreateStream", create={"name": name, "subject": subject, "partitions": partitions})


def report(api: Api, stream: str) -> None:
    """Report the coordinator. The error that there is no other one is returned only to clients with the right."""
    try:
        api.call("ReportConsumerGroupCoordinator", groupId=f"g-{stream}", consumerId="me", coordinator="x", epoch=0)
    except Failed as refused:
        if refused.code is not grpc.StatusCode.FAILED_PRECONDITION:
            raise


def about_sink(api: Api, method: str, sink: str, **fields: Any) -> None:
    """Call a method about a sink that does not exist. That error is returned only to clients with the right."""
    try:
        api.admin(method, name=sink, **fields)
    except Failed as refused:
        if refused.code is not grpc.StatusCode.NOT_FOUND:
            raise


def sink_name(stream: str) -> str:
    """The name of a sink for a stream of a test."""
    return f"{stream}-sink"


def open_sink(api: Api, stream: str) -> None:
    """A batch job opens a sink to a stream."""
    run = {"kind": "batch", "lifetime": "hour", "run_id": str(uuid4())}
    api.admin("OpenSink", name=f"{stream}-opened", streams=[stream], **run)


def report_archived(api: Api, stream: str) -> None:
    """Report an archive of another incarnation. That error is returned only to clients with the right."""
    part = {"partition": 0, "incarnation": 1, "first": 0, "end": 0}
    try:
        api.admin("ReportArchived", name=stream, archive="lake", partitions=[part])
    except Failed as refused:
        if refused.code is not grpc.StatusCode.FAILED_PRECONDITION:
            raise


def about_users(api: Api, method: str, **fields: Any) -> None:
    """Call a method about users where there are none. That error is returned only to clients with the right."""
    try:
        api.admin(method, **fields)
    except Failed as refused:
        if refused.code is not grpc.StatusCode.FAILED_PRECONDITION:
            raise


def report_query(api: Api, stream: str) -> None:
    """Report a query that has not moved."""
    api.admin("ReportQuery", query=f"{stream}-query", streams=[{"name": stream}])


def release_hold(api: Api, stream: str) -> None:
    """Release a hold that is not there. That error is returned only to clients with the right."""
    try:
        api.admin("ReleaseHold", query=f"{stream}-query", stream=stream)
    except Failed as refused:
        if refused.code is not grpc.StatusCode.NOT_FOUND:
            raise


CALLS: dict[str, tuple[Callable[[Api, str], Any], Callable[[str], str]]] = {
    "CheckCreateStream": (
        lambda api, s: check_creation(api, f"{s}-new", f"{s}-new"), lambda s: f"{s}-new"
    ),
    "CreateStream": (lambda api, s: api.create(f"{s}-new"), lambda s: f"{s}-new"),
    "SetStreamReadonly": (lambda api, s: api.call("SetStreamReadonly", name=s, readonly=False), lambda s: s),
    "EditStream": (lambda api, s: api.admin("EditStream", name=s, dry_run=True), lambda s: s),
    "TrimPartition": (
        lambda api, s: api.admin("TrimPartition", name=s, partition=0, before=0, dry_run=True), lambda s: s
    ),
    "PurgeStream": (lambda api, s: api.admin("PurgeStream", name=s, dry_run=True), lambda s: s),
    "PauseStream": (lambda api, s: api.call("PauseStream", name=s), lambda s: s),
    "ResumeStream": (lambda api, s: api.admin("ResumeStream", name=s, dry_run=True), lambda s: s),
    "Subscribe": (lambda api, s: api.subscribe(s, resume=True).cancel(), lambda s: s),
    "FetchMetadata": (lambda api, s: api.stream(s), lambda _: "*"),
    "Publish": (lambda api, s: api.publish(s, b"x"), lambda s: s),
    "FetchPartitionMetadata": (lambda api, s: api.partition(s), lambda s: s),
    "FetchStreamDetails": (lambda api, s: api.admin("FetchStreamDetails", name=s), lambda s: s),
    "FetchGroupDetails": (lambda api, _: api.admin("FetchGroupDetails", groups=["none"]), lambda _: "*"),
    "FetchBrokerDetails": (lambda api, _: api.admin("FetchBrokerDetails"), lambda _: "*"),
    "FetchClusterStatus": (lambda api, _: api.admin("FetchClusterStatus"), lambda _: "*"),
    "PublishToSubject": (
        lambda api, s: api.call("PublishToSubject", subject=f"{s}.x", value=b"x", ackPolicy=NONE), lambda s: f"{s}.x"
    ),
    "SetCursor": (
        lambda api, s: api.call("SetCursor", stream=s, partition=0, cursorId="c", offset=1), lambda s: s
    ),
    "FetchCursor": (lambda api, s: api.call("FetchCursor", stream=s, partition=0, cursorId="c"), lambda s: s),
    "JoinConsumerGroup": (
        lambda api, s: api.call("JoinConsumerGroup", groupId=f"g-{s}", consumerId="me", streams=[s]), lambda s: f"g-{s}"
    ),
    "FetchConsumerGroupAssignments": (
        lambda api, s: api.call(
            "FetchConsumerGroupAssignments", groupId=f"g-{s}", consumerId="me", epoch=0
        ), lambda s: f"g-{s}",
    ),
    "ReportConsumerGroupCoordinator": (report, lambda s: f"g-{s}"),
    "LeaveConsumerGroup": (
        lambda api, s: api.call("LeaveConsumerGroup", groupId=f"g-{s}", consumerId="me"), lambda s: f"g-{s}"
    ),
    "OpenSink": (open_sink, lambda s: s),
    "PublishSink": (lambda api, s: about_sink(api, "PublishSink", sink_name(s), targets=[{"stream": s}]), lambda s: s),
    "FetchSinkStreams": (lambda api, s: api.admin("FetchSinkStreams", streams=[s]), lambda s: s),
    "FetchSinks": (lambda api, _: api.admin("FetchSinks"), lambda _: "*"),
    "DeleteSink": (lambda api, s: about_sink(api, "DeleteSink", sink_name(s)), sink_name),
    "SkipSink": (lambda api, s: about_sink(api, "SkipSink", sink_name(s), stream=s, partition=0), sink_name),
    "SetSinkQuota": (lambda api, s: about_sink(api, "SetSinkQuota", sink_name(s)), sink_name),
    "SetSinkOwner": (lambda api, s: about_sink(api, "SetSinkOwner", sink_name(s), owner="x"), sink_name),
    "ReportArchived": (report_archived, lambda s: s),
    "ReportQuery": (report_query, lambda s: s),
    "FetchStreams": (lambda api, _: api.admin("FetchStreams"), lambda _: "*"),
    "FetchLags": (lambda api, _: api.admin("FetchLags"), lambda _: "*"),
    "FetchUsers": (lambda api, _: about_users(api, "FetchUsers"), lambda _: "*"),
    "CreateUser": (lambda api, _: about_users(api, "CreateUser", name="ada", password="x"), lambda _: "*"),
    "DeleteUser": (lambda api, _: about_users(api, "DeleteUser", name="ada"), lambda _: "*"),
    "SetUserPassword": (lambda api, _: about_users(api, "SetUserPassword", name="ada", password="x"), lambda _: "*"),
    "SetUserStatus": (lambda api, _: about_users(api, "SetUserStatus", name="ada"), lambda _: "*"),
    "SetUserRights": (lambda api, _: about_users(api, "SetUserRights", name="ada"), lambda _: "*"),
    "CreateUserToken": (lambda api, _: about_users(api, "CreateUserToken", user="ada", name="dev"), lambda _: "*"),
    "DeleteUserToken": (lambda api, _: about_users(api, "DeleteUserToken", user="ada", name="dev"), lambda _: "*"),
    "ReleaseHold": (release_hold, lambda s: s),
    "DeleteStream": (lambda api, s: api.call("DeleteStream", name=s), lambda s: s),
}  # fmt: skip
"""Each method as a call on a stream, and the resource that it is denied or allowed on."""

ACTIONS: Final = {
    "CheckCreateStream": "CreateStream",
    "ResumeStream": "PauseStream",
    "FetchStreamDetails": "FetchPartitionMetadata",
    "FetchGroupDetails": "FetchMetadata",
    "FetchBrokerDetails": "FetchMetadata",
    "FetchClusterStatus": "FetchMetadata",
    "OpenSink": "Publish",
    "PublishSink": "Publish",
    "FetchSinkStreams": "Publish",
    "ReportArchived": "EditStream",
    "ReportQuery": "Subscribe",
    "FetchLags": "FetchMetadata",
    "FetchStreams": "FetchMetadata",
    "ReleaseHold": "EditStream",
    "FetchSinks": "ManageSinks",
    "DeleteSink": "ManageSinks",
    "SkipSink": "ManageSinks",
    "SetSinkQuota": "ManageSinks",
    "SetSinkOwner": "ManageSinks",
    "FetchUsers": "ManageUsers",
    "CreateUser": "ManageUsers",
    "DeleteUser": "ManageUsers",
    "SetUserPassword": "ManageUsers",
    "SetUserStatus": "ManageUsers",
    "SetUserRights": "ManageUsers",
    "CreateUserToken": "ManageUsers",
    "DeleteUserToken": "ManageUsers",
}
"""The action of a method in a policy, if it is not the method's name."""

NEEDED_TOO = {"JoinConsumerGroup": ["Subscribe"]}


def action(method: str) -> str:
    """The action of a method in a policy."""
    return ACTIONS.get(method, method)


def rules_for(client: str, method: str, stream: str) -> list[dict[str, Any]]:
    """The rules that allow a client to call a method on a stream, and nothing else."""
    more = [rule(client, too, stream) for too in NEEDED_TOO.get(method, [])]
    return [rule(client, action(method), CALLS[method][1](stream)), *more]
