#!/bin/sh -e
# Targets. A project of that many, each made by a program without a shell and by a line with one.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
{
    echo "all: $(seq -s ' ' "$1" | sed 's/[0-9]*/t&/g')"
    echo 't%: ; @touch $@.part'
    printf '\t@mv $@.part $@ && test -e $@\n'
} > Makefile
echo ready
read -r _
make -s -r -j "$(nproc)"
test -e "t$1"
echo 'done'
