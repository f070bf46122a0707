//! Times as people write them, and back. All in UTC; the Gregorian calendar by counting days.

/// What `--since` takes, for its help and its errors.
pub(crate) const FORMS: &str = "15m, 2h, 3d (ago), 10:15 (today), 2026-11-29, \"2026-11-29 10:15\", 2026-11-29T10:15:00.5Z, \
     2026-11-29T10:15:00+01:00, @1764411300 (seconds) or 1764411300000 (milliseconds since 1970)";

const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970 of a time in one of [`FORMS`], seen from `now_ms`. Times without a zone are UTC.
pub(crate) fn parse(text: &str, now_ms: i64) -> Result<i64, String> {
    let text = text.trim();
    let parsed = parse_ago(text)
        .and_then(|ago| now_ms.checked_sub(ago))
        .or_else(|| parse_epoch(text))
        .or_else(|| Some(now_ms.div_euclid(DAY_MS) * DAY_MS + parse_clock(text)?))
        .or_else(|| parse_date_time(text));
    parsed.ok_or_else(|| format!("{text:?} is not a time; these are: {FORMS}"))
}

/// `15m`, `-15m`, `15m ago`.
fn parse_ago(text: &str) -> Option<i64> {
    let text = text.strip_suffix("ago").map_or(text, str::trim_end);
    let text = text.strip_prefix('-').unwrap_or(text);
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit.trim_start() {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => DAY_MS,
        "w" => 7 * DAY_MS,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(unit_ms)
}

/// What `--by-duration` takes, for its help and its errors.
pub(crate) const DURATION_FORMS: &str = "90s, 15m, 2h, 3d, 1w, or as ISO 8601 writes it: PT15M, P1DT2H";

/// Milliseconds of a duration in one of [`DURATION_FORMS`].
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let plain = text.bytes().next().filter(u8::is_ascii_digit).and_then(|_| parse_ago(text));
    plain
        .or_else(|| parse_iso_duration(text))
        .ok_or_else(|| format!("{text:?} is no duration; these are: {DURATION_FORMS}"))
}

/// A span of time in its two largest units: `5s`, `4m 10s`, `2h 5m`, `3d 4h`. Less than nothing is nothing: clocks differ.
pub(crate) fn format_span(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

/// `P1W`, `P3D`, `PT2H30M`, `P1DT12H0.5S`.
fn parse_iso_duration(text: &str) -> Option<i64> {
    let (days, clock) = match text.strip_prefix(['P', 'p'])?.split_once(['T', 't']) {
        Some((_, "")) => return None,
        Some((days, clock)) => (days, clock),
        None => (text.get(1..)?, ""),
    };
    let days = parse_designated(days, &[('W', 7 * DAY_MS), ('D', DAY_MS)])?;
    let clock = parse_designated(clock, &[('H', 3_600_000), ('M', 60_000), ('S', 1000)])?;
    // At least one of them must be there.
    let sum = days.unwrap_or(0).checked_add(clock.unwrap_or(0))?;
    (days.is_some() || clock.is_some()).then_some(sum)
}

/// Numbers with designators in this order, each at most once; the sum, or none if there is no number at all.
fn parse_designated(mut text: &str, units: &[(char, i64)]) -> Option<Option<i64>> {
    let mut sum = None;
    for (designator, unit_ms) in units {
        let Some(at) = text.find(|c: char| c.is_ascii_alphabetic()) else { break };
        if !text[at..].starts_with([*designator, designator.to_ascii_lowercase()]) {
            continue;
        }
        let (whole, fraction) = text[..at].split_once('.').unwrap_or((&text[..at], "0"));
        let whole = parse_digits(whole, whole.len())?.checked_mul(*unit_ms)?;
        let millis = parse_digits(fraction, fraction.len()).filter(|_| fraction.len() <= 9)?;
        let scale = 10_i64.pow(u32::try_from(fraction.len()).ok()?);
        sum = Some(
            sum.unwrap_or(0_i64).checked_add(whole)?.checked_add(millis.checked_mul(*unit_ms)? / scale)?,
        );
        text = &text[at + 1..];
    }
    text.is_empty().then_some(sum)
}

/// `@seconds`, or at least eleven digits of milliseconds (shorter numbers would more likely be something else).
fn parse_epoch(text: &str) -> Option<i64> {
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse::<i64>().ok()?.checked_mul(1000);
    }
    let all_digits = text.len() >= 11 && text.bytes().all(|b| b.is_ascii_digit());
    if all_digits { text.parse().ok() } else { None }
}

/// `2026-11-29`, with a time after `T` or a space, with a zone after that.
fn parse_date_time(text: &str) -> Option<i64> {
    let (date, rest) = match text.get(..10) {
        Some(date) => (date, &text[10..]),
        None => return None,
    };
    let mut fields = date.split('-').map(|field| parse_digits(field, field.len()));
    let (year, month, day) = (fields.next()??, fields.next()??, fields.next()??);
    if fields.next().is_some() || !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    let midnight = days_from_civil(year, month, day) * DAY_MS;
    if rest.is_empty() {
        return Some(midnight);
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let zone_at = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone_at);
    Some(midnight + parse_clock(clock.trim_end())? - parse_zone(zone)?)
}

