#!/usr/bin/env bash
# Checks lease.pml exhaustively, once as the contract has it within each set of bounds, and once with
# each of its rules broken. Fails unless the former have no error and the latter have one.
#
#	run.sh              all cases, as a table
#	run.sh no-token     one case; its shortest counterexample in words, if it has one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# name, errors expected, definitions. A broken rule is checked against one promise.
cases() {
	cat <<-'END'
		three-tenures       0 -DTENURES=3 -DSTEPS=2 -DTTL=1 -DLATES=0
		late-calls          0 -DTENURES=2 -DSTEPS=2 -DTTL=2 -DEXITS=1
		fast-clocks         0 -DTENURES=2 -DSTEPS=1 -DTTL=2 -DEXITS=1 -DLATES=0 -DGAINS
		skewed-clocks       0 -DTENURES=2 -DSTEPS=1 -DTTL=2 -DEXITS=1 -DLATES=0 -DGAINS -DSKEW=1 -DMARGIN=1
		no-token            1 -DTENURES=2 -DSTEPS=2 -DTTL=1 -DLATES=0 -DCHECK=STATE -DANYBODY_CHECKPOINTS
		holder-id-only      1 -DTENURES=2 -DSTEPS=2 -DTTL=1 -DCHECK=STATE -DHOLDER_ID_CHECKPOINTS
		window-from-answer  1 -DTENURES=2 -DTTL=2 -DLATES=0 -DCHECK=WINDOW -DWINDOW_FROM_ANSWER
		window-from-expiry  1 -DTENURES=2 -DTTL=2 -DLATES=0 -DCHECK=WINDOW -DWINDOW_FROM_EXPIRES_AT
		slow-clock          1 -DTENURES=2 -DTTL=2 -DLATES=0 -DCHECK=WINDOW -DGAINS -DSKEW=1
		revives-released    1 -DTENURES=2 -DTTL=1 -DCHECK=EXIT -DCHECKPOINT_REVIVES_RELEASED
		token-from-row      1 -DTENURES=2 -DTTL=1 -DLATES=0 -DCHECK=TOKENS -DTOKEN_FROM_ROW
		token-drawn-early   1 -DTENURES=3 -DTTL=1 -DLATES=0 -DCHECK=TOKENS -DTOKEN_DRAWN_EARLY
		acquire-looks-first 1 -DTENURES=2 -DTTL=1 -DLATES=0 -DCHECK=WINDOW -DACQUIRE_LOOKS_FIRST
		checkpoint-overtakes 1 -DTENURES=2 -DSTEPS=2 -DTTL=1 -DCHECK=STATE -DCHECKPOINTS_OVERTAKE
		stays-after-release 1 -DTENURES=2 -DTTL=2 -DCHECK=WINDOW -DSTAYS_AFTER_RELEASE
	END
}

for tool in spin gcc; do
	command -v "$tool" >/dev/null || {
		echo "run.sh: $tool is not installed; on Debian and Ubuntu: apt-get install spin gcc" >&2
		exit 1
	}
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=$PWD/lease.pml

# Builds and runs the checker of one case in a folder of its own, and writes its line of the table.
# The states are all kept, not hashed: nothing is left out. Broken rules are searched breadth first, so
# that the counterexample is a shortest one.
check() {
	local name=$1 want=$2 how=-DNOREDUCE out field
	shift 2
	((want == 0)) || how=-DBFS
	mkdir "$work/$name"
	cd "$work/$name"
	spin -a "$@" "$model" >spin.out || { cat spin.out; return 1; }
	gcc -O2 -w -DSAFETY "$how" -DMEMLIM=1900 -o pan pan.c
	./pan -m1000000 -w22 >out 2>&1 || true
	number() { awk -v what="$1" 'index($0, what) { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9.]+$/) { print $i; exit } }' out; }
	field=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out)
	printf '%-21s %8s %11s %12s %6s %7s\n' "$name" "${field:-failed}" "$(number 'states, stored')" \
		"$(number 'transitions (=')" "$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out)" "$(number 'elapsed time')" >line
	# A search that was cut short has shown nothing.
	if grep -qE 'max search depth too small|Search not completed|out of memory|reached -DMEMLIM|Interrupted' out && ((want == 0)); then
		echo "$name: the search was cut short" >bad
	elif [[ $want == 0 && $field != 0 ]]; then
		echo "$name: a promise is broken" >bad
	elif ((want == 1)) && ! grep -q 'assertion violated' out; then
		echo "$name: the checker does not find what is broken" >bad
	fi
}

if (($#)); then
	while read -r name want defs; do
		[[ $name == "$1" ]] || continue
		# shellcheck disable=SC2086 # definitions are words
		check "$name" "$want" $defs
		cat line
		trail=$(ls ./*.trail 2>/dev/null || true)
		[[ -z $trail ]] || spin -k "$trail" -T $defs "$model" | sed '/^spin:/,$d' | nl
		[[ ! -e bad ]] || { cat bad >&2; exit 1; }
		exit
	done < <(cases)
	echo "run.sh: there is no case $1" >&2
	exit 2
fi

# Two at a time: the long ones, and the broken ones.
for group in 0 1; do
	while read -r name want defs; do
		# shellcheck disable=SC2086 # definitions are words
		((want != group)) || (check "$name" "$want" $defs)
	done < <(cases) &
done
wait

printf '%-21s %8s %11s %12s %6s %7s\n' case errors states transitions depth seconds
status=0
while read -r name _; do
	cat "$work/$name/line" || status=1
	[[ ! -e $work/$name/bad ]] || { cat "$work/$name/bad" >&2; status=1; }
done < <(cases)
exit "$status"
