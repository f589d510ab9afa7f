"""What Schemathesis must know of the values that a JSON Schema cannot describe; scripts/conformance loads it.

The formats of the document get a generator each. Two parameters of a call can exclude each other, which OpenAPI cannot
say either: `before_call` removes one of them from the requests that should be accepted.
"""
import base64
from urllib.parse import unquote

import schemathesis
from hypothesis import strategies as st

# The queues that may have `"on_conflict": "next"`: scripts/conformance made them.
LAYOUT_3 = ["orders", "busy", "failed"]
CONFLICTS = ["replace", "next"]
LISTS = ["messages", "settlements", "extensions"]
CONTROLS = [chr(code) for code in [*range(32), 127]]


def spelled(text):
    """The text in the second spelling of names in paths."""
    return "~" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def name_of(segment):
    """The name that a segment of a path spells."""
    return base64.urlsafe_b64decode(segment[1:] + "==").decode() if segment.startswith("~") else segment


def segments(names):
    plain = names.filter(lambda name: not name.startswith("~") and name not in (".", ".."))
    return plain | names.map(spelled)


def up_to(size, text):
    return text.filter(lambda value: len(value.encode()) <= size)


queue_names = up_to(128, st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters=CONTROLS + ["/", "{", "}"]), min_size=1, max_size=64))
ids = up_to(200, st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters=CONTROLS), min_size=1, max_size=80))
delays = st.sampled_from(["0s", "1ms", "48h", "1h30m", "1h 30m", "2 days", "PT1H", "1.5h"])
periods = st.sampled_from(["1ms", "1500ms", "1h", "1h 30m", "2 days", "PT48H"])
moments = st.sampled_from(["now", "4099809600000", "2099-12-01T20:00:00+08:00", "2020-12-01T20:00:00Z", "2099-06-01T20:00:00[Asia/Shanghai]"])

for name, strategy in {
    "queue-name": queue_names,
    "queue-segment": segments(queue_names),
    "queue-names": st.lists(segments(queue_names.filter(lambda name: "," not in name)), min_size=1, max_size=20).map(",".join),
    "message-id": ids,
    "id-segment": segments(ids),
    "delay": delays,
    "period": periods,
    "window": periods,
    "moment": moments,
    "business-hours": st.sampled_from(["Mon-Fri 09:00-18:00", "Mon-Sun 00:00-24:00", "Sat 10:00-12:00"]),
    "time-zone": st.sampled_from(["UTC", "Europe/Paris", "Asia/Shanghai"]),
    "ascending-times": st.sets(st.integers(0, 253402300799999), min_size=1, max_size=60).map(lambda times: ",".join(map(str, sorted(times)))),
    "schedule-name": st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True),
    "operation-id": st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    "interval": st.sampled_from(["15m", "1h", "2 days", "PT48H"]),
    "jitter": st.sampled_from(["1ms", "30s", "1m"]),
    "cron": st.sampled_from(["0 2 * * *", "*/15 9-17 * * mon-fri", "30 0 0 1 * *"]),
    "date-time": st.sampled_from(["2099-12-01T20:00:00+08:00", "2099-06-01T00:00:00Z"]),
    "cursor": st.just("MQ"),
}.items():
    schemathesis.openapi.format(name, strategy)


def message(body, queue):
    """Repairs what rules of words forbid in the fields of a message."""
    if body.get("delay") and body.get("spread_ms"):
        body["delay"] = None  # together at most 100 years
    if body.get("max_wait"):
        body["max_wait"] = "36000 days"  # not before the due time
    # A time of clocks needs a zone, and no other time may have one.
    is_of_clocks = body.get("tz") and not body.get("within")
    if body.get("at") and is_of_clocks:
        body["at"] = "2099-06-01 20:00"
    if body.get("expires_at"):
        body["expires_at"] = "2110-01-01 00:00" if is_of_clocks else "2110-01-01T00:00:00Z"
    if body.get("on_conflict") == "next" and queue not in LAYOUT_3 or body.get("revive") and body.get("on_conflict") not in CONFLICTS:
        body["on_conflict"] = "replace"


def limits(body):
    """Limits with which the requests that follow are still accepted."""
    for field, least in [("max_messages", 10**6), ("max_remembered", 10**6), ("max_payload_bytes", 1 << 24)]:
        if body.get(field):
            body[field] = max(body[field], least)
    if body.get("rate"):
        body["rate"], body["rate_window_ms"] = 10**6, 10**6
        body["burst"] = 10**6


