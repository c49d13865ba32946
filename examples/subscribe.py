"""Read a stream from where the last run stopped.

Run `python examples/publish.py` first, then `python examples/subscribe.py [ADDRESS]`. A second run prints only records
that were published in the meantime: the broker stores the position of the reader under the name of a cursor.
"""

import sys

import bascule

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9292"
STREAM = "orders"
CURSOR = "printer"


def main() -> None:
    """Read each partition up to its current end, and store how far we read."""
    total = 0
    with bascule.connect(f"liftbridge://{ADDRESS}") as client:
        for partition in client.get_stream(STREAM).partitions:
            # Without `stop` the subscription would wait for new records. `start` counts only on the first run.
            reading = client.subscribe(
                STREAM, partition=partition.number, cursor=CURSOR, start="earliest", stop="latest"
            )
            with reading as subscription:
                for batch in subscription:
                    offsets = batch.offsets
                    print(f"partition {partition.number}: offsets {offsets[0]} to {offsets[-1]}")
                    total += len(batch)
                    # Commit after the work is done: after a crash the uncommitted records are read again.
                    subscription.commit()
    print(f"read {total} records")


if __name__ == "__main__":
    main()
