#!/bin/sh -e
# Tables that are open, launches, line. A cluster of its own, stopped at the end; PostgreSQL refuses to be root.
if [ "$(id -u)" = 0 ]; then
    exec setpriv --reuid="$(id -u postgres)" --regid="$(id -g postgres)" --clear-groups sh -e "$0" "$@"
fi
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
place=$(mktemp -d)
trap 'kill -QUIT $server 2>/dev/null; wait; rm -rf "$place"' EXIT
export LC_ALL=C PGHOST="$place" PGUSER=owner PGDATABASE=postgres
"$programs/initdb" -D "$place/data" -A trust -N -U owner > "$place/log" 2>&1
"$programs/postgres" -D "$place/data" -k "$place" -c listen_addresses= -c fsync=off -c max_locks_per_transaction=256 \
    -c max_files_per_process=4000 > "$place/log" 2>&1 < /dev/null &
server=$!
until psql -X -q -c 'select 1' > "$place/out" 2>&1; do sleep 0.1; done
psql -X -q -c 'create table t (line text)' \
    -c "do \$\$ begin for n in 1..$1 loop execute format('create table t%s (n int); insert into t%s values (1)', n, n); end loop; end \$\$"
# One session that has all of them open.
{
    echo "do \$\$ declare c int; begin for n in 1..$1 loop execute format('select count(*) from t%s', n) into c; end loop; end \$\$;"
    printf '%s\n' '\echo ready'
    read -r _
    echo "do \$\$ begin for n in 1..$2 loop execute 'copy t from program ''$3'''; end loop; end \$\$;"
    printf '%s\n' '\echo done'
} | psql -X -q -t -A -v ON_ERROR_STOP=1
