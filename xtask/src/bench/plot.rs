//! Two pictures of the results, as SVG: both axes are logarithmic.

use super::results::{Results, Row};
use super::table::{libraries, short};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 520.0;
/// The area of the lines; the legend is to its right.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 450.0;

/// The same colour for a library in both pictures; colours that are told apart by most eyes, and on paper.
const COLOURS: [(&str, &str); 12] = [
    ("driver", "#000000"),
    ("driver, plain", "#888888"),
    ("warpmem", "#56b4e9"),
    ("warpmem, outside stream", "#a6cee3"),
    ("warpmem cache", "#0072b2"),
    ("warpmem cache, outside stream", "#7f3c8d"),
    ("RMM async", "#e69f00"),
    ("RMM pool", "#d55e00"),
    ("RMM arena", "#a6611a"),
    ("RMM binning", "#cc79a7"),
    ("PyTorch", "#009e73"),
    ("CuPy", "#b2b200"),
];
const OTHERS: &str = "#ff00ff";

fn colour(library: &str) -> &'static str {
    COLOURS.iter().find(|(name, _)| *name == library).map_or(OTHERS, |(_, colour)| colour)
}

struct Line {
    name: String,
    colour: &'static str,
    is_dashed: bool,
    points: Vec<(f64, f64)>,
}

struct Picture {
    title: &'static str,
    below: &'static str,
    beside: &'static str,
    /// How a place on the lower axis is written.
    mark: fn(f64) -> String,
    lines: Vec<Line>,
}

/// Pairs a second by the number of threads.
pub fn scaling(results: &Results) -> Option<String> {
    let of = |start: &str| {
        lines(results, "threads", |case| first_number(case.strip_prefix(start)?), start == "one stream, ")
    };
    let mut all = of("own streams, ");
    all.extend(of("one stream, "));
    Picture {
        title: "Pairs of 64 KiB on many threads: each on its own stream; dashed, all on one",
        below: "threads",
        beside: "million pairs a second",
        mark: |threads| format!("{threads:.0}"),
        lines: all,
    }
    .draw()
}

/// Nanoseconds of a pair by its size.
pub fn latency(results: &Results) -> Option<String> {
    Picture {
        title: "An allocation and its free, by size",
        below: "bytes",
        beside: "nanoseconds a pair",
        mark: size_in_words,
        lines: lines(results, "pairs", first_number, false),
    }
    .draw()
}

fn lines(results: &Results, bench: &str, place: impl Fn(&str) -> Option<f64>, is_dashed: bool) -> Vec<Line> {
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.bench == bench).collect();
    libraries(rows.iter().copied())
        .into_iter()
        .map(|library| {
            let mut points: Vec<(f64, f64)> = rows
                .iter()
                .filter(|row| row.library == library && row.median > 0.0)
                .filter_map(|row| Some((place(&row.case)?, row.median)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line { name: library.to_string(), colour: colour(library), is_dashed, points }
        })
        .filter(|line| !line.points.is_empty())
        .collect()
}

fn first_number(text: &str) -> Option<f64> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

fn size_in_words(bytes: f64) -> String {
    match bytes {
        _ if bytes >= 1048576.0 => format!("{} MiB", bytes / 1048576.0),
        _ if bytes >= 1024.0 => format!("{} KiB", bytes / 1024.0),
        _ => format!("{bytes}"),
    }
}

/// Where a value stands between two others, by their logarithms, from 0 to 1.
fn share(value: f64, (low, high): (f64, f64)) -> f64 {
    if high > low { (value / low).ln() / (high / low).ln() } else { 0.5 }
}

/// 1, 2 and 5 and their multiples by ten that enclose the values, and those between.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let mut all = Vec::new();
    for power in low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 {
        all.extend([1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    }
    let first = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let last = all.iter().position(|tick| *tick >= high).unwrap_or(all.len() - 1);
    all[first..=last].to_vec()
}

impl Picture {
    fn draw(&self) -> Option<String> {
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let mut places: Vec<f64> = points().map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let across = (*places.first()?, *places.last()?);
        let values = || points().map(|point| point.1);
        let ticks = ticks(values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
        let up = (*ticks.first()?, *ticks.last()?);
        let x = |place: f64| LEFT + share(place, across) * (RIGHT - LEFT);
        let y = |value: f64| BOTTOM - share(value, up) * (BOTTOM - TOP);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        let mut add = |line: String| {
            svg.push_str(&line);
            svg.push('\n');
        };
        add(format!("<text x=\"{LEFT}\" y=\"28\" font-size=\"16\">{}</text>", escaped(self.title)));
        // More than three decades have no room for each of their marks.
        let is_crowded = up.1 / up.0 > 5000.0;
        for tick in &ticks {
            let at = y(*tick);
            let is_power = (tick.log10() - tick.log10().round()).abs() < 1e-9;
            let colour = if is_power { "#bbbbbb" } else { "#e6e6e6" };
            add(format!("<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"{colour}\"/>"));
            if is_power || !is_crowded {
                add(format!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                    LEFT - 8.0,
                    at + 4.5,
                    tick_in_words(*tick)
                ));
            }
        }
        for place in &places {
            let at = x(*place);
            add(format!("<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"#e6e6e6\"/>"));
            add(format!(
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 20.0,
                (self.mark)(*place)
            ));
        }
        add(format!("<path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"#000000\"/>"));
        let middle = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
        add(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            middle.0,
            BOTTOM + 46.0,
            self.below
        ));
        add(format!(
            "<text transform=\"translate(20 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            middle.1, self.beside
        ));
        for line in &self.lines {
            let path: Vec<String> = line
                .points
                .iter()
                .map(|(place, value)| format!("{:.1} {:.1}", x(*place), y(*value)))
                .collect();
            let dashes = if line.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            add(format!(
                "<path d=\"M{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dashes}/>",
                path.join("L"),
                line.colour
            ));
            for (place, value) in &line.points {
                add(format!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{}\"><title>{}: {}</title></circle>",
                    x(*place),
                    y(*value),
                    line.colour,
                    escaped(&line.name),
                    short(*value)
                ));
            }
        }
        for (at, line) in self.lines.iter().filter(|line| !line.is_dashed).enumerate() {
            let height = TOP + 12.0 + 22.0 * at as f64;
            let start = RIGHT + 20.0;
            add(format!(
                "<path d=\"M{start} {height}h26\" stroke=\"{}\" stroke-width=\"2\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                line.colour,
                start + 34.0,
                height + 4.5,
                escaped(&line.name)
            ));
        }
        svg.push_str("</svg>\n");
        Some(svg)
    }
}

fn tick_in_words(tick: f64) -> String {
    if tick >= 1.0 { format!("{tick:.0}") } else { format!("{}", (tick * 1e6).round() / 1e6) }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_enclose_what_is_drawn() {
        assert_eq!(ticks(30.0, 900.0), [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(ticks(0.25, 1.9), [0.2, 0.5, 1.0, 2.0]);
        assert_eq!(ticks(10.0, 10.0), [10.0]);
    }

    #[test]
    fn a_line_goes_through_its_points_in_order() {
        let mut results = Results::default();
        for (threads, rate) in [(16, 8.0), (1, 1.0), (4, 4.0)] {
            results.read(&format!(
                "{{\"bench\": \"threads\", \"library\": \"driver\", \"case\": \"own streams, {threads} threads\", \
                 \"unit\": \"Mpairs/s\", \"median\": {rate}}}"
            ));
        }
        let picture = scaling(&results).expect("there are points");
        assert!(picture.contains("M80.0 450.0L385.0"), "{picture}");
        assert!(latency(&results).is_none());
    }
}
