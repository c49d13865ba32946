"""Failures of functions of `foreachBatch`: one sentence of ours, and one traceback of the user's."""

import traceback

import pytest
from bascule.errors import InternalError, StateError
from bascule.pipeline.failures import failure_of
from bascule.spark.sentences import shortly
from bascule.spark.traces import without_frames

TEXT = """Return Message: Traceback (most recent call last):
  File "/opt/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/site-packages/pyspark/sql/utils.py", line 166, in call
    raise e
{frames}ValueError: of the user
 SQLSTATE: 39000"""


def test_frames_of_the_user_stay_and_those_of_pyspark_go() -> None:
    frames = '  File "/home/me/job.py", line 2, in write\n    raise ValueError("of the user")\n'
    assert without_frames(TEXT.format(frames=frames)) == (
        f"Return Message: Traceback (most recent call last):\n{frames}ValueError: of the user\n SQLSTATE: 39000"
    )


def test_a_traceback_without_frames_has_no_head() -> None:
    assert without_frames(TEXT.format(frames="")) == "Return Message: ValueError: of the user\n SQLSTATE: 39000"


def test_an_error_of_ours_is_raised_alone_with_its_code() -> None:
    def refuse(batch: object, epoch: int) -> None:
        try:
            {}[batch]
        except KeyError as cause:
            raise StateError("sink_conflict", f"epoch {epoch} is there") from cause

    with pytest.raises(StateError) as raised:
        shortly(refuse)(None, 3)
    text = "".join(traceback.format_exception(raised.value))
    assert text.count("Traceback") == 1
    assert text.endswith("StateError: [sink_conflict] epoch 3 is there\n")
    assert "KeyError" not in text


def test_a_failure_that_has_a_sentence_of_ours_within_is_that_error() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Failed to commit: bascule.errors.StateError: [sink_conflict] the table has it")

    with pytest.raises(StateError, match=r"^\[sink_conflict\] the table has it$") as raised:
        shortly(fail, failure_of)(None, 0)
    assert raised.value.code == "sink_conflict"


@pytest.mark.parametrize("failure", [ValueError("of the user"), InternalError("internal", "a defect")])
def test_other_exceptions_keep_their_traceback(failure: Exception) -> None:
    def fail(*_: object) -> None:
        raise failure

    with pytest.raises(type(failure)) as raised:
        shortly(fail, failure_of)(None, 0)
    assert raised.value is failure
    assert "in fail" in "".join(traceback.format_exception(failure))
