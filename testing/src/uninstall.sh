#!/bin/sh
# Removes what `cargo xtask dist` has installed below the prefix that this script is in: the files of the list "installed" beside
# it, then those directories of the list that are empty. Prints each path that it removes.
set -u
LC_ALL=C
export LC_ALL

fail() {
    printf 'uninstall: %s\n' "$*" >&2
    exit 1
}

case $0 in
    */*) own=${0%/*} ;;
    *) own=. ;;
esac
# Not -P: share may be a link to a directory elsewhere, and the prefix is the directory with the link.
own=$(cd -L -- "$own" && pwd -L) || fail "cannot enter $own"
prefix=${own%/share/forkless}
[ "$prefix" != "$own" ] || fail "$own is not share/forkless of a prefix; run the installed script by its path"
list=$own/installed
[ -f "$list" ] || fail "$list is missing, so it is not known what was installed"

# Everything is checked before anything is removed. Directories end with a slash, and the deepest come first here.
directories=
while IFS= read -r path; do
    case /$path/ in
        //* | */../* | */./*) fail "$list names a path outside of $prefix, or an empty one: '$path'; nothing was removed" ;;
    esac
    case $path in
        */) directories="$path
$directories" ;;
    esac
done <"$list"

failed=false
while IFS= read -r path; do
    file=$prefix/$path
    case $path in
        # The list and this script are the last, so that a run that fails can be repeated.
        */ | share/forkless/installed | share/forkless/uninstall) continue ;;
    esac
    [ -e "$file" ] || [ -L "$file" ] || continue
    if rm -f -- "$file"; then
        printf 'removed %s\n' "$file"
    else
        failed=true
    fi
done <"$list"
! "$failed" || fail "some files could not be removed; run $own/uninstall again as a user that may remove them"

for file in "$list" "$own/uninstall"; do
    rm -f -- "$file" || fail "cannot remove $file"
    printf 'removed %s\n' "$file"
done
printf '%s' "$directories" | while IFS= read -r path; do
    # It fails if there are files of others in the directory.
    if rmdir -- "$prefix/${path%/}" 2>/dev/null; then
        printf 'removed %s\n' "$prefix/$path"
    fi
done
