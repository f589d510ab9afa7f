//! The codes of problems: one word for programs, with its status and title.

use axum::http::StatusCode;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:ident, $title:literal;)*) => {
        /// What went wrong. The page docs/guide/http.md explains each code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All codes, in the order in which that page lists them.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word for programs.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            pub(crate) fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// The title that every problem of this code has.
            pub(crate) fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    BadRequest = "bad_request", BAD_REQUEST, "The request cannot be read";
    InvalidInput = "invalid_input", BAD_REQUEST, "A value is out of its range";
    InvalidPath = "invalid_path", BAD_REQUEST, "A name in the path cannot be read";
    InvalidCursor = "invalid_cursor", BAD_REQUEST, "The cursor is not of this list";
    TokenInQuery = "token_in_query", BAD_REQUEST, "A token is in the URL";
    Unauthenticated = "unauthenticated", UNAUTHORIZED, "The request has no valid token";
    Forbidden = "forbidden", FORBIDDEN, "The role does not allow this request";
    ForeignQueue = "foreign_queue", FORBIDDEN, "The queue is not among those that the caller may use";
    ReadOnly = "read_only", FORBIDDEN, "The server only answers reads";
    CrossOrigin = "cross_origin", FORBIDDEN, "A page of another site sent the request";
    Proxied = "proxied", FORBIDDEN, "A proxy forwarded the request to a server without tokens";
    NotFound = "not_found", NOT_FOUND, "There is nothing at this path";
    NoSuchQueue = "no_such_queue", NOT_FOUND, "The queue does not exist";
    NoSuchMessage = "no_such_message", NOT_FOUND, "The queue has no message of this id";
    NoSuchOperation = "no_such_operation", NOT_FOUND, "The server does not know the operation";
    NoSuchSchedule = "no_such_schedule", NOT_FOUND, "The queue has no schedule of this name";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "The path has no such method";
    BodyTimeout = "body_timeout", REQUEST_TIMEOUT, "The body paused for too long";
    Leased = "leased", CONFLICT, "A handler has the message";
    Dead = "dead", CONFLICT, "The message is dead";
    NotDead = "not_dead", CONFLICT, "The message is not dead";
    NotLeased = "not_leased", CONFLICT, "The message has no such lease";
    DueChanged = "due_changed", CONFLICT, "The message has another due time than expected";
    OperationRunning = "operation_running", CONFLICT, "An operation of this kind runs on the queue";
    QueueChanged = "queue_changed", PRECONDITION_FAILED, "The queue is not the one that was meant";
    Exists = "exists", PRECONDITION_FAILED, "The queue has a message of this id";
    OtherBody = "other_body", UNPROCESSABLE_ENTITY, "The key was used with another body";
    OtherSet = "other_set", CONFLICT, "The schedule belongs to another set";
    Stale = "stale", CONFLICT, "A newer revision has declared the set";
    OlderWorkers = "older_workers", CONFLICT, "Live workers are too old for schedules";
    Partitioned = "partitioned", CONFLICT, "A queue of several partitions has no schedules";
    Overlaps = "overlaps", CONFLICT, "An earlier tick waits or runs";
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "The body is too large";
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The body has another type than expected";
    HeadTooLarge = "head_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE, "The request head is too large";
    WrongHost = "wrong_host", MISDIRECTED_REQUEST, "The request names another host";
    IfMatchRequired = "if_match_required", PRECONDITION_REQUIRED, "The request must say which queue it means";
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "The caller sends too many requests";
    Internal = "internal", INTERNAL_SERVER_ERROR, "A defect of the server";
    RedisError = "redis_error", BAD_GATEWAY, "Redis answered with an error";
    RedisDenied = "redis_denied", BAD_GATEWAY, "Redis denied the call";
    RedisUnsupported = "redis_unsupported", BAD_GATEWAY, "The Redis server or the queue is not supported";
    RedisUnavailable = "redis_unavailable", SERVICE_UNAVAILABLE, "Redis cannot be reached or does not serve calls now";
    Unconfirmed = "unconfirmed", SERVICE_UNAVAILABLE, "Too few replicas or disks confirmed the call";
    BodiesFull = "bodies_full", SERVICE_UNAVAILABLE, "The memory for bodies is in use";
    AuditFailed = "audit_failed", SERVICE_UNAVAILABLE, "The audit log cannot be written";
    Busy = "busy", SERVICE_UNAVAILABLE, "The server does as many of these at once as it may";
    Stopping = "stopping", SERVICE_UNAVAILABLE, "The server is stopping";
    RedisTimeout = "redis_timeout", GATEWAY_TIMEOUT, "Redis did not answer in time";
    Full = "full", INSUFFICIENT_STORAGE, "The queue or the memory of Redis is full";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained_in_the_guide() {
        let page = include_str!("../../../../docs/guide/http.md");
        for code in Code::ALL {
            let (word, status) = (code.word(), code.status().as_u16());
            let heading = format!("\n### {word}\n");
            let Some((_, text)) = page.split_once(&heading) else {
                panic!("docs/guide/http.md has no heading {word}");
            };
            let text = text.split("\n#").next().unwrap_or_default();
            assert!(
                text.contains(&format!("{status}")),
                "docs/guide/http.md: {word} does not name its status {status}"
            );
        }
    }
}
