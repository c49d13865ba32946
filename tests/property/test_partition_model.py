"""What is eligible holds what was committed, in a model of one partition beside the state machine."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.partition_model import Model


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_eligible_holds_what_the_leader_committed(seed: int) -> None:
    model = Model(seed)
    for _ in range(300):
        model.step()


def test_leaders_change_and_records_are_committed_in_the_model() -> None:
    named = committed = losses = 0
    for seed in range(30):
        model = Model(seed)
        for _ in range(1_000):
            model.step()
        named += model.named
        committed += len(model.committed)
        losses += model.losses
    assert named > 100
    assert committed > 300
    assert losses < named / 5
