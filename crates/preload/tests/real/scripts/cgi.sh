#!/bin/sh
case $QUERY_STRING in
    killed) kill -9 $$ ;;
    fails) exit 3 ;;
    status) printf 'Status: 418 Teapot\r\n\r\n' ;;
    *) printf 'Content-Type: text/plain\r\n\r\n'; echo $(($(echo 1 | cat) + 1)); pwd | sed 's,.*/,,' ;;
esac
