"""The module under test: `target/sim`, or the directory named by `BASCULE_SIM` (the build with planted bugs)."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

REPOSITORY = Path(__file__).resolve().parents[2]
DIRECTORY = Path(os.environ.get("BASCULE_SIM", REPOSITORY / "target" / "sim"))

if TYPE_CHECKING:
    from tests.simulator.bascule_sim import Disk, Log, Record, Report, SimError, Store, plant, read_bomb
else:
    if not (DIRECTORY / "bascule_sim").is_dir():
        raise ImportError(f"{DIRECTORY} has no module bascule_sim: run `make sim` first")
    sys.path.insert(0, str(DIRECTORY))
    module = importlib.import_module("bascule_sim")
    sys.path.remove(str(DIRECTORY))
    Disk, Log, SimError, Store = module.Disk, module.Log, module.SimError, module.Store
    plant, read_bomb = module.plant, module.read_bomb
    Record = Report = tuple

__all__ = ["DIRECTORY", "Disk", "Log", "Record", "Report", "SimError", "Store", "plant", "read_bomb"]
