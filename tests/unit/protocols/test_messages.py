"""The descriptors: current, complete, and out of the way of client libraries."""

import importlib.util
import json
from pathlib import Path

from bascule._liftbridge_pb import message, methods
from google.protobuf import descriptor_pool

ROOT = Path(__file__).resolve().parents[3]


def test_the_descriptors_are_those_of_the_definition() -> None:
    spec = importlib.util.spec_from_file_location("generate_descriptors", ROOT / "specs" / "generate_descriptors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_bytes() == module.descriptors(), "run python specs/generate_descriptors.py"


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
