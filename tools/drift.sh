#!/usr/bin/env bash
# Fails when a generated file differs from what its generator writes today.
# The files are compared with themselves, not with the last commit, so that
# the check works in a tree with other changes in it.
set -euo pipefail
cd "$(dirname "$0")/.."

# print PATH and hash of every generated file.
print() {
	{ grep -rlE '^// Code generated .* DO NOT EDIT\.$' --include='*.go' . || true; } | sort | xargs -r sha256sum
}

before=$(print)
go generate ./...
after=$(print)
if ! changed=$(diff <(echo "$before") <(echo "$after")); then
	echo "drift: generated files were out of date, and are written anew now; commit them:" >&2
	awk '{print $3}' <<<"$changed" | grep . | sort -u >&2
	exit 1
fi
