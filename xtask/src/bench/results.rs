//! What the benchmarks print: lines of JSON, one for each result, among other lines.

/// The figures of one library in one case of a benchmark, over the rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub bench: String,
    pub library: String,
    pub case: String,
    pub unit: String,
    pub median: f64,
    pub p99: f64,
    /// The quartiles.
    pub low: f64,
    pub high: f64,
    pub rounds: f64,
}

#[derive(Debug, Default)]
pub struct Results {
    /// Machine, date and command, by their names.
    pub about: Vec<(String, String)>,
    pub rows: Vec<Row>,
    /// Libraries that did not take part, with the reason.
    pub absent: Vec<(String, String)>,
}

impl Results {
    /// Takes what is in the output of a program, or in a file that `to_json` wrote. A later result of the same library and case
    /// stands for an earlier one.
    pub fn read(&mut self, text: &str) {
        for line in text.lines() {
            let line = line.trim().trim_end_matches(',');
            let line = line.strip_prefix("\"about\": ").unwrap_or(line);
            let Some(fields) = fields(line) else { continue };
            let text = |name: &str| match field(&fields, name) {
                Some(Value::Text(text)) => Some(text.clone()),
                _ => None,
            };
            let number = |name: &str| match field(&fields, name) {
                Some(Value::Number(number)) => Some(*number),
                _ => None,
            };
            if let (Some(bench), Some(library), Some(case), Some(unit), Some(median)) =
                (text("bench"), text("library"), text("case"), text("unit"), number("median"))
            {
                let part = |name: &str| number(name).unwrap_or(median);
                let (p99, low, high) = (part("p99"), part("low"), part("high"));
                let rounds = number("rounds").unwrap_or(1.0);
                self.add(Row { bench, library, case, unit, median, p99, low, high, rounds });
            } else if let (Some(library), Some(reason)) = (text("absent"), text("reason")) {
                self.absent(&library, &reason);
            } else if text("machine").is_some() {
                for (name, _) in &fields {
                    if let Some(value) = text(name) {
                        self.about.retain(|(known, _)| known != name);
                        self.about.push((name.clone(), value));
                    }
                }
            }
        }
    }

    pub fn absent(&mut self, library: &str, reason: &str) {
        if !self.absent.iter().any(|(known, _)| known == library) {
            self.absent.push((library.to_string(), reason.to_string()));
        }
    }

    fn add(&mut self, row: Row) {
        let same = |known: &&mut Row| {
            known.bench == row.bench && known.library == row.library && known.case == row.case
        };
        match self.rows.iter_mut().find(same) {
            Some(known) => *known = row,
            None => self.rows.push(row),
        }
    }

    pub fn to_json(&self) -> String {
        let pair = |(name, value): &(String, String)| format!("{}: {}", quoted(name), quoted(value));
        let about: Vec<String> = self.about.iter().map(pair).collect();
        let absent: Vec<String> = self
            .absent
            .iter()
            .map(|(library, reason)| {
                format!("{{\"absent\": {}, \"reason\": {}}}", quoted(library), quoted(reason))
            })
            .collect();
        let rows: Vec<String> = self.rows.iter().map(Row::to_json).collect();
        format!(
            "{{\n\"about\": {{{}}},\n\"absent\": [\n{}\n],\n\"results\": [\n{}\n]\n}}\n",
            about.join(", "),
            absent.join(",\n"),
            rows.join(",\n")
        )
    }
}

impl Row {
    fn to_json(&self) -> String {
        format!(
            "{{\"bench\": {}, \"library\": {}, \"case\": {}, \"unit\": {}, \"median\": {}, \"p99\": {}, \"low\": {}, \
             \"high\": {}, \"rounds\": {}}}",
            quoted(&self.bench),
            quoted(&self.library),
            quoted(&self.case),
            quoted(&self.unit),
            self.median,
            self.p99,
            self.low,
            self.high,
            self.rounds
        )
    }
}

/// Whether a line of a program says that something was left out.
pub fn says_nothing(line: &str) -> bool {
    line.starts_with("left out") || line.starts_with("absent")
}

#[derive(Debug, PartialEq)]
enum Value {
    Text(String),
    Number(f64),
}

fn field<'a>(fields: &'a [(String, Value)], name: &str) -> Option<&'a Value> {
    fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// The fields of an object of texts and numbers that fills a line.
fn fields(line: &str) -> Option<Vec<(String, Value)>> {
    let mut rest = line.strip_prefix('{')?.strip_suffix('}')?.trim_start();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (name, after) = text(rest)?;
        let after = after.trim_start().strip_prefix(':')?.trim_start();
        let (value, after) = match text(after) {
            Some((value, after)) => (Value::Text(value), after),
            None => {
                let end = after.find([',', '}', ' ']).unwrap_or(after.len());
                (Value::Number(after[..end].parse().ok()?), &after[end..])
            }
        };
        found.push((name, value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
    Some(found)
}

/// A text in quotes, and what comes after it.
fn text(from: &str) -> Option<(String, &str)> {
    let mut characters = from.strip_prefix('"')?.char_indices();
    let mut text = String::new();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((text, &from[at + 2..])),
            '\\' => text.push(characters.next()?.1),
            other => text.push(other),
        }
    }
    None
}

fn quoted(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "{\"bench\": \"pairs\", \"library\": \"driver\", \"case\": \"256 bytes\", \"unit\": \"ns\", \
                        \"median\": 459.8, \"p99\": 5.388e+02, \"low\": 445.1, \"high\": 472.8, \"rounds\": 101}";

    #[test]
    fn results_are_found_among_other_lines() {
        let mut results = Results::default();
        results.read(&format!(
            "== pairs\n{LINE}\n{{\"absent\": \"RMM\", \"reason\": \"no \\\"rmm\\\"\"}}\n{{broken\n"
        ));
        assert_eq!(results.rows.len(), 1);
        assert_eq!((results.rows[0].median, results.rows[0].p99), (459.8, 538.8));
        assert_eq!(results.absent, [("RMM".to_string(), "no \"rmm\"".to_string())]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let about = vec![("machine".to_string(), "a \"b\" \\ c".to_string())];
        let mut results = Results { about, ..Results::default() };
        results.absent("CuPy", "not here");
        results.read(LINE);
        let mut again = Results::default();
        again.read(&results.to_json());
        assert_eq!(again.rows, results.rows);
        assert_eq!(again.about, results.about);
        assert_eq!(again.absent, results.absent);
    }

    #[test]
    fn a_later_result_of_the_same_case_stands() {
        let mut results = Results::default();
        results.read(LINE);
        results.read(&LINE.replace("459.8", "9"));
        assert_eq!(results.rows.len(), 1);
        assert_eq!(results.rows[0].median, 9.0);
    }
}
