"""Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.

usage: python push.py QUEUE ID DELAY_MS PAYLOAD      (PAYLOAD -: standard input, any bytes)
Needs redis-py (pip install redis) and, once on the server that REDIS_URL names, `dueq functions load`.
"""
import os
import secrets
import sys

import redis

KEYS = ["scheduled", "ready", "leases", "claims", "messages", "attrs", "dead", "recent", "nodes", "meta"]


def push(client, queue, id, delay_ms, payload):
    """True: stored. False: the id was pushed before. The id and the payload may be bytes."""
    keys = [f"dueq:{{{queue}}}:{key}" for key in KEYS]  # all ten, in this order
    # A client sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
    seconds, us = client.time()
    attempt = f"{seconds + 10}{us // 1000:03}.{us % 1000:03} {secrets.token_hex(12)}"
    reply = client.fcall("dueq_push", len(keys), *keys, "", attempt, id, f"+{delay_ms}", payload, "")
    result = bytes(reply[1][0]).decode()
    if result == "CREATED":
        return True
    if result == "FINISHED" or result.startswith("EXISTS"):
        return False
    raise RuntimeError(result)


if __name__ == "__main__":
    queue, id, delay_ms, payload = sys.argv[1:]
    payload = sys.stdin.buffer.read() if payload == "-" else os.fsencode(payload)
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/"))
    try:
        created = push(client, queue, os.fsencode(id), delay_ms, payload)
    except (redis.RedisError, RuntimeError) as error:
        sys.exit(f"push.py: {error}")
    print(f"created {id}" if created else f"{id} was pushed before")
