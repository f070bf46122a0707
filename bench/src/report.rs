//! Medians, spreads and tables.

/// The middle of the sorted values; the upper of the two middles for an even count.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value below or at which this part (0 to 1) of the values lies.
pub(crate) fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The nearest rank: the p99 of 100 values is the 99th of them.
    let rank = (part * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// `median (min-max)` with `digits` digits.
pub(crate) fn spread(values: &[f64], digits: usize) -> String {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.digits$} ({min:.digits$}-{max:.digits$})", median(values))
}

/// Prints rows of equal length as a table with the first row as header.
pub(crate) fn print_table(rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            out.push_str(&format!("{cell:<width$}  "));
        }
        out.push('\n');
    }
    #[expect(clippy::print_stdout, reason = "the report is the output")]
    {
        print!("{out}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|part| percentile(&hundred, part)), [50.0, 99.0, 100.0]);
        assert_eq!(spread(&[1.0, 4.0, 2.5], 1), "2.5 (1.0-4.0)");
    }
}
