"""Answers to proposals with an id: a repetition is answered as the first time, and never applied twice. Pure."""

from dataclasses import replace

from bascule.metadata.model import State
from bascule.metadata.rejection import Rejection, RejectionCode
from bascule.metadata.replicas import MAX_ANSWERS, Answer, Proposal
from bascule.metadata.results import Applied, Result

MAX_MESSAGE = 1_000
"""Most characters that are kept of the message of a rejection."""


def known_answer(state: State, proposal: Proposal) -> Result | None:
    """How the proposal was answered, or why it cannot be applied; None = it is new."""
    if proposal.nonce < 1 or proposal.counter < 1:
        message = f"a proposal has the nonce {proposal.nonce} and the counter {proposal.counter}; both begin at 1"
        return Rejection(RejectionCode.INVALID, message)
    for answer in reversed(state.answers):
        if answer.proposal == proposal:
            return _result(answer)
    settled = max((item.counter for item in state.answered_to if item.nonce == proposal.nonce), default=0)
    if proposal.counter <= settled or proposal.nonce not in _nonces(state):
        message = f"proposal {proposal.counter} of run {proposal.nonce} was answered, or that run is over"
        return Rejection(RejectionCode.OUTCOME_UNKNOWN, message)
    return None


def with_answer(state: State, proposal: Proposal, result: Result) -> State:
    """Keep the answer; the oldest ones go, and with them every proposal of those runs up to their counters."""
    rejection = result if isinstance(result, Rejection) else None
    answer = Answer(
        proposal,
        state.index,
        rejection.code.value if rejection else "",
        rejection.message[:MAX_MESSAGE] if rejection else "",
    )
    answers = (*state.answers, answer)
    if len(answers) <= MAX_ANSWERS:
        return replace(state, answers=answers)
    present = _nonces(state)
    settled = {item.nonce: item.counter for item in state.answered_to if item.nonce in present}
    for gone in answers[:-MAX_ANSWERS]:
        nonce, counter = gone.proposal.nonce, gone.proposal.counter
        if nonce in present:
            settled[nonce] = max(counter, settled.get(nonce, 0))
    answered_to = tuple(Proposal(nonce, settled[nonce]) for nonce in sorted(settled))
    return replace(state, answers=answers[-MAX_ANSWERS:], answered_to=answered_to)


def _result(answer: Answer) -> Result:
    if not answer.code:
        return Applied(answer.index)
    known = {item.value for item in RejectionCode}
    code = RejectionCode(answer.code) if answer.code in known else RejectionCode.OUTCOME_UNKNOWN
    return Rejection(code, answer.message)


def _nonces(state: State) -> frozenset[int]:
    """Those of the last runs of all brokers."""
    return frozenset(item.nonce for item in state.brokers.values() if item.nonce)
