#!/usr/bin/env bash
# Runs every fuzz target of the module alone, for the time given (default 10s):
# the go command takes one target of one package at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# attempt PACKAGE TARGET: one run; its output stays in $log.
attempt() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" >"$log" 2>&1
}

count=0
while IFS=: read -r file line; do
	package=./$(dirname "${file#./}")
	target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/' <<<"$line")
	if ! attempt "$package" "$target"; then
		# A run whose time ends while an input is in work may report that as
		# its failure. No input was written then, and a second run decides.
		if grep -q 'Failing input written' "$log" || ! grep -q 'context deadline exceeded' "$log" || ! attempt "$package" "$target"; then
			cat "$log"
			echo "fuzz: $package $target failed; the input is in $package/testdata/fuzz/$target" >&2
			exit 1
		fi
	fi
	echo "fuzz: $package $target: $(grep -E '^fuzz: elapsed' "$log" | tail -n 1 | sed 's/^fuzz: //')"
	count=$((count + 1))
done < <(find . -name '*_test.go' -not -path './examples/*/node_modules/*' -print0 | sort -z | xargs -0 grep -HE '^func Fuzz[A-Za-z0-9_]*\(')

[ "$count" -gt 0 ] || { echo "fuzz: found no target" >&2; exit 1; }
echo "fuzz: $count targets, $time each"
