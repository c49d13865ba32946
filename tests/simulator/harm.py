"""Damage between two runs: bits and pages change, derived files become invalid."""

from __future__ import annotations

from tests.simulator import files
from tests.simulator.model import Ghost, Model
from tests.simulator.native import Disk
from tests.simulator.sometimes import Reached
from tests.simulator.streams import Stream

DERIVED = {
    "index": "an index was damaged between two lives",
    "checkpoint": "a checkpoint was damaged between two lives",
    "epochs": "a file of epochs was damaged between two lives",
    "producers": "a snapshot of producers was damaged between two lives",
}
PAGE = 4096


def harm(disk: Disk, model: Model, stream: Stream, reached: Reached) -> str:
    """Damage one file of a log, and record in the model which reads may fail. Returns a description."""
    kind = stream.choice(["segment", "segment", "preamble", "index", "future", "checkpoint", "epochs", "producers"])
    match kind:
        case "segment":
            return _harm_segment(disk, model, stream, reached)
        case "preamble":
            return _harm_preamble(disk, model, stream)
        case "future":
            return _harm_by_future(disk, model, stream, reached)
        case _:
            return _harm_derived(disk, model, kind, stream, reached)


def remember(disk: Disk, model: Model) -> None:
    """Record the batches in the files that were never acked."""
    for _, path in files.segments(disk.paths(), model.path):
        content = disk.read(path)
        model.earlier.append(content)
        for batch in files.batches(content):
            if batch.base_offset >= model.acked:
                model.ghosts.append(Ghost(batch.base_offset, batch.chain, content[batch.position : batch.end]))
    del model.ghosts[:-200], model.earlier[:-10]


def raise_ghost(disk: Disk, model: Model, stream: Stream, reached: Reached) -> str:
    """Write a batch of an earlier run after the last one, at its own offset (F10)."""
    found = files.segments(disk.paths(), model.path)
    if not found or model.damaged or model.weak or model.without_checkpoint:
        return ""
    path = found[-1][1]
    content = disk.read(path)
    whole = files.batches(content)
    if not whole or any(content[whole[-1].end :]):
        return ""
    last = whole[-1]
    ghosts = [ghost for ghost in model.ghosts if ghost.base == last.next_offset and ghost.chain != last.link]
    if not ghosts:
        return ""
    disk.damage(path, last.end, stream.choice(ghosts).stored)
    model.haunted = True
    reached.sometimes("a cut batch was laid behind the end and refused")
    return f"a batch of an earlier life behind the end of {path}"


def _harm_preamble(disk: Disk, model: Model, stream: Stream) -> str:
    found = files.segments(disk.paths(), model.path)
    if not found or model.without_checkpoint:
        return ""
    path = stream.choice(found)[1]
    if not files.batches(disk.read(path)):
        return ""
    _flip(disk, path, stream.randrange(files.PREAMBLE_BYTES), stream)
    return f"a bit of the preamble of {path}"


def _flip(disk: Disk, path: str, position: int, stream: Stream) -> None:
    before = disk.read(path)[position : position + 1]
    if before:
        disk.damage(path, position, bytes([before[0] ^ (1 << stream.randrange(8))]))


def _harm_by_future(disk: Disk, model: Model, stream: Stream, reached: Reached) -> str:
    """Write a checkpoint whose high watermark is beyond the log (F21)."""
    path = f"{model.path}/checkpoint"
    if path not in disk.paths():
        return ""
    content = disk.read(path)
    slot = files.future_checkpoint(content, stream.randint(1, 10_000))
    if slot is None:
        return ""
    newest = max(files.SLOTS, key=lambda at: int.from_bytes(content[at + 8 : at + 16], "little"))
    disk.damage(path, newest, slot)
    reached.sometimes("a high watermark from the future was not believed")
    return f"{path}: a high watermark from the future"


