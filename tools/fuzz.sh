#!/usr/bin/env bash
# Runs every fuzz target of the module alone, for the time given (default 10s).
# Each package is built once and its targets run from that: the go command would
# link it anew for each of them.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
corpus=$(go env GOCACHE)/fuzz
count=0

# attempt PACKAGE TARGET: one run; its output stays in $work/log.
attempt() {
	(cd "$1" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" -test.fuzzcachedir "$corpus/$import") >"$work/log" 2>&1
}

while IFS= read -r package; do
	import=$(go list "$package")
	go test -c -fuzz . -o "$work/fuzz.test" "$package"
	for target in $(cat "$package"/*_test.go | sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p'); do
		if ! attempt "$package" "$target"; then
			# A run whose time ends while an input is in work may report that as
			# its failure. No input was written then, and a second run decides.
			if grep -q 'Failing input written' "$work/log" || ! grep -q 'context deadline exceeded' "$work/log" || ! attempt "$package" "$target"; then
				cat "$work/log"
				echo "fuzz: $package $target failed; the input is in $package/testdata/fuzz/$target" >&2
				exit 1
			fi
		fi
		echo "fuzz: $package $target: $(grep -E '^fuzz: elapsed' "$work/log" | tail -n 1 | sed 's/^fuzz: //')"
		count=$((count + 1))
	done
done < <(find . -name '*_test.go' -not -path '*/node_modules/*' -print0 | sort -z | xargs -0 grep -lE '^func Fuzz[A-Za-z0-9_]*\(' | xargs -n 1 dirname | sort -u)

[ "$count" -gt 0 ] || { echo "fuzz: found no target" >&2; exit 1; }
echo "fuzz: $count targets, $time each"
