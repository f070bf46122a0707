//! The day whose turn it is, by which the tests of every change choose the clients and suites that are too many for each time.
//!
//! A day, because who makes a change can choose its commit hash but not the calendar; and a day is easily repeated: it is
//! printed, and `--day` or the variable [`VARIABLE`] gives another.

use std::fmt;

use crate::clock;
use crate::shell::Failure;

/// The environment variable that has another day than today, like `2026-11-30`.
pub(crate) const VARIABLE: &str = "WEIR_ROTATION_DAY";

const SECONDS: u64 = 24 * 60 * 60;

/// A day in UTC, as the number of days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Day(u32);

impl Day {
    /// The day that `option` or the environment gives, else today.
    pub(crate) fn chosen(option: Option<&str>) -> Result<Day, Failure> {
        let of_environment = std::env::var(VARIABLE).ok();
        match option.or(of_environment.as_deref()) {
            Some(text) => Day::parse(text),
            None => Ok(Day(u32::try_from(clock::since_epoch().as_secs() / SECONDS).unwrap_or(u32::MAX))),
        }
    }

    /// Reads `YYYY-MM-DD`.
    pub(crate) fn parse(text: &str) -> Result<Day, Failure> {
        let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u32>().ok();
        let day = match (number(0..4), number(5..7), number(8..10)) {
            (Some(year), Some(month), Some(day)) => Day::of(year, month, day),
            _ => None,
        };
        // What is written again as it was read is a day that there is.
        day.filter(|day| day.to_string() == text)
            .ok_or_else(|| Failure(format!("not a day since 1970 like 2026-11-30: {text}")))
    }

    /// By the count of the days of years that begin in March, so that the leap day is the last.
    fn of(year: u32, month: u32, day: u32) -> Option<Day> {
        let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
        let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
        days.checked_sub(1 + DAYS_BEFORE_1970).map(Day)
    }

    /// Which one of `count` things has its turn, and how often all had it before.
    pub(crate) fn turn(self, count: usize) -> (usize, usize) {
        let (day, count) = (usize::try_from(self.0).unwrap_or(usize::MAX), count.max(1));
        (day % count, day / count)
    }
}

/// From the 1st of March of the year 0.
const DAYS_BEFORE_1970: u32 = 719_468;

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = u64::from(self.0) + u64::from(DAYS_BEFORE_1970);
        // Of 400 years, which all have the same number of days.
        let (cycle, of_cycle) = (days / 146_097, days % 146_097);
        let year = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
        let of_year = of_cycle - (year * 365 + year / 4 - year / 100);
        let month = (of_year * 5 + 2) / 153;
        let day = of_year - (month * 153 + 2) / 5 + 1;
        let year = cycle * 400 + year + u64::from(month > 9);
        write!(f, "{year:04}-{:02}-{day:02}", if month > 9 { month - 9 } else { month + 3 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_and_written() {
        for (text, number) in
            [("1970-01-01", 0), ("1970-03-01", 59), ("2000-02-29", 11_016), ("2026-11-30", 20_787)]
        {
            assert_eq!(Day::parse(text).unwrap(), Day(number), "{text}");
            assert_eq!(Day(number).to_string(), text);
        }
        for number in 0..60_000 {
            assert_eq!(Day::parse(&Day(number).to_string()).unwrap(), Day(number));
        }
        for text in ["", "1969-12-31", "2026-13-01", "2026-02-29", "2026-1-1", "2026-11-30 ", "0000-00-00"] {
            assert!(Day::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn everything_has_its_turn_once_in_as_many_days() {
        let day = |number: u32| Day(20_000 + number);
        let mut turns: Vec<usize> = (0..7).map(|number| day(number).turn(7).0).collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(day(7).turn(7), (day(0).turn(7).0, day(0).turn(7).1 + 1));
        assert_eq!(Day(5).turn(0), (0, 5), "of nothing");
    }
}