def _harm_derived(disk: Disk, model: Model, kind: str, stream: Stream, reached: Reached) -> str:
    """Flip, blank, cut or overwrite a file that can be rebuilt."""
    suffix = ".idx" if kind == "index" else f"/{kind}"
    known = [path for path in disk.paths() if path.startswith(f"{model.path}/") and path.endswith(suffix)]
    if not known or (kind == "checkpoint" and model.damaged):
        return ""
    model.without_checkpoint |= kind == "checkpoint"
    reached.sometimes(DERIVED[kind])
    path = stream.choice(known)
    content = disk.read(path)
    match stream.choice(["flip", "zeros", "cut", "noise"]):
        case "flip" if content:
            _flip(disk, path, stream.randrange(len(content)), stream)
        case "zeros":
            disk.damage(path, 0, bytes(len(content)))
        case "noise":
            disk.damage(path, 0, stream.randbytes(len(content)))
        case _:
            disk.truncate(path, stream.randrange(len(content) + 1))
    return path


def lay_stray(disk: Disk, model: Model, stream: Stream, reached: Reached) -> str:
    """Overwrite a page of batches below the durable point with another page of the log, of this or an earlier run."""
    known = files.checkpoint(disk.read(f"{model.path}/checkpoint", durable=True)) if model.created else None
    if known is None or model.without_checkpoint or model.weak or model.haunted:
        return ""
    contents = {path: disk.read(path) for _, path in files.segments(disk.paths(), model.path)}
    targets: list[tuple[str, int, tuple[int, int]]] = []
    for path, content in contents.items():
        whole = files.known_batches(content)
        for page in range(PAGE, len(content), PAGE):
            hit = [batch for batch in whole if batch.position < page + PAGE and batch.end > page]
            if hit and _is_known(content, whole, page) and all(batch.next_offset <= known[2] for batch in hit):
                targets.append((path, page, (hit[0].base_offset, hit[-1].next_offset)))
    donors = [content for content in [*contents.values(), *model.earlier] if len(content) > PAGE]
    if not targets or not donors:
        return ""
    path, page, span = stream.choice(targets)
    donor = stream.choice(donors)
    start = stream.randrange(0, len(donor), stream.choice([PAGE, 512]))
    bytes_ = donor[start : start + PAGE][: len(contents[path]) - page]
    if start == page or bytes_ == contents[path][page : page + len(bytes_)]:
        return ""  # at its own position an older page may be linked to its predecessor
    disk.damage(path, page, bytes_)
    model.strays = True
    model.harm(*span)
    model.fresh_damage = True
    reached.sometimes("a valid page was overwritten by another page")
    return f"{path}: offsets {span}"


def _is_known(content: bytes, found: list[files.BatchPlace], page: int) -> bool:
    """Whether all batches of a page are known: earlier damage may hide the following ones."""
    behind = content[found[-1].end : page + PAGE] if found else content
    return not any(behind)


def _harm_segment(disk: Disk, model: Model, stream: Stream, reached: Reached) -> str:
    """Flip a bit of a batch, or lose a page of batches, below the durable point that the disk knows of."""
    known = files.checkpoint(disk.read(f"{model.path}/checkpoint", durable=True)) if model.created else None
    if known is None or model.without_checkpoint or model.weak or model.haunted:
        return ""  # no second damage that hides the first
    durable = known[2]
    found: list[tuple[str, files.BatchPlace]] = []
    for _, path in files.segments(disk.paths(), model.path):
        whole = files.known_batches(disk.read(path))
        found += [(path, batch) for batch in whole if batch.next_offset <= durable]
    if not found:
        return ""
    path, batch = stream.choice(found)
    page = batch.position // PAGE * PAGE
    reached_by_page = [
        other for other in files.known_batches(disk.read(path)) if other.position < page + PAGE and other.end > page
    ]
    content = disk.read(path)
    whole = page > 0 and _is_known(content, files.known_batches(content), page)
    zeros = page > 0 and all(other.next_offset <= durable for other in reached_by_page) and stream.maybe(0.3)
    zeros &= whole
    if zeros:
        disk.damage(path, page, bytes(PAGE))
        span = reached_by_page[0].base_offset, reached_by_page[-1].next_offset
    else:
        _flip(disk, path, stream.randrange(batch.position, batch.end), stream)
        span = batch.base_offset, batch.next_offset
    model.harm(*span)
    model.fresh_damage = True
    reached.sometimes("a segment was damaged between two lives")
    return f"{path}: offsets {span}"
