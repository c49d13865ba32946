"""The five steps of the choice hold in every state of a partition, with every occasion."""

from dataclasses import replace

from bascule.metadata import Broker, Partition
from bascule.metadata.choose import Occasion, choose, settle
from bascule.metadata.replicas import Ending, Position, Reported
from hypothesis import assume, given
from hypothesis import strategies as st

IDS = ("a", "b", "c", "d")


def members() -> st.SearchStrategy[tuple[str, ...]]:
    return st.sets(st.sampled_from(IDS[:3])).map(lambda chosen: tuple(item for item in IDS if item in chosen))


known_brokers = st.fixed_dictionaries(
    {
        name: st.builds(
            Broker,
            st.just(name),
            st.just("h"),
            st.just(1),
            st.integers(1, 2),
            st.just(1),
            run=st.sampled_from(["confirmed", "confirmed", "registered", "fenced"]),
            draining=st.booleans(),
        )
        for name in IDS[:3]
    }
)
positions = st.builds(Position, st.integers(0, 2), st.integers(0, 2), st.just(0))
reported = st.lists(
    st.builds(Reported, st.sampled_from(IDS[:3]), st.integers(1, 2), positions),
    max_size=3,
    unique_by=lambda item: item.broker,
).map(tuple)
partitions = st.builds(
    Partition,
    st.just(0),
    st.just(1 << 16),
    st.sampled_from(["", "", "a", "b"]),
    st.just(5),
    st.just(5),
    st.permutations(IDS[:3]).map(tuple),
    members(),
    eligible=members(),
    unclean=members(),
    unable=members(),
    cut=members(),
    tried=members(),
    removing=members(),
    reports=reported,
    ending=st.sampled_from([None, None, None, Ending("a", 1, 4)]),
    min_isr=st.integers(1, 3),
)
occasions = st.builds(
    Occasion,
    st.one_of(st.none(), st.frozensets(st.sampled_from(IDS))),
    st.booleans(),
    st.sampled_from(["", *IDS]),
)

every_report = st.tuples(positions, positions, positions).map(
    lambda ends: tuple(Reported(name, 1, end) for name, end in zip(IDS[:3], ends, strict=True))
)
leaderless = st.builds(
    Partition,
    st.just(0),
    st.just(1 << 16),
    st.just(""),
    st.just(5),
    st.just(5),
    st.permutations(IDS[:3]).map(tuple),
    members(),
    eligible=members().filter(bool),
    unclean=members(),
    unable=members(),
    cut=st.just(IDS[:3]),
    reports=every_report,
    min_isr=st.integers(1, 3),
)
"""Partitions where step 3 finds nobody and everybody has reported."""
ALIVE = {name: Broker(name, "h", 1, 1, 1, run="confirmed") for name in IDS[:3]}


def ranked(brokers: dict[str, Broker], partition: Partition, occasion: Occasion) -> list[str]:
    """Whom step 3 may name, restated: best first."""
    able = [
        name
        for name in partition.replicas
        if brokers[name].run == "confirmed"
        and (occasion.live is None or name in occasion.live)
        and name in partition.eligible
        and name not in partition.unclean + partition.unable + partition.cut
    ]
    ranks: list[list[str]] = [[], [], [], []]
    for name in able:
        leaves = brokers[name].draining or name in partition.removing
        ranks[2 * leaves + (name in partition.tried)].append(name)
    order = [name for rank in ranks for name in rank]
    first = [name for name in order if name == occasion.first and name in partition.isr]
    return first + [name for name in order if name not in first]


def current(brokers: dict[str, Broker], partition: Partition) -> dict[str, Reported]:
    """The reports that count."""
    return {
        item.broker: item
        for item in partition.reports
        if brokers[item.broker].boot_epoch == item.boot_epoch and brokers[item.broker].run == "confirmed"
    }


@given(known_brokers, partitions, occasions)
def test_the_five_steps(brokers: dict[str, Broker], partition: Partition, occasion: Occasion) -> None:
    choice = choose(brokers, partition, occasion)
    stays = bool(partition.leader) and brokers[partition.leader].run == "confirmed" and not occasion.replaced
    order = ranked(brokers, partition, occasion)
    if partition.ending is not None:
        assert (choice.step, choice.leader) == (1, "")
    elif stays:
        assert (choice.step, choice.leader) == (2, partition.leader)
    elif order:
        assert (choice.step, choice.leader) == (3, order[0])
    else:
        assert choice.step in {4, 5}
    assert (choice.leader == "") == (choice.step in {1, 5})
    assert choice.loss is None or choice.step == 4


@given(leaderless, members(), members())
def test_the_fourth_step_names_nobody_who_has_less(
    partition: Partition, whole: tuple[str, ...], live: tuple[str, ...]
) -> None:
    cut = tuple(name for name in IDS[:3] if name not in whole or name not in partition.unable)
    partition = replace(partition, cut=cut)
    choice = choose(ALIVE, partition, Occasion(frozenset(live) if live else None))
    reports = {item.broker: item.position.order for item in partition.reports}
    if (live and not set(partition.eligible) <= set(live)) or set(partition.eligible) <= set(partition.unable):
        assert choice.leader == ""
    else:
        assert choice.step == 4
    if choice.step != 4:
        return
    mine = reports[choice.leader]
    assert choice.leader not in partition.unable
    assert not live or choice.leader in live
    assert all(reports[name] <= mine for name in set(partition.eligible) - set(partition.unable))
    proof = set(partition.eligible) - set(partition.unclean) - set(partition.cut)
    is_proven = choice.leader not in partition.unclean and any(reports[name] <= mine for name in proof)
    assert (choice.loss is None) == is_proven
    assert choice.loss is None or choice.loss.start == mine[1]


@given(known_brokers, partitions, occasions)
def test_what_the_choice_leaves(brokers: dict[str, Broker], partition: Partition, occasion: Occasion) -> None:
    assume(not partition.leader or partition.leader in partition.isr)
    after = settle(brokers, partition, partition, 9, occasion)
    if after.leader and after.leader_epoch == 9:
        assert after.leader in after.isr
        assert after.leader not in after.unclean + after.cut + after.unable
        assert not after.reports
    assert after.leader_epoch in ({5, 9} if after.leader == partition.leader else {9})
    if len(after.isr) >= after.min_isr:
        assert after.eligible == after.isr
    assert (after.epoch == 9) == (replace(after, epoch=5, reports=(), losses=()) != plain(partition))


def plain(partition: Partition) -> Partition:
    return replace(partition, reports=(), losses=())
