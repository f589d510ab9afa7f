"""Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.

usage: python push.py QUEUE ID DELAY_MS PAYLOAD [OPTION...]      (PAYLOAD -: standard input, any bytes)
An OPTION is a word such as max_attempts=5, expires=+7200000, on_expire=drop or cost=3.
Needs redis-py (pip install redis) and, once on the server that REDIS_URL names, `dueq functions load`.
A library has this and workers, too: dueq-client on PyPI, https://github.com/dueq/dueq/tree/main/clients/python
"""
import os
import re
import secrets
import sys
import time
import zlib

import redis

KEYS = ["scheduled", "ready", "leases", "claims", "messages", "attrs", "dead", "recent", "nodes", "meta"]
ONE = "", ["-"], ["-"], ""  # what maps has of a queue of one partition
maps = {}  # by queue: the epoch, the tags of its partitions before and after a change, and the map itself


def keys_of(queue, tag):
    base = queue if tag == "-" else f"{queue}/{tag}"
    return [f"dueq:{{{base}}}:{key}" for key in KEYS]  # all ten, in this order


def read_map(client, queue):
    """None while the queue is being deleted."""
    text = (client.hget(keys_of(queue, "-")[9], "map") or b"").decode()
    epoch, old, new, *url = text.split("|") if text else ("", "-", "-")
    if url:
        raise RuntimeError(f"the queue moves between this server and {url[0]}, or has moved there")
    return (epoch, old.split(" "), new.split(" "), text) if new else None


def tag_of(tags, id):
    part = re.match(rb"[^{]*{([^}]+)}", id)
    return tags[zlib.crc32(part[1] if part else id) * len(tags) >> 32]


def call(client, queue, id, function, *args):
    """Returns the result of a function for the id. Waits for up to ten seconds while the message or the map changes."""
    end = time.monotonic() + 10
    while True:
        epoch, old, new, text = known = maps.get(queue, ONE)
        tag, new_tag, code = tag_of(old, id), tag_of(new, id), ""

        def send(form, tag):
            reply = client.fcall(function, 10, *keys_of(queue, tag), epoch and form + epoch, *args)
            return bytes(reply[1][0]).decode()

        try:
            # While the partitions change, a probe asks the old one: it creates nothing. AWAY: the new one decides.
            # A result behind AWAY is that of the call unless the new one has the message.
            result = "AWAY" if tag == new_tag else send("p", tag)
            if result.startswith("AWAY"):
                tag, remembered = new_tag, result[5:]
                result = send("p" if remembered else "m", tag)
                result = remembered if result.startswith("AWAY") else result
            if result != "MOVING" or time.monotonic() > end:
                return result
        except redis.ResponseError as error:
            code = str(error).split(" ")[0]
            if code not in ("REMAPPED", "BEHIND") or time.monotonic() > end:
                raise
        # The partition has another map, and the call did nothing; or the message is on its way to another partition.
        newest = read_map(client, queue)
        if newest and newest != known:
            maps[queue] = newest
        elif newest and code == "BEHIND" and tag in new:
            client.fcall("dueq_remap", 10, *keys_of(queue, tag), "", "forward", text)
        else:
            time.sleep(0.05)


def push(client, queue, id, delay_ms, payload, options=""):
    """True: stored. False: the id was pushed before. The id and the payload are bytes."""
    # A client sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
    seconds, us = client.time()
    attempt = f"{seconds + 10}{us // 1000:03}.{us % 1000:03} {secrets.token_hex(12)}"
    result = call(client, queue, id, "dueq_push", attempt, id, f"+{delay_ms}", payload, options)
    if result == "CREATED":
        return True
    if result == "FINISHED" or result.startswith("EXISTS"):
        return False
    raise RuntimeError(result)


if __name__ == "__main__":
    queue, id, delay_ms, payload, *options = sys.argv[1:]
    payload = sys.stdin.buffer.read() if payload == "-" else os.fsencode(payload)
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/"))
    try:
        created = push(client, queue, os.fsencode(id), delay_ms, payload, " ".join(options))
    except (redis.RedisError, RuntimeError) as error:
        sys.exit(f"push.py: {error}")
    print(f"created {id}" if created else f"{id} was pushed before")
