//! Crons: the crate croner matches patterns with local times, and this file turns local times into
//! instants. Croner's own search is not used: it treats `30 2,14 * * *` as a wildcard at a clock
//! change, and gives up at gaps of more than 2 h.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use crate::error::Error;

fn refused(pattern: &str, why: &str) -> Error {
    let start: String = pattern.chars().take(100).collect();
    Error::invalid(format!(
        "{start:?} is no cron pattern: {why}; it has the fields minute, hour, day of the month, month, day of the week, \
         and before them perhaps the second"
    ))
}

/// Reads the pattern of a new schedule, more strictly than `parse`. A pattern that only this
/// function refuses keeps its fires if a queue has it already.
pub(super) fn parse_new(pattern: &str) -> Result<Cron, Error> {
    let cron = parse(pattern)?;
    let words: Vec<&str> = pattern.split_whitespace().collect();
    for (place, field) in words.iter().enumerate() {
        for part in field.split(',') {
            let split = part.split_once('/');
            let step = split.and_then(|(range, step)| Some((range, step.parse::<usize>().ok()?)));
            let Some((range, step)) = step else { continue };
            let mut alone = vec!["*"; words.len()];
            if let Some(word) = alone.get_mut(place) {
                *word = range;
            }
            // Fields are numbered from the last one, because the seconds at the front are optional.
            let from_last = words.len() - place;
            if step > values(&parse(&alone.join(" "))?, from_last) {
                return Err(refused(pattern, &above_range(range, step, from_last)));
            }
        }
    }
    Ok(cron)
}

/// How many values a field matches. Fields are numbered from the last one, which is 1.
fn values(cron: &Cron, from_last: usize) -> usize {
    let pattern = &cron.pattern;
    let field = match from_last {
        1 => &pattern.days_of_week,
        2 => &pattern.months,
        3 => &pattern.days,
        4 => &pattern.hours,
        5 => &pattern.minutes,
        _ => &pattern.seconds,
    };
    field.values().len()
}

/// The text of a refusal: why this step does not do what its writer expects, and what to write
/// instead.
fn above_range(range: &str, step: usize, from_last: usize) -> String {
    let way_out = match (range, from_last) {
        ("*", 2) => "name the months".to_owned(),
        ("*", _) => {
            let unit = ["d", "d", "d", "d", "h", "m", "s"].get(from_last);
            format!(
                "use every = \"{step}{}\" instead of cron",
                unit.unwrap_or(&"s")
            )
        }
        _ => format!("write the first value of {range} alone"),
    };
    format!(
        "the step of {range}/{step} is above its range, only the first value would match: {way_out}"
    )
}

/// Reads a pattern of five fields, or of six with the second.
pub(super) fn parse(pattern: &str) -> Result<Cron, Error> {
    let refused = |why: &str| refused(pattern, why);
    if pattern.len() > 256 || pattern.chars().any(|c| c.is_control() && c != '\t') {
        return Err(refused(
            "it must have 1 to 256 bytes, none of them a control byte",
        ));
    }
    let parser = CronParser::builder()
        .seconds(Seconds::Optional)
        .year(Year::Disallowed)
        .build();
    parser.parse(pattern).map_err(|error| {
        // Croner's error quotes characters of the pattern, which may be control characters of a
        // terminal.
        let why: String = error.to_string().chars().take(300).collect();
        let shown = why.chars().flat_map(|c| match c.is_ascii() {
            true => vec![c],
            false => c.escape_default().collect(),
        });
        refused(shown.collect::<String>().trim_end_matches('.'))
    })
}

/// Whether the pattern names fixed times of a day: second, minute and hour have neither `*` nor
/// `/`.
fn is_fixed(cron: &Cron) -> bool {
    // `@hourly` is the only nickname that does not fire at midnight.
    if cron.as_str().trim().eq_ignore_ascii_case("@hourly") {
        return false;
    }
    let fields: Vec<_> = cron.as_str().split_whitespace().collect();
    let times = fields.len().saturating_sub(3);
    let is_open = |field: &&str| field.contains(['*', '/']);
    !fields.iter().take(times).any(is_open)
}

/// The fires of a cron in a time zone.
#[derive(Debug, Clone)]
pub(super) struct CronFires {
    cron: Cron,
    zone: TimeZone,
    search: Search,
}

