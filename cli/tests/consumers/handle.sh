#!/bin/sh
# Logs one delivery: handle.sh LOG
# Each write is one line at the end of the file: time in ms, word, id, end of the lease, crashes.
read -r delivery
field() { printf %s "$delivery" | sed -En "s/^.*\"$1\":\"?([^,\"]*).*/\1/p"; }
id=$(field id)
echo "$(date +%s%3N) start $id $(field leased_until_ms) $(field crashes)" >>"$1"
case $id in slow-*) sleep "$SLOW_S" ;; esac
echo "$(date +%s%3N) end $id" >>"$1"
