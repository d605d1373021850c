#!/usr/bin/env bash
# What neither vet nor staticcheck looks at: formatting, scripts, lock files.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0

say() { echo "lint: $*" >&2; bad=1; }

unformatted=$(find . -name '*.go' -not -path '*/node_modules/*' -not -path '*/testdata/*' -print0 | xargs -0 gofmt -l)
[ -z "$unformatted" ] || say "run gofmt -w on:" $unformatted

while IFS= read -r -d '' script; do
	bash -n "$script" || say "$script does not parse"
	[ -x "$script" ] || say "$script is not executable: chmod +x $script"
done < <(find .ci tools examples -type f \( -name '*.sh' -o -path '.ci/run' \) -not -path '*/node_modules/*' -print0)

# A lock pins what is installed by its hash. An address in it would pin the
# registry as well, which is each user's own choice.
while IFS= read -r -d '' lock; do
	! grep -n '"resolved"' "$lock" >&2 || say "$lock names download addresses: npm install --omit-lockfile-registry-resolved"
done < <(find . -name package-lock.json -not -path '*/node_modules/*' -print0)

# race.sh forgives the death of the detector, and must forgive nothing else.
death='ThreadSanitizer: CHECK failed: tsan_rtl.cpp'
fault=$'SIGSEGV: segmentation violation\nPC=0x1 m=6\n\ngoroutine 0 gp=0x2 [idle]:'
judged() { tools/race.sh --judge <(printf '%s\n' "$@"); }
[ "$(judged "$death" $'FAIL\ta\t1s' $'ok  \tb\t1s' FAIL)" = a ] || say "tools/race.sh does not see that only the detector died"
[ "$(judged "$fault" $'FAIL\ta\t1s' FAIL)" = a ] || say "tools/race.sh does not see that the detector read where nothing is"
! judged "${fault/goroutine 0/goroutine 7}" $'FAIL\ta\t1s' >/dev/null || say "tools/race.sh forgives a fault of a test"
for wrong in '--- FAIL: TestA' 'WARNING: DATA RACE' 'panic: x' $'FAIL\tb\t1s'; do
	! judged "$wrong" "$death" $'FAIL\ta\t1s' >/dev/null || say "tools/race.sh forgives: $wrong"
done

exit "$bad"
