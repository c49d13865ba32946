"""Share the work on a stream between several processes.

Run `python examples/publish.py` first, then `python examples/group.py [ADDRESS]` in two terminals: each process gets
some of the partitions. When one ends, the other takes its partitions over and continues at the stored position.
"""

import sys

import bascule

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9292"
STREAM = "orders"
GROUP = "billing"
IDLE_SECONDS = 5.0


def main() -> None:
    """Process records as a member of the group until none arrived for five seconds."""
    total = 0
    with (
        bascule.connect(f"liftbridge://{ADDRESS}") as client,
        client.consumer(
            GROUP,
            [STREAM],
            on_assigned=lambda partitions: print("assigned:", sorted(number for _, number in partitions)),
            on_revoked=lambda partitions: print("revoked:", sorted(number for _, number in partitions)),
        ) as consumer,
    ):
        # Asking for the next batch marks the previous one as processed. Its position is stored in the background,
        # before a partition moves to another member, and at the end. Delivery is at least once.
        while (batch := consumer.next_batch(timeout=IDLE_SECONDS)) is not None:
            total += len(batch)
    print(f"processed {total} records")


if __name__ == "__main__":
    main()