#[derive(Debug, Clone)]
enum Search {
    /// A pattern of fixed times: the local time of the last match, and the last fire.
    Fixed(DateTime, Timestamp),
    /// Any other pattern: the stretches between clock changes are searched one after another.
    Open(Stretch),
}

/// A stretch of time without a clock change.
#[derive(Debug, Clone)]
struct Stretch {
    offset: Offset,
    end: Option<Timestamp>,
    /// The local time after which, or with which, the search continues.
    from: DateTime,
    is_inclusive: bool,
}

impl CronFires {
    /// An iterator over the fires after this time in Unix ms.
    pub(super) fn new(pattern: &str, zone: TimeZone, after_ms: u64) -> Result<Self, Error> {
        let cron = parse(pattern)?;
        // Fires are at whole seconds.
        let after = i64::try_from(after_ms / 1_000).map(Timestamp::from_second);
        let after = after.ok().and_then(Result::ok).ok_or_else(|| {
            Error::invalid(format!(
                "the Unix time of {after_ms} ms is after the year 9999"
            ))
        })?;
        let search = if is_fixed(&cron) {
            Search::Fixed(zone.to_datetime(after), after)
        } else {
            Search::Open(Stretch::at(&zone, after, false))
        };
        Ok(Self { cron, zone, search })
    }

    /// The next fire in Unix ms.
    pub(super) fn next(&mut self) -> Option<u64> {
        let fire = match &mut self.search {
            Search::Fixed(matched, last) => next_fixed(&self.cron, &self.zone, matched, last),
            Search::Open(stretch) => next_open(&self.cron, &self.zone, stretch),
        };
        u64::try_from(fire?.as_millisecond()).ok()
    }
}

/// The next fire of a pattern with fixed times. Each local time that matches fires once. If a clock
/// change skips several matches, they fire once together.
fn next_fixed(
    cron: &Cron,
    zone: &TimeZone,
    matched: &mut DateTime,
    last: &mut Timestamp,
) -> Option<Timestamp> {
    loop {
        *matched = cron.find_next_occurrence(matched, false).ok()?;
        let fire = match zone.to_ambiguous_timestamp(*matched).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(*matched).ok()?,
            // The first of the two instants with this local time.
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(*matched).ok()?,
            // The instant of the clock change itself: with the offset after the change, a skipped
            // local time would be an instant before it.
            AmbiguousOffset::Gap { after, .. } => {
                let before = after.to_timestamp(*matched).ok()?;
                zone.following(before).next()?.timestamp()
            }
        };
        if fire > *last {
            *last = fire;
            return Some(fire);
        }
    }
}

/// The next fire of a pattern without fixed times.
fn next_open(cron: &Cron, zone: &TimeZone, stretch: &mut Stretch) -> Option<Timestamp> {
    // The last search: its first local time, whether that time was included, and its match. The
    // match lies beyond the end of the searched stretch.
    let mut known: Option<(DateTime, bool, DateTime)> = None;
    loop {
        // A search that began after 02:00 says nothing about 02:00, where a repeated hour may
        // begin.
        let reusable = known.filter(|(from, is_inclusive, found)| {
            (*from..=*found).contains(&stretch.from)
                && (*is_inclusive || !stretch.is_inclusive || stretch.from > *from)
        });
        let found = match reusable {
            Some((_, _, found)) => found,
            None => {
                let found = cron.find_next_occurrence(&stretch.from, stretch.is_inclusive);
                found.ok()?
            }
        };
        let fire = stretch.offset.to_timestamp(found).ok()?;
        match stretch.end {
            Some(end) if fire >= end => {
                known = Some((stretch.from, stretch.is_inclusive, found));
                *stretch = Stretch::at(zone, end, true);
            }
            _ => {
                stretch.from = found;
                stretch.is_inclusive = false;
                return Some(fire);
            }
        }
    }
}

impl Stretch {
    fn at(zone: &TimeZone, from: Timestamp, is_inclusive: bool) -> Self {
        let offset = zone.to_offset(from);
        Self {
            offset,
            end: zone.following(from).next().map(|change| change.timestamp()),
            from: offset.to_datetime(from),
            is_inclusive,
        }
    }
}
