#!/usr/bin/env bash
# Every Go test under the race detector, which needs some care:
#   - It can die of itself where very many short goroutines run (package mesh, Go
#     1.26): a check of its runtime fails ("ThreadSanitizer: CHECK failed"), or its C
#     code reads where nothing is, a SIGSEGV in goroutine 0. It was seen to do so
#     only with the signals by which the runtime interrupts goroutines, and finds the
#     same without them: they are off (asyncpreemptoff). A death of its own says
#     nothing about the tests: a package in which it died, and nothing else went
#     wrong, is run again, up to three times.
#   - It lets each program sleep for a second at its end, in case goroutines race on.
#     Ours end before their test does: no sleep (atexit_sleep_ms).
#   - A room whose code and tests start no goroutine has nothing of its own that could
#     race, and the simulator would take longest of all: those of the rooms below that
#     are like that are left out. What others do with them at once is watched there.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v "${CC:-gcc}" >/dev/null || { echo "race: no C compiler, which the race detector needs: apt-get install gcc libc6-dev" >&2; exit 1; }
export CGO_ENABLED=1
export GODEBUG=asyncpreemptoff=1${GODEBUG:+,$GODEBUG}
export GORACE="atexit_sleep_ms=0${GORACE:+ $GORACE}"

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

# Rooms without I/O and clocks of their own: cmd/chordwheel/layout_test.go.
pure=(chain chain/{estimate,order,delta,purse,throttle,nesting,merkle,receipt} did mesh/{wire,member,chord} daemon/selection
	orchestrator/{catalog,escalate,fleet,learn,quota,resolve,simulate})
starts='\<go func\>|\<go [a-zA-Z.]+\(|\.Go\(|\.Parallel\(|RunParallel|AfterFunc|httptest|synctest'

if [ $# = 0 ]; then
	still=('^$') # a list of patterns must not be empty
	for room in "${pure[@]}"; do
		grep -qE "$starts" "$room"/*.go || still+=("/chordwheel/$room$")
	done
	mapfile -t packages < <(go list ./... | grep -v -f <(printf '%s\n' "${still[@]}"))
	set -- "${packages[@]}"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
count=()
for _ in 1 2 3 4; do
	if go test -race "${count[@]}" -timeout 15m "$@" 2>&1 | tee "$log"; then
		exit 0
	fi
	if ! again=$(died "$log") || [ -z "$again" ]; then
		exit 1
	fi
	echo "race: the detector itself died in these packages, which says nothing about their tests; once more:" $again >&2
	# shellcheck disable=SC2086 # a list of packages
	set -- $again
	count=(-count=1)
done
exit 1
