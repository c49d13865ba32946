"""S16: every method for every kind of client over mutual TLS: each cell is accepted or rejected as specified."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.certificates import DAY, Authority
from tests.conformance.api import Api, Failed
from tests.conformance.mutual import ROOT, Mutual, mutual_broker, rule
from tests.conformance.rights import CALLS, action, rules_for
from tests.torture.result import Result, Scale

ROW = "S16"
ROUNDS = {Scale.SHORT: 1, Scale.FULL: 50}
DENIED = "not authorized to call"


@dataclass
class Cells:
    """Results by kind of client and method."""

    expected: int = 0
    wrong: list[str] = field(default_factory=list[str])

    def judge(self, kind: str, method: str, on: tuple[Api, str], code: grpc.StatusCode | None, text: str = "") -> None:
        """Call a method, and check that it ends with `code` and `text`; `None` = success."""
        try:
            CALLS[method][0](*on)
            found: tuple[grpc.StatusCode | None, str] = (None, "")
        except Failed as failure:
            found = (failure.code, failure.text)
        if found[0] is code and text in found[1]:
            self.expected += 1
        else:
            self.wrong.append(f"{kind} {method}: {found[0]} {found[1]}")


def strangers(mutual: Mutual, address: str) -> dict[str, Api]:
    """Connections that must fail."""
    ca = mutual.authority.ca.read_bytes()
    other = Authority(mutual.directory / "other").issue(ROOT)
    expired = mutual.authority.issue(ROOT, file="expired", begins=-3 * DAY, ends=-DAY)
    later = mutual.authority.issue(ROOT, file="later", begins=DAY)
    own = {"another authority": other, "expired": expired, "not yet valid": later}
    shown = {name: (pair.key.read_bytes(), pair.cert.read_bytes()) for name, pair in own.items()}
    pairs = {"no certificate": (None, None), **shown}
    made = {name: Api(address, grpc.ssl_channel_credentials(ca, *pair)) for name, pair in pairs.items()}
    return {"plain text": Api(address), **made}


def one_round(mutual: Mutual, root: Api, cells: Cells, number: int) -> None:
    """All cells once."""
    stream = f"matrix-{number}"
    allowed = {"named": f"{stream}-named", "by prefix": f"{stream}-prefix", "as everyone": f"{stream}-all"}
    for name in (stream, *allowed.values()):
        root.create(name)
    rules: list[dict[str, Any]] = [
        *all_of("prefix", allowed["by prefix"]),
        rule("elsewhere", "*", "elsewhere"),
        rule("taken", "*", "*"),
        {"clients": "taken", "deny": "*", "resources": "*"},
    ]
    for method in CALLS:
        rules += rules_for(f"only-{method}", method, allowed["named"])
        others = {action(other) for other in CALLS} - {action(method)}
        rules += [rule(f"all-but-{method}", sorted(others), "*")]
    mutual.allow(*rules)
    for kind in ("nobody", "elsewhere", "taken"):
        with mutual.api(kind) as api:
            for method in CALLS:
                cells.judge(kind, method, (api, stream), grpc.StatusCode.PERMISSION_DENIED, DENIED)
    with mutual.api("nameless") as api:
        for method in CALLS:
            cells.judge("nameless", method, (api, stream), grpc.StatusCode.UNAUTHENTICATED, "client ID")
    for method in CALLS:
        with mutual.api(f"all-but-{method}") as api:
            text = f"{DENIED} {action(method)} on"
            cells.judge("all others", method, (api, stream), grpc.StatusCode.PERMISSION_DENIED, text)
        with mutual.api(f"only-{method}") as api:
            cells.judge("this one", method, (api, allowed["named"]), None)
    with mutual.api("prefix") as api:
        for method in CALLS:
            cells.judge("by prefix", method, (api, allowed["by prefix"]), None)
    mutual.allow(*all_of(None, allowed["as everyone"]))
    with mutual.api("anybody") as api:
        for method in CALLS:
            cells.judge("as everyone", method, (api, allowed["as everyone"]), None)


def all_of(client: str | None, stream: str) -> list[dict[str, Any]]:
    """All rights on a stream and its objects; for every client if `client` is `None`."""
    names = [f"{stream}*", f"g-{stream}"]
    return [rule(client or "*", "*", names), rule(client or "*", ["FetchMetadata", "ManageSinks", "ManageUsers"], "*")]


def run(scale: Scale) -> Result:
    """Fill the matrix `ROUNDS` times, with new streams each time."""
    began, cells = time.monotonic(), Cells()
    with (
        tempfile.TemporaryDirectory(prefix="bascule-access-") as directory,
        mutual_broker(Path(directory), **{"cursors.partitions": 1}) as mutual,
    ):
        assert mutual.running is not None
        mutual.pairs["nameless"] = mutual.authority.issue([], file="nameless")
        with mutual.api(ROOT) as root:
            root.create("strange")
            for kind, api in strangers(mutual, mutual.running.address).items():
                with api:
                    for method in CALLS:
                        cells.judge(kind, method, (api, "strange"), grpc.StatusCode.UNAVAILABLE)
            for number in range(ROUNDS[scale]):
                one_round(mutual, root, cells, number)
    total = cells.expected + len(cells.wrong)
    return Result(
        row=ROW,
        title="every method for every kind of client, over mutual TLS",
        figure=f"{cells.expected:,} of {total:,} cells as expected" + "".join(f"; {cell}" for cell in cells.wrong[:3]),
        bar="100 %",
        passed=not cells.wrong and total > 0,
        numbers={"cells": total, "as_expected": cells.expected},
        seconds=time.monotonic() - began,
    )