/// `10:15`, `10:15:30`, `10:15:30.5` as milliseconds since midnight.
fn parse_clock(text: &str) -> Option<i64> {
    let mut fields = text.split(':');
    let (hours, minutes) = (parse_digits(fields.next()?, 2)?, parse_digits(fields.next()?, 2)?);
    let (seconds, fraction) = match fields.next() {
        Some(seconds) => seconds.split_once(['.', ',']).unwrap_or((seconds, "0")),
        None => ("00", "0"),
    };
    let seconds = parse_digits(seconds, 2)?;
    let millis = parse_digits(fraction, fraction.len())
        .filter(|_| fraction.len() <= 9)
        .map(|_| format!("{fraction:0<3}")[..3].parse::<i64>().ok())??;
    let valid = fields.next().is_none() && hours < 24 && minutes < 60 && seconds < 60;
    valid.then_some(((hours * 60 + minutes) * 60 + seconds) * 1000 + millis)
}

/// `Z`, nothing, or an offset like `+01:00`, in milliseconds.
fn parse_zone(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first() {
        None | Some(b'Z' | b'z') => return (text.len() <= 1).then_some(0),
        Some(b'+') => 1,
        Some(_) => -1,
    };
    let (hours, minutes) = match text[1..].split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if text.len() == 5 => text[1..].split_at(2),
        None => (&text[1..], "00"),
    };
    let (hours, minutes) = (parse_digits(hours, 2)?, parse_digits(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60_000)
}

/// Exactly `length` digits.
fn parse_digits(text: &str, length: usize) -> Option<i64> {
    let digits = !text.is_empty() && text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// A time as `2026-11-29T10:15:00.500Z`; `-` for times that Kafka has no value for.
pub(crate) fn format(ms: i64) -> String {
    if ms < 0 {
        return "-".to_owned();
    }
    let (year, month, day) = civil_from_days(ms.div_euclid(DAY_MS));
    let clock = ms.rem_euclid(DAY_MS);
    let (hours, minutes) = (clock / 3_600_000, clock / 60_000 % 60);
    let (seconds, millis) = (clock / 1000 % 60, clock % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01. Years begin in March, so that the leap day is their last: then months follow one formula.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    // A year has 365.2425 days on average; the guess is right or one too large.
    let mut year = 1970 + days * 400 / 146_097 + 1;
    while days_from_civil(year, 1, 1) > days {
        year -= 1;
    }
    let mut day = days - days_from_civil(year, 1, 1) + 1;
    let mut month = 1;
    while day > days_in(year, month) {
        day -= days_in(year, month);
        month += 1;
    }
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-29T17:30:00Z.
    const NOW: i64 = 1_795_973_400_000;

    #[test]
    fn times_are_read_in_every_form() {
        let cases = [
            ("15m", NOW - 900_000),
            ("-2h", NOW - 7_200_000),
            ("3 d ago", NOW - 3 * DAY_MS),
            ("250ms", NOW - 250),
            ("@1795973400", NOW),
            ("1795973400000", NOW),
            ("17:30", NOW),
            ("10:15:30.5", NOW - 17_400_000 - 8_670_000 - 500 + 1000),
            ("2026-11-29", NOW - 63_000_000),
            ("2026-11-29 17:30", NOW),
            ("2026-11-29T17:30:00Z", NOW),
            ("2026-11-29T17:30:00.123456Z", NOW + 123),
            ("2026-11-29T18:30:00+01:00", NOW),
            ("2026-11-29T12:00-0530", NOW),
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29", 951_782_400_000),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text, NOW), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_the_forms() {
        let cases = [
            "",
            "yesterday",
            "15",
            "15x",
            "25:00",
            "10:60",
            "2026-02-29",
            "2026-13-01",
            "2026-11-29T",
            "2026-1-1",
            "2026-11-29T10:15:00Q",
            "2026-11-29T10:15:00Zx",
            "2026-11-29T10:15+25:00",
            "@",
            "10:15:30.",
            "99999999999999999999d",
            "ü026-11-29",
        ];
        for text in cases {
            let error = parse(text, NOW).unwrap_err();
            assert!(error.contains("is not a time; these are: 15m"), "{text}: {error}");
        }
    }

    #[test]
    fn durations_are_read_as_people_and_as_iso_8601_write_them() {
        let cases = [
            ("15m", 900_000),
            ("3 d", 3 * DAY_MS),
            ("PT15M", 900_000),
            ("P1DT2H", DAY_MS + 7_200_000),
            ("p1w", 7 * DAY_MS),
            ("PT0.5S", 500),
            ("PT1H30M5S", 5_405_000),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "P1",
            "PT5",
            "15",
            "-15m",
            "PT5M1H",
            "P1H",
            "1x",
            "PT-5M",
            "P99999999999999999W",
            "Pü",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains("is no duration; these are: 90s"), "{text}: {error}");
        }
    }

    #[test]
    fn spans_are_told_in_their_two_largest_units() {
        let cases = [
            (-5_000, "0s"),
            (999, "0s"),
            (59_999, "59s"),
            (60_000, "1m 0s"),
            (3_599_000, "59m 59s"),
            (7_500_000, "2h 5m"),
            (DAY_MS - 1, "23h 59m"),
            (3 * DAY_MS + 4 * 3_600_000, "3d 4h"),
            (400 * DAY_MS, "400d 0h"),
        ];
        for (ms, text) in cases {
            assert_eq!(format_span(ms), text, "{ms}");
        }
    }

    #[test]
    fn formatting_is_the_inverse_of_parsing() {
        assert_eq!(format(NOW), "2026-11-29T17:30:00.000Z");
        assert_eq!(format(-1), "-");
        for day in (0..60_000).step_by(13) {
            let ms = day * DAY_MS + 12_345_678;
            assert_eq!(parse(&format(ms), 0), Ok(ms));
        }
    }
}
