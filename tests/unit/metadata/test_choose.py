"""The choice of a leader: each step, and the schedules of the decision page that broke its drafts."""

from dataclasses import replace

import pytest
from bascule.metadata import Partition
from bascule.metadata.choose import ANY, Choice, Occasion, choose, settle, waited_for
from bascule.metadata.replicas import Ending, Loss

from tests.unit.metadata.replica_rig import brokers, led, reports

GONE = Occasion(replaced=True)


def dead(partition: Partition, **runs: str) -> Partition:
    """The partition after the death of its leader at entry 20, when `runs` are not confirmed."""
    known = brokers(a="fenced", **runs)  # type: ignore[arg-type]
    isr = tuple(item for item in partition.isr if known[item].run == "confirmed")
    return settle(known, partition, replace(partition, isr=isr), 20, Occasion(replaced=True))


def test_nobody_leads_while_an_ended_leader_may_not_know() -> None:
    partition = led("", ending=Ending("a", 1, 10))
    assert choose(brokers(), partition, Occasion(first="b")) == Choice("", 1)


def test_the_present_leader_stays_unless_it_is_the_reason() -> None:
    assert choose(brokers(), led("b")) == Choice("b", 2)
    assert choose(brokers(), led("b"), GONE) == Choice("a", 3)
    assert choose(brokers(b="registered"), led("b")) == Choice("a", 3)


@pytest.mark.parametrize(
    ("partition", "leader"),
    [
        (led(), "a"),
        (led(eligible=("b", "c")), "b"),
        (led(unclean=("a",)), "b"),
        (led(unable=("a",)), "b"),
        (led(cut=("a", "b")), "c"),
        (led(tried=("a",)), "b"),
        (led(removing=("a",)), "b"),
        (led(tried=("b", "c"), removing=("a",)), "b"),
        (led(tried=("a", "b", "c"), removing=("a", "b", "c")), "a"),
    ],
)
def test_the_third_step_names_the_first_complete_replica(partition: Partition, leader: str) -> None:
    assert choose(brokers(), partition, GONE) == Choice(leader, 3)


def test_a_draining_broker_comes_last() -> None:
    known = brokers()
    known["a"] = replace(known["a"], draining=True)
    assert choose(known, led(), GONE).leader == "b"
    assert choose(known, led(eligible=("a",)), GONE).leader == "a"


def test_the_target_is_first_only_if_the_third_step_may_name_it() -> None:
    wanted = Occasion(replaced=True, first="c")
    assert choose(brokers(), led(), wanted).leader == "c"
    for partition in (led(cut=("c",)), led(unclean=("c",)), led(isr=("a", "b")), led(eligible=("a", "b"))):
        assert choose(brokers(), partition, wanted).leader == "a"
    assert choose(brokers(c="fenced"), led(), wanted).leader == "a"


def test_w34_a_member_that_was_cut_leads_only_when_everybody_has_reported() -> None:
    after = dead(led(isr=("a", "c"), eligible=("a", "c"), cut=("c",)))
    assert (after.leader, after.eligible) == ("", ("a", "c"))
    known = brokers(a="fenced")
    assert choose(known, replace(after, reports=reports(c=(9, 95)))) == Choice("", 5)
    after = replace(after, reports=reports(a=(10, 100), c=(9, 95)))
    assert settle(brokers(), after, after, 21).leader == "a"


def test_w35_a_loss_is_recorded_unless_a_whole_member_proves_the_contrary() -> None:
    partition = led("", eligible=("a", "b"), isr=(), cut=("a",), unclean=("b",), reports=reports(a=(9, 100), b=(0, 0)))
    after = settle(brokers(), partition, partition, 20)
    assert after.leader == "a"
    assert after.losses == (Loss(20, 100, 0, "unclean"),)
    whole = led("", eligible=("a", "b"), isr=(), cut=("a",), unable=("b",), reports=reports(a=(9, 100), b=(9, 100)))
    assert settle(brokers(), whole, whole, 20).losses == ()
    more = replace(whole, reports=reports(a=(9, 100), b=(9, 101)))
    assert settle(brokers(), more, more, 20).losses == (Loss(20, 100, 0, "cut"),)


def test_w36_if_the_most_complete_is_unclean_all_confirmed_replicas_report() -> None:
    partition = led("", eligible=("a",), isr=(), unclean=("a",), min_isr=1, reports=reports(a=(0, 0)))
    known = brokers(c="fenced")
    assert choose(known, partition) == Choice("", 5)
    partition = replace(partition, reports=reports(a=(0, 0), b=(9, 990)))
    after = settle(known, partition, partition, 20)
    assert (after.leader, after.isr, after.eligible) == ("b", ("b",), ("b",))
    assert after.losses == (Loss(20, 990, 0, "unclean"),)