def rule(fields):
    """Leaves one of the rules of a schedule."""
    if "cron" in fields:
        fields.pop("every", None)
        fields.setdefault("zone", "UTC")
    else:
        fields.setdefault("every", "15m")
        fields.pop("zone", None)


def schedules(declared):
    for number, one in enumerate(declared):
        payloads = [name for name in ("payload", "payload_json", "payload_base64") if name in one]
        for name in payloads[1:]:
            del one[name]
        if "payload_json" in one:
            one["payload_json"] = as_doubles(one["payload_json"])
        one["name"] = f"name-{number}"
        if "start" in one and "end" in one:
            one["start"], one["end"] = "2099-06-01T00:00:00Z", "2099-12-01T20:00:00+08:00"


def as_doubles(value):
    """The value with no number beyond the range of a double, which the description of the field excludes."""
    if isinstance(value, dict):
        return {name: as_doubles(item) for name, item in value.items()}
    if isinstance(value, list):
        return [as_doubles(item) for item in value]
    return 0 if isinstance(value, int) and abs(value) > 10**308 else value


def whole(value):
    """The value with whole numbers as integers: for JSON Schema 7.0 is one, and for most programs it is not."""
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_queue_name(segment):
    """Whether the server reads this segment of a path as the name of a queue."""
    try:
        name = name_of(unquote(segment, errors="strict"))
    except ValueError:
        return False
    return 0 < len(name.encode()) <= 128 and not any(c in name for c in [*CONTROLS, "/", "{", "}"])


def has_wrong_items(case):
    """Whether nothing is wrong but items of a list that are refused alone, with the status 200."""
    wrong = [place.name for place, part in case.meta.components.items() if part.mode.is_negative] if case.meta else []
    fields = list(case.body.items()) if isinstance(case.body, dict) else []
    return wrong == ["BODY"] and len(fields) == 1 and fields[0][0] in LISTS and isinstance(fields[0][1], list)


@schemathesis.hook
def filter_case(context, case):
    """Leaves out requests that are called wrong and are right: Schemathesis cannot negate a format, so to a test of
    wrong formats every text is wrong."""
    if has_wrong_items(case):
        return False
    mutations = getattr(case.meta and case.meta.phase.data, "mutations", ())
    is_of_name = [set(one.keywords) == {"format"} and one.schema_pointer.endswith("/queue") for one in mutations]
    return not (is_of_name and all(is_of_name) and is_queue_name(str(case.path_parameters["queue"])))


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    query, queue = case.query or {}, unquote(str((case.path_parameters or {}).get("queue")))
    path = case.operation.path
    if "cursor" in query:
        # A cursor names its list.
        place = f"1/{name_of(queue)}/{query.get('state')}/{query.get('order') or 'oldest'}/17:"
        if path.endswith("/schedules"):
            place = f"1/{name_of(queue)}/schedules/http a"
        query["cursor"] = spelled(place)[1:]
        query.pop("from", None)
    if "times" in query:
        for name in ("from", "step_ms", "count"):
            query.pop(name, None)
    if path == "/v1/fires":
        rule(query)
        case.query = query
    if isinstance(case.body, dict):
        case.body = whole(case.body)
        if path.endswith("/limits"):
            limits(case.body)
        elif "/schedules" in path:
            schedules(case.body.get("schedules", [case.body]))
        elif path.endswith("/operations"):
            case.body.pop("ids", None) if case.body.get("kind") != "cancel" else case.body.update(ids=["1", spelled("2")])
        else:
            message(case.body, queue)
        if case.headers and case.body.get("on_conflict"):
            case.headers.pop("If-None-Match", None)  # they exclude each other
        if case.body.get("wait_ms"):
            case.body["wait_ms"] %= 200  # most claims find nothing, and a run has no time to wait
        if case.operation.method.upper() == "PUT":
            case.body.pop("name" if "/schedules/" in path else "id", None)  # the path has it


@schemathesis.serializer("application/x-ndjson")
def ndjson(context, value):
    return {"data": value if isinstance(value, (str, bytes)) else str(value)}


@schemathesis.deserializer("application/octet-stream")
def octets(context, response):
    return response.content.decode("latin-1")
