#!/usr/bin/env bash
# Every Go test under the race detector. The detector itself can die in a run with
# very many short goroutines (seen in package mesh, Go 1.26.8): a check of its runtime
# fails ("ThreadSanitizer: CHECK failed"), or its C code reads where nothing is, which
# is a SIGSEGV in goroutine 0, where no Go code of ours runs. That says nothing about
# the tests, so a package in which the detector died, and nothing else went wrong, is
# run once more. It died in five runs of mesh on one day, and in none of four without
# the signals by which the runtime interrupts goroutines, which change nothing of what
# it finds: so it runs without them.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v "${CC:-gcc}" >/dev/null || { echo "race: no C compiler, which the race detector needs: apt-get install gcc libc6-dev" >&2; exit 1; }
export CGO_ENABLED=1
export GODEBUG=asyncpreemptoff=1${GODEBUG:+,$GODEBUG}

# died FILE: the packages in which only the detector failed; fails if there is
# any other failure.
died() {
	awk '
		/^(ok  |\?   )\t/ { block = ""; next }
		/^FAIL\t/ {
			if (block ~ /ThreadSanitizer: CHECK failed|\nSIGSEGV: segmentation violation\nPC=[^\n]*\n\ngoroutine 0 / && block !~ /--- FAIL|WARNING: DATA RACE|panic:/) { print $2 } else { bad = 1 }
			block = ""; next
		}
		{ block = block "\n" $0 }
		END { exit bad }
	' "$1"
}

# The word that tells whether this file judges rightly: race.sh --judge FILE.
if [ "${1:-}" = --judge ]; then
	died "$2"
	exit
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if go test -race -timeout 15m "${@:-./...}" 2>&1 | tee "$log"; then
	exit 0
fi
if ! again=$(died "$log") || [ -z "$again" ]; then
	exit 1
fi
echo "race: the detector itself died in these packages, which says nothing about their tests; once more:" $again >&2
# shellcheck disable=SC2086 # a list of packages
go test -race -count=1 -timeout 15m $again
