#!/bin/sh -e
# Requests, one of: cgi.sh, cgi.lua; by way of: cgi (lighttpd starts it) or fcgi (fcgiwrap does).
place=$(mktemp -d)
trap 'kill $servers 2>/dev/null; wait; rm -rf "$place"' EXIT
mkdir -p "$place/www/$3"
printf '#!/bin/sh\nprintf "Content-Type: text/plain\\r\\n\\r\\n"; echo x\n' > "$place/www/$3/cgi.sh"
printf '#!/usr/bin/lua5.4\nprint("Content-Type: text/plain\\r\\n\\r")\nfor n = 1, 5 do assert(os.execute("/bin/true")) end print("x")\n' \
    > "$place/www/$3/cgi.lua"
chmod +x "$place/www/$3"/*
cat > "$place/conf" <<END
server.document-root = "$place/www"
server.bind = "$place/http"
server.modules = ( "mod_setenv", "mod_cgi", "mod_fastcgi" )
setenv.add-environment = ( "PATH" => "/usr/bin:/bin", "FORKLESS_INHERIT" => "$FORKLESS_INHERIT" )
\$HTTP["url"] =~ "^/cgi/" { cgi.assign = ( "" => "" ) }
fastcgi.server = ( "/fcgi/" => (( "socket" => "$place/fcgi", "check-local" => "disable" )) )
END
lighttpd -D -f "$place/conf" > "$place/log" 2>&1 < /dev/null &
servers=$!
# One process, which kill(1) ends: several would be children of a parent that does not end them.
fcgiwrap -c 1 -s "unix:$place/fcgi" > "$place/log" 2>&1 < /dev/null &
servers="$servers $!"
ask() { curl -s -f --retry 50 --retry-all-errors --retry-delay 1 --unix-socket "$place/http" "http://here/$2/$1?[1-$3]"; }
test "$(ask "$2" "$3" 1)" = x
echo ready
read -r _
test "$(ask "$2" "$3" "$1" | grep -c x)" = "$1"
echo 'done'
