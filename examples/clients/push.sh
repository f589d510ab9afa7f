#!/bin/sh
# Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
# usage: sh push.sh QUEUE ID DELAY_MS PAYLOAD [OPTION...]      (PAYLOAD -: standard input, any bytes)
# An OPTION is a word such as max_attempts=5, expires=+7200000, on_expire=drop or cost=3.
# Needs redis-cli 7.0 or newer, gzip and, once on the server that REDIS_URL names, `dueq functions load`.
set -eu
queue=$1 id=$2 delay_ms=$3 payload=$4
shift 4
options=$*

redis() { redis-cli -e --no-auth-warning -u "${REDIS_URL:-redis://127.0.0.1:6379/}" "$@"; }
content=$(mktemp)
trap 'rm -f "$content"' EXIT
if [ "$payload" = - ]; then cat; else printf %s "$payload"; fi >"$content"

# redis-cli sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
now=$(redis TIME) # seconds and microseconds, one per line
us=${now##*[!0-9]}
until=$(printf '%d%03d.%03d' "$((${now%%[!0-9]*} + 10))" "$((us / 1000))" "$((us % 1000))")
attempt="$until $(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')"

# fcall PARTITION FUNCTION ARGV..., with the content in place of the tag
fcall() {
  keys=$1 function=$2
  shift 2
  set -- "dueq:{$keys}:nodes" "dueq:{$keys}:meta" "$@" # all ten keys, in this order
  for key in recent dead attrs messages claims leases ready scheduled; do
    set -- "dueq:{$keys}:$key" "$@"
  done
  # redis-cli replaces the tag by its standard input. The tag is a control character, which no id
  # contains.
  case $function in
  dueq_push) redis -X "$tag" FCALL "$function" 10 "$@" <"$content" 2>&1 || true ;;
  *) redis FCALL "$function" 10 "$@" ;;
  esac
}
tag=$(printf '\001')

# CRC-32 of the part of the id between { and }, or of the whole id; gzip ends with it and a length.
rest=${id#*\{}
part=${rest%%\}*}
case $id in *\{*\}*) ;; *) part= ;; esac
case $rest in *\}*) ;; *) part= ;; esac
crc=0 factor=1
for byte in $(printf %s "${part:-$id}" | gzip -c | tail -c 8 | od -An -N4 -tu1); do
  crc=$((crc + byte * factor)) factor=$((factor * 256))
done

partition_of() { # TAGS...
  shift $((crc * $# >> 32))
  printf %s "$1"
}
send() { # FORM: to the partition
  base=$queue/$partition
  reply=$(fcall "${base%/-}" dueq_push "${epoch:+$1$epoch}" "$attempt" "$id" "+$delay_ms" "$tag" "$options")
  result=$(printf '%s\n' "$reply" | tail -n 1)
}

# A queue of one partition has no map. Others answer REMAPPED; the map in meta then has the tags of the partitions.
map='' end=$((${now%%[!0-9]*} + 10))
while :; do
  epoch=${map%%|*} tags=${map#*|}
  old=${tags%|*} old=${old:--} new=${tags#*|} new=${new:--}
  partition=$(partition_of $old) target=$(partition_of $new) result=AWAY
  # While the partitions change, a probe asks the old one: it creates nothing. AWAY: the new one decides.
  # A result behind AWAY is that of the call unless the new one has the message.
  [ "$partition" = "$target" ] || send p
  case $result in
  AWAY)
    partition=$target
    send m
    ;;
  AWAY*)
    remembered=${result#AWAY } partition=$target
    send p
    case $result in AWAY*) result=$remembered ;; esac
    ;;
  esac
  case $result in REMAPPED* | BEHIND* | MOVING) ;; *) break ;; esac
  [ "$(redis TIME | head -n 1)" -lt "$end" ] || break
  # The partition has another map, and the call did nothing; or the message is on its way to another partition.
  newest=$(redis HGET "dueq:{$queue}:meta" map)
  case $newest in
  *\|) sleep 0.05 ;; # the queue is being deleted
  *\|*\|*\|*) result="the queue moves between this server and ${newest##*|}, or has moved there" && break ;;
  "$map")
    case "${result%% *} $new " in
    BEHIND*" $partition "*) fcall "${base%/-}" dueq_remap "" forward "$map" >/dev/null ;;
    *) sleep 0.05 ;;
    esac
    ;;
  *) map=$newest ;;
  esac
done
case $result in
CREATED) echo "created $id" ;;
EXISTS* | FINISHED) echo "$id was pushed before" ;;
*) echo "push.sh: $result" >&2 && exit 1 ;;
esac
