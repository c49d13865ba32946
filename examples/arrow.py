"""Read a stream into an Arrow table with pyarrow alone: every stream is a table over Arrow Flight.

Run `python examples/publish.py` first, then `python examples/arrow.py [ADDRESS]`. This needs pyarrow and nothing of
Bascule. `polars.from_arrow(table)` or a DuckDB query over `table` uses the same columns.
"""

import json
import sys

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9292"
STREAM = "orders"


def main() -> None:
    """Fetch all partitions, then count the records of each key."""
    request = json.dumps({"stream": STREAM, "columns": ["partition", "offset", "timestamp", "key", "value"]})
    with flight.connect(f"grpc://{ADDRESS}") as client:
        # One endpoint for each partition. Its ticket fixes the range of offsets: it returns the same records each time.
        info = client.get_flight_info(flight.FlightDescriptor.for_command(request.encode()))
        parts = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    table = pa.concat_tables(parts)
    print(f"{table.num_rows} rows, columns {', '.join(table.column_names)}")

    keys = pc.cast(table["key"], pa.string())
    counts = pa.table({"key": keys}).group_by("key").aggregate([("key", "count")]).sort_by("key")
    for row in counts.to_pylist():
        print(f"{row['key']}: {row['key_count']}")


if __name__ == "__main__":
    main()
