#!/bin/sh
# Handles the messages of a queue over HTTP, one after the other. Start as many as you like.
# usage: DUEQ_SERVE=URL [DUEQ_TOKEN=TOKEN] sh consume.sh QUEUE COMMAND [ARGUMENT...]
# COMMAND reads one delivery as a line of JSON from its standard input; `jq -r .payload` prints the payload.
# If it exits with 0, the message is acked, and else retried after RETRY_DELAY. Meanwhile the lease is extended.
# Prints the id of each message and what became of it. On SIGTERM it finishes its message and ends.
# Needs curl, and nothing else that a POSIX system lacks.
set -u
queue=$1
shift
lease_s=${LEASE_S:-30} wait_ms=${WAIT_MS:-20000} retry_delay=${RETRY_DELAY:-30s}
newline='
'

# post WHAT BODY SECONDS: prints the answer, and its status on a last line. Fails without a whole answer.
# curl reads the token from its standard input: other users of the machine can see its command line.
post() {
  printf 'header = "Authorization: Bearer %s"\n' "${DUEQ_TOKEN-}" | sed '/Bearer "/d' |
    curl -K - -sS --connect-timeout 5 --max-time "$3" -w '\n%{http_code}' \
      -H 'Content-Type: application/json' -d "$2" "$DUEQ_SERVE/v1/queues/$queue/$1"
}

new_id() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# Extends the lease until it is killed, or this script is.
keep() {
  while sleep "$((lease_s / 3))"; do
    kill -0 "$$" 2>/dev/null || exit
    post extensions "{\"extensions\":[{\"handle\":\"$handle\",\"lease_ms\":${lease_s}000}]}" 10
  done
}

# handle COMMAND [ARGUMENT...]: the message of $answer
handle() {
  # The server writes JSON without blanks, and a quote within a text is \": so these texts are the fields.
  handle=$(printf %s "$answer" | sed -n 's/^{"deliveries":\[{"handle":"\([^"]*\)".*/\1/p')
  id=$(printf %s "$answer" | sed -En 's/^[^,]*,"id":"(([^"\\]|\\.)*)".*/\1/p')
  delivery=${answer#'{"deliveries":['}
  delivery=${delivery%'],"repeated":'*}
  keep >/dev/null 2>&1 &
  keeper=$!
  if printf '%s\n' "$delivery" | "$@"; then
    action='"action":"ack"'
  else
    action="\"action\":\"retry\",\"delay\":\"$retry_delay\",\"error\":\"exit code $?\""
  fi
  kill "$keeper" 2>/dev/null
  # A settlement acts once, so it is sent until it is answered. When all fails, the message comes back after its lease.
  for try in 1 2 3 4 5 6 7 8 9 10; do
    if answer=$(post settlements "{\"settlements\":[{\"handle\":\"$handle\",$action}]}" 30); then
      case $answer in
        *"$newline"200)
          printf '%s %s\n' "$id" "$(printf %s "$answer" | sed -n 's/.*"outcome":"\([a-z]*\)".*/\1/p')"
          return
          ;;
      esac
    fi
    sleep 1
  done
  printf '%s was not settled in %s tries: %s\n' "$id" "$try" "$answer" >&2
}

stopping=
trap 'stopping=1' TERM INT
claim_id=$(new_id)
while [ -z "$stopping" ]; do
  claim="{\"lease_ms\":${lease_s}000,\"wait_ms\":$wait_ms,\"claim_id\":\"$claim_id\"}"
  answer=$(post claims "$claim" "$((wait_ms / 1000 + 15))") || answer="${newline}000"
  status=${answer##*"$newline"}
  case $status in
    200)
      answer=${answer%"$newline"*}
      handle "$@"
      claim_id=$(new_id)
      ;;
    204) ;;
    400 | 401 | 403)
      printf '%s\n' "$answer" >&2
      exit 1
      ;;
    # The same claim again: if the server had granted messages, it answers them.
    *) sleep 1 ;;
  esac
done
