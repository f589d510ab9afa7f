#!/bin/sh
# Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
# usage: sh push.sh QUEUE ID DELAY_MS PAYLOAD      (PAYLOAD -: standard input, any bytes)
# Needs redis-cli 7.0 or newer and, once on the server that REDIS_URL names, `dueq functions load`.
set -eu
queue=$1 id=$2 delay_ms=$3 payload=$4

redis() { redis-cli -e --no-auth-warning -u "${REDIS_URL:-redis://127.0.0.1:6379/}" "$@"; }
payload() { if [ "$payload" = - ]; then cat; else printf %s "$payload"; fi; }

# All ten keys, in this order.
set --
for key in scheduled ready leases claims messages attrs dead recent nodes meta; do
  set -- "$@" "dueq:{$queue}:$key"
done

# redis-cli sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
now=$(redis TIME) # seconds and microseconds, one per line
us=${now##*[!0-9]}
until=$(printf '%d%03d.%03d' "$((${now%%[!0-9]*} + 10))" "$((us / 1000))" "$((us % 1000))")
attempt="$until $(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')"

# redis-cli replaces the tag by its standard input. The tag is a control character, which no id
# contains.
tag=$(printf '\001')
reply=$(payload | redis -X "$tag" FCALL dueq_push 10 "$@" "" "$attempt" "$id" "+$delay_ms" "$tag" "")
result=$(printf '%s\n' "$reply" | tail -n 1)
case $result in
CREATED) echo "created $id" ;;
EXISTS* | FINISHED) echo "$id was pushed before" ;;
*) echo "push.sh: $result" >&2 && exit 1 ;;
esac
