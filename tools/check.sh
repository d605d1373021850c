#!/usr/bin/env bash
# Runs the given make verbs in order, stops at the first that fails, and says
# what each one took, so that a slow step shows before CI runs out of time.
set -euo pipefail
cd "$(dirname "$0")/.."

took=()
for verb in "$@"; do
	echo "== $verb"
	start=$SECONDS
	"${MAKE:-make}" --no-print-directory "$verb" || { echo "check: $verb failed; run it alone with: make $verb" >&2; exit 1; }
	took+=("$verb $((SECONDS - start))s")
done
echo "check: all good in ${SECONDS}s ($(IFS=,; echo "${took[*]}" | sed 's/,/, /g'))"
