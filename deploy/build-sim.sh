#!/usr/bin/env bash
# build-sim.sh DIRECTORY [cargo arguments]: builds crates/sim and puts the module bascule_sim into DIRECTORY.
set -eu -o pipefail
cd "$(dirname "$0")/.."
directory=$1
shift
mkdir -p "$directory"
rm -f "$directory"/*.whl
.venv/bin/maturin build --quiet --locked --manifest-path crates/sim/Cargo.toml --profile "${PROFILE:-fast}" \
  --interpreter .venv/bin/python --out "$directory" "$@"
.venv/bin/python -m zipfile -e "$directory"/bascule_sim-*.whl "$directory"
