"""Publish orders to a stream, first one by one, then in bulk.

Start a broker with `make run`, then run `python examples/publish.py [ADDRESS]`. An acknowledged record is on disk.
"""

import sys

import bascule

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9292"
STREAM = "orders"
CUSTOMERS = ["ada", "ben", "carl"]


def main() -> None:
    """Create the stream, publish one record and wait for its ack, then publish 1,000 in the background."""
    with bascule.connect(f"liftbridge://{ADDRESS}") as client:
        client.create_stream(STREAM, exist_ok=True, options=bascule.StreamOptions(partitions=2))

        # One record: the call returns when the broker has acknowledged it.
        receipt = client.publish(STREAM, b'{"item": "tea"}', key="ada", headers={"source": b"shop"})
        print(f"stored in partition {receipt.partition} at offset {receipt.offset}")

        # Many records: the producer sends in the background. Leaving the block waits for every ack, or raises.
        # Records with the same key go to the same partition, so the orders of one customer stay in order.
        with client.producer(STREAM) as producer:
            for number in range(1000):
                producer.send(f'{{"item": "cup", "number": {number}}}', key=CUSTOMERS[number % len(CUSTOMERS)])
        print(f"published {producer.published} more")


if __name__ == "__main__":
    main()
