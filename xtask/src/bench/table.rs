//! The results as one table: a row for each case, a column for each library.

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
    let libraries = libraries(results.rows.iter());
    let mut text = String::new();
    for (name, value) in &results.about {
        text.push_str(&format!("{name}: {value}\\\n"));
    }
    text.push_str("Medians over the rounds, in brackets the quartiles and the 99th percentile.\n\n");
    text.push_str(&format!("| benchmark | case | unit | {} |\n", libraries.join(" | ")));
    text.push_str(&format!("|---|---|---|{}\n", "--:|".repeat(libraries.len())));
    let mut cases: Vec<(&str, &str, &str)> = Vec::new();
    for row in &results.rows {
        let case = (row.bench.as_str(), row.case.as_str(), row.unit.as_str());
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    for (bench, case, unit) in cases {
        let cells: Vec<String> = libraries
            .iter()
            .map(|library| {
                let found = results.rows.iter().find(|row| {
                    row.bench == bench && row.case == case && row.unit == unit && row.library == *library
                });
                found.map_or_else(String::new, cell)
            })
            .collect();
        text.push_str(&format!("| {bench} | {case} | {unit} | {} |\n", cells.join(" | ")));
    }
    if !results.absent.is_empty() {
        text.push('\n');
    }
    for (library, reason) in &results.absent {
        text.push_str(&format!("absent: {library}: {reason}\n"));
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
        for (library, median) in [("PyTorch", 807.0), ("driver", 583.25), ("other", 1.234)] {
            results.read(&format!(
                "{{\"bench\": \"pairs\", \"library\": \"{library}\", \"case\": \"256 bytes\", \"unit\": \"ns\", \
                 \"median\": {median}}}"
            ));
        }
        let table = markdown(&results);
        assert!(table.contains("| benchmark | case | unit | driver | PyTorch | other |\n"), "{table}");
        assert!(
            table.contains("| pairs | 256 bytes | ns | 583 (583–583, 583) | 807 (807–807, 807) | 1.23"),
            "{table}"
        );
    }
}
