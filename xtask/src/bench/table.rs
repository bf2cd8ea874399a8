//! The results as a table of parts, one for each benchmark: a row for each case, a column for each library that takes part.

use super::results::{Results, Row};

/// The libraries in the order of their columns; others come behind them.
pub const LIBRARIES: &[&str] = &[
    "driver",
    "driver, plain",
    "warpmem",
    "warpmem, outside stream",
    "warpmem cache",
    "warpmem cache, outside stream",
    "RMM async",
    "RMM pool",
    "RMM arena",
    "RMM binning",
    "PyTorch",
    "CuPy",
    "Warp",
    "malloc",
    "malloc, aligned",
    "mimalloc",
];

/// The libraries of the rows, in the order in which they are shown.
pub fn libraries<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for row in rows {
        if !found.contains(&row.library.as_str()) {
            found.push(&row.library);
        }
    }
    let place = |name: &str| LIBRARIES.iter().position(|known| *known == name).unwrap_or(LIBRARIES.len());
    found.sort_by_key(|name| place(name));
    found
}

pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    for (name, value) in &results.about {
        text.push_str(&format!("{name}: {value}\\\n"));
    }
    text.push_str("Medians over the rounds, in brackets the quartiles and the 99th percentile.\n");
    let mut benches: Vec<&str> = Vec::new();
    for row in &results.rows {
        if !benches.contains(&row.bench.as_str()) {
            benches.push(&row.bench);
        }
    }
    for bench in benches {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.bench == bench).collect();
        text.push_str(&part(bench, &rows));
    }
    if !results.absent.is_empty() {
        text.push('\n');
    }
    for (library, reason) in &results.absent {
        text.push_str(&format!("absent: {library}: {reason}\n"));
    }
    text
}

/// The rows of one benchmark, with the columns of those who take part in it.
fn part(bench: &str, rows: &[&Row]) -> String {
    let libraries = libraries(rows.iter().copied());
    let mut text = format!("\n| {bench} | unit | {} |\n", libraries.join(" | "));
    text.push_str(&format!("|---|---|{}\n", "--:|".repeat(libraries.len())));
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let case = (row.case.as_str(), row.unit.as_str());
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    for (case, unit) in cases {
        let of = |library: &&str| {
            rows.iter().find(|row| row.case == case && row.unit == unit && row.library == *library)
        };
        let cells: Vec<String> =
            libraries.iter().map(|library| of(library).map_or_else(String::new, |row| cell(row))).collect();
        text.push_str(&format!("| {case} | {unit} | {} |\n", cells.join(" | ")));
    }
    text
}

fn cell(row: &Row) -> String {
    format!("{} ({}–{}, {})", short(row.median), short(row.low), short(row.high), short(row.p99))
}

/// Three digits that matter.
pub fn short(number: f64) -> String {
    let size = number.abs();
    let decimals = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_a_row_and_a_library_a_column() {
        let mut results = Results::default();
        for (bench, library, median) in [
            ("pairs", "PyTorch", 807.0),
            ("trace", "RMM pool", 5.0),
            ("pairs", "driver", 583.25),
            ("pairs", "other", 1.234),
        ] {
            results.read(&format!(
                "{{\"bench\": \"{bench}\", \"library\": \"{library}\", \"case\": \"256 bytes\", \"unit\": \"ns\", \
                 \"median\": {median}}}"
            ));
        }
        let table = markdown(&results);
        assert!(table.contains("| pairs | unit | driver | PyTorch | other |\n"), "{table}");
        assert!(
            table.contains("| 256 bytes | ns | 583 (583–583, 583) | 807 (807–807, 807) | 1.23"),
            "{table}"
        );
        assert!(table.contains("| trace | unit | RMM pool |\n"), "{table}");
    }
}