def test_w37_eligible_stays_while_the_isr_is_below_min_in_sync() -> None:
    partition = led(isr=("a",))
    after = dead(partition)
    assert (after.leader, after.isr, after.eligible) == ("b", ("b",), ("a", "b", "c"))
    known = brokers(b="fenced")
    third = settle(known, after, replace(after, isr=()), 30, Occasion(replaced=True))
    assert third.leader == "a"
    assert third.losses == ()


def test_w52_losses_by_cuts_do_not_push_out_others() -> None:
    partition = led("", losses=(Loss(5, 50, 0, "unclean"),), cut=("a", "b", "c"))
    for index in range(20, 40):
        partition = replace(
            partition, leader="", cut=("a", "b", "c"), reports=reports(a=(9, index), b=(9, 1), c=(9, 1))
        )
        partition = settle(brokers(), partition, partition, index)
    assert partition.losses == (Loss(5, 50, 0, "unclean"), Loss(39, 39, 0, "cut"))


def test_only_the_last_losses_are_kept() -> None:
    partition = led("", losses=tuple(Loss(number, number, 0, "unclean") for number in range(1, 9)))
    partition = replace(partition, unclean=("a", "b", "c"), reports=reports(a=(9, 9), b=(9, 8), c=(9, 8)))
    after = settle(brokers(), partition, partition, 20)
    assert [item.leader_epoch for item in after.losses] == [2, 3, 4, 5, 6, 7, 8, 20]


def test_n45_an_ended_leader_keeps_everybody_else_out() -> None:
    partition = led("", unable=("a",), ending=Ending("a", 1, 10))
    assert settle(brokers(), partition, partition, 11) == partition


def test_n47_the_present_leader_stays_whatever_is_live() -> None:
    partition = led("a")
    after = settle(brokers(c="fenced"), partition, replace(partition, isr=("a", "b")), 20, Occasion(frozenset("b")))
    assert (after.leader, after.leader_epoch, after.epoch, after.eligible) == ("a", 10, 20, ("a", "b"))


def test_only_live_brokers_are_named() -> None:
    assert choose(brokers(), led(), Occasion(frozenset("c"), replaced=True)) == Choice("c", 3)
    every = led("", cut=("a", "b", "c"), reports=reports(a=(9, 9), b=(9, 8), c=(9, 8)))
    assert choose(brokers(), every).leader == "a"
    assert choose(brokers(), every, Occasion(frozenset("ab"))) == Choice("", 5)


def test_a_report_of_an_earlier_run_counts_for_nothing() -> None:
    partition = led("", cut=("a", "b", "c"), reports=reports(a=(9, 9), b=(9, 8), c=(9, 8)))
    known = brokers()
    known["b"] = replace(known["b"], boot_epoch=15)
    after = settle(known, partition, partition, 20)
    assert after.leader == ""
    assert [item.broker for item in after.reports] == ["a", "c"]
    assert after.epoch == partition.epoch


def test_a_named_leader_is_clean_and_nothing_is_kept_of_the_reports() -> None:
    partition = led("", cut=("a", "b", "c"), reports=reports(a=(9, 7), b=(9, 8), c=(8, 99)))
    after = settle(brokers(), partition, partition, 20)
    assert (after.leader, after.leader_epoch, after.epoch) == ("b", 20, 20)
    assert (after.cut, after.reports, after.isr) == (("a", "c"), (), ("a", "b", "c"))


def test_the_loss_of_a_leader_voids_its_epoch() -> None:
    after = dead(led(), b="registered", c="fenced")
    assert (after.leader, after.leader_epoch, after.epoch) == ("", 20, 20)


@pytest.mark.parametrize(
    ("partition", "leader"),
    [
        (led("", cut=("a", "b"), reports=reports(b=(9, 5))), "b"),
        (led("", cut=("a", "b"), reports=reports(a=(9, 4), b=(9, 5))), "b"),
        (led("", unable=("b",), cut=("a", "b"), reports=reports(a=(9, 4), b=(9, 5))), "a"),
        (led("", unclean=("a", "b"), reports=reports(a=(9, 4), b=(9, 5))), ""),
        (led("", unclean=("a", "b", "c"), reports=reports(a=(9, 4), b=(9, 5), c=(9, 3))), "b"),
        (led("", eligible=("a",), unclean=("a",), reports=reports(a=(9, 4))), "a"),
        (led("", eligible=(), reports=reports(a=(9, 4))), ""),
        (led("", ending=Ending("a", 1, 10), reports=reports(b=(9, 5))), ""),
        (led("a", reports=reports(b=(9, 5))), ""),
        (led(""), ""),
    ],
)
def test_after_a_wait_the_most_complete_of_those_that_reported_may_be_named(partition: Partition, leader: str) -> None:
    assert waited_for(brokers(), partition) == leader


def test_nothing_changes_when_nothing_happened() -> None:
    assert settle(brokers(), led(), led(), 20, ANY) == led()
