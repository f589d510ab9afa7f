#!/bin/sh
# Pushes the messages PREFIX-1 to PREFIX-COUNT, due within SPREAD_MS from BEGIN_MS on.
# usage: produce.sh LOG PREFIX COUNT BEGIN_MS SPREAD_MS
# A started line of the log has the time at which each message is due. A restarted script goes on behind the last
# batch that was answered; the window makes the repetition of a batch harmless.
log=$1 prefix=$2 count=$3 begin_ms=$4 spread_ms=$5
batch=20
done=$(sed -n "s/^pushed $prefix //p" "$log" | tail -n 1)
n=${done:-0}
while [ "$n" -lt "$count" ]; do
  last=$((n + batch < count ? n + batch : count)) k=$n messages=
  while [ "$k" -lt "$last" ]; do
    k=$((k + 1))
    at=$((begin_ms + k * 7919 % (spread_ms + 1)))
    echo "at $prefix-$k $at" >>"$log"
    messages="$messages${messages:+,}{\"id\":\"$prefix-$k\",\"payload\":\"$k\",\"at\":\"$at\",\"window\":\"1h\"}"
  done
  body="{\"messages\":[$messages]}"
  status=$(printf 'header = "Authorization: Bearer %s"\n' "$DUEQ_TOKEN" |
    curl -K - -sS --max-time 20 -o /dev/null -w '%{http_code}' -H 'Content-Type: application/json' -d "$body" \
      "$DUEQ_SERVE/v1/queues/jobs/messages") || status=000
  if [ "$status" = 200 ]; then
    echo "pushed $prefix $last" >>"$log"
    n=$last
  else
    sleep 1
  fi
done
