#!/usr/bin/env bash
# Runs every fuzz target of the module alone, for the time given (default 10s),
# as many side by side as there are cores. Each package is built once and its
# targets run from that: the go command would link it anew for each of them.
set -euo pipefail
cd "$(dirname "$0")/.."

# attempt: one run with one worker; its output stays in the log. Inputs are not made
# smaller: a run of seconds would do nothing else (FuzzReceipt tried 5 inputs in 6 s with it
# and 3,000 without), and it is while one is made smaller that the end of the time shows
# as a failure. The file of a failing input may be larger for it.
attempt() {
	(cd "$package" && "$binary" -test.run '^$' -test.fuzz "^$target\$" -test.parallel 1 -test.fuzztime "$time" -test.fuzzminimizetime 0s -test.fuzzcachedir "$corpus") >"$log" 2>&1
}

# target TIME PACKAGE TARGET BINARY CORPUS: what the script runs for each of them.
if [ "${1:-}" = target ]; then
	time=$2 package=$3 target=$4 binary=$5 corpus=$6 log=$5.$4.log
	if ! attempt; then
		# A run whose time ends while an input is in work may report that as
		# its failure. No input was written then, and a second run decides.
		if grep -q 'Failing input written' "$log" || ! grep -q 'context deadline exceeded' "$log" || ! attempt; then
			cat "$log"
			echo "fuzz: $package $target failed; the input is in $package/testdata/fuzz/$target" >&2
			exit 255 # xargs starts no further one
		fi
	fi
	echo "fuzz: $package $target: $(grep -E '^fuzz: elapsed' "$log" | tail -n 1 | sed 's/^fuzz: //')"
	exit
fi

time=${1:-10s}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
corpus=$(go env GOCACHE)/fuzz

while IFS= read -r package; do
	import=$(go list "$package")
	binary=$work/$(tr / _ <<<"$import").test
	go test -c -fuzz . -o "$binary" "$package"
	for target in $(cat "$package"/*_test.go | sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p'); do
		echo "$time $package $target $binary $corpus/$import"
	done
done < <(find . -name '*_test.go' -not -path '*/node_modules/*' -print0 | sort -z | xargs -0 grep -lE '^func Fuzz[A-Za-z0-9_]*\(' | xargs -n 1 dirname | sort -u) >"$work/targets"

count=$(wc -l <"$work/targets")
[ "$count" -gt 0 ] || { echo "fuzz: found no target" >&2; exit 1; }
xargs -P "$(nproc)" -L 1 "$PWD/tools/fuzz.sh" target <"$work/targets"
echo "fuzz: $count targets, $time each"
