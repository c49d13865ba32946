"""The descriptors: current, complete, and out of the way of client libraries."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bascule._liftbridge_pb import message, methods
from google.protobuf import descriptor_pool

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["descriptors", "methods"])
def test_what_is_generated_from_the_definitions_is_current(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / f"specs/generate_{name}.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_messages_do_not_clash_with_a_client_library_in_the_same_process() -> None:
    import gufo.liftbridge.api_pb2 as theirs  # noqa: PLC0415 - the point is to load it after ours

    ours = message("CreateStreamRequest")
    pool = descriptor_pool.Default()
    assert ours.DESCRIPTOR is not pool.FindMessageTypeByName("proto.CreateStreamRequest")
    request = theirs.CreateStreamRequest(name="s", subject="a")
    assert ours.FromString(request.SerializeToString()).name == "s"


def test_all_sixteen_methods_are_there() -> None:
    names = methods()
    assert len(names) == 16
    assert names["Subscribe"] == ("SubscribeRequest", "Message")
    assert json.dumps(sorted(names))


def vectors() -> dict[str, bytes]:
    lines = (ROOT / "specs" / "vectors" / "wire" / "messages.hex").read_text().splitlines()
    parts = [line.partition(" ") for line in lines if not line.startswith("#")]
    return {name: bytes.fromhex(digits) for name, _, digits in parts}


@pytest.mark.parametrize("name", vectors())
def test_every_message_has_the_golden_bytes(name: str) -> None:
    """A vector has all of Liftbridge's fields, texts set to the field's name; `Message.field` has this one only."""
    kind, _, alone = name.partition(".")
    data = vectors()[name]
    read = message(kind).FromString(data)
    assert read.SerializeToString(deterministic=True) == data
    found = {field.name: value for field, value in read.ListFields()}
    fields = {field.name for field in read.DESCRIPTOR.fields if field.number < 100}
    expected = {alone} if alone else {field for field in fields if f"{kind}.{field}" not in vectors()}
    assert expected <= set(found)
    texts = {field: value for field, value in found.items() if isinstance(value, str)}
    assert {field: value.lower() for field, value in texts.items()} == {field: field.lower() for field in texts}


def test_the_golden_bytes_are_of_all_messages() -> None:
    definition = (ROOT / "specs" / "proto" / "liftbridge.proto").read_text()
    defined = set(re.findall(r"^message (\w+)", definition, re.MULTILINE))
    assert {name for name in vectors() if "." not in name} == defined
