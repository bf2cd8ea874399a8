//! What was found, as text for people: tables, aligned, that fit a terminal of 100 columns on machines of up to eight GPUs.

use crate::found::{Capabilities, Device, Driver, Found, Matrix};
use std::fmt::Write;

const WIDTH: usize = 100;
/// Longer names are cut.
const NAME_WIDTH: usize = 44;

type Row = Vec<String>;

pub fn text(found: &Found) -> String {
    let mut text = format!("libwarpmem {}\n", found.library.version);
    match &found.driver {
        Driver { version: Some(version), .. } => {
            let _ = writeln!(text, "CUDA driver {version}");
        }
        Driver { reason: Some(reason), .. } => wrap(&mut text, &format!("no GPU: {reason}"), 0),
        Driver { .. } => {}
    }
    let gpus: Vec<&Device> = found.devices.iter().filter(|device| device.is_cuda).collect();
    devices(&mut text, &found.devices);
    if !gpus.is_empty() {
        capabilities(&mut text, &gpus);
        identities(&mut text, &gpus);
    }
    memory(&mut text, &found.devices);
    if !gpus.is_empty() {
        pools(&mut text, &gpus);
        access(&mut text, found);
    }
    remarks(&mut text, found);
    text
}

fn devices(text: &mut String, devices: &[Device]) {
    let mut rows = vec![row(["", "name", "memory", "arch", "SMs", "shared/block"])];
    for device in devices {
        rows.push(row([
            &device.alias,
            &cut(&device.name),
            &bytes(device.total_memory),
            &device.arch.map_or(String::new(), |arch| format!("sm_{arch}")),
            &device.sm_count.map_or(String::new(), |count| count.to_string()),
            &device
                .max_shared_memory_per_block
                .map_or(String::new(), |size| bytes(size.unsigned_abs().into())),
        ]));
    }
    heading(text, "Devices");
    table(text, &rows, 2, "<<><>>");
}

fn capabilities(text: &mut String, gpus: &[&Device]) {
    type Has = fn(&Capabilities) -> bool;
    let named: [(&str, Has); 11] = [
        ("one range of addresses with the CPU", |has| has.is_uva),
        ("shares the host's memory", |has| has.is_integrated),
        ("reaches pageable host memory", |has| has.is_cpu_memory_access_from_gpu_supported),
        ("CPU reaches its managed memory", |has| has.is_gpu_memory_access_from_cpu_supported),
        ("atomics with the CPU", |has| has.is_cpu_gpu_atomic_supported),
        ("managed memory", |has| has.is_managed_memory_supported),
        ("managed memory while it works", |has| has.is_concurrent_managed_access_supported),
        ("memory pools", |has| has.is_mempool_supported),
        ("sharing with processes (IPC)", |has| has.is_ipc_supported),
        ("virtual memory management", |has| has.is_virtual_memory_supported),
        ("dma-buf export", |has| has.is_dma_buf_supported),
    ];
    let mut rows = vec![header(gpus.iter().map(|gpu| gpu.alias.as_str()))];
    for (name, has) in named {
        rows.push(cells(name, gpus.iter().map(|gpu| Some(has(&gpu.capabilities)))));
    }
    heading(text, "Capabilities");
    table(text, &rows, 1, "<");
}

fn identities(text: &mut String, gpus: &[&Device]) {
    let mut rows = vec![row(["", "PCI bus id", "unique id"])];
    for gpu in gpus {
        let shown = |id: &Option<String>| id.clone().unwrap_or_else(|| "?".to_string());
        rows.push(row([&gpu.alias, &shown(&gpu.pci_bus_id), &shown(&gpu.uuid)]));
    }
    heading(text, "Identities");
    table(text, &rows, 2, "<<<");
}

/// Only there when it was asked for.
fn memory(text: &mut String, devices: &[Device]) {
    if devices.iter().all(|device| device.memory.is_none()) {
        return;
    }
    let mut rows = vec![row(["", "free", "total"])];
    for device in devices {
        let shown = |part: Option<u64>| part.map_or("?".to_string(), bytes);
        let (free, total) = device.memory.as_ref().map(|memory| (memory.free, memory.total)).unzip();
        rows.push(row([&device.alias, &shown(free), &shown(total)]));
    }
    let has_gpus = devices.iter().any(|device| device.is_cuda);
    let how = " (each GPU was given a context for the question, and it was taken back)";
    heading(text, &format!("Free memory{}", if has_gpus { how } else { "" }));
    table(text, &rows, 2, "<>>");
}

fn pools(text: &mut String, gpus: &[&Device]) {
    let mut rows = vec![row(["", "enabled", "used", "high", "reserved", "high", "release threshold"])];
    for gpu in gpus {
        let shown = |part: Option<u64>| part.map_or("?".to_string(), bytes);
        let mut cells = row([&gpu.alias, yes(Some(gpu.is_mempool_enabled))]);
        cells.extend(match &gpu.mempool {
            Some(pool) => [
                shown(pool.used),
                shown(pool.used_high),
                shown(pool.reserved),
                shown(pool.reserved_high),
                pool.release_threshold.map_or("?".to_string(), threshold),
            ],
            None if gpu.capabilities.is_mempool_supported => ["?"; 5].map(str::to_string),
            None => ["-"; 5].map(str::to_string),
        });
        rows.push(cells);
    }
    heading(text, "Memory pools (the current one of each GPU, in this process)");
    table(text, &rows, 2, "<<>>>>>");
}

fn access(text: &mut String, found: &Found) {
    let access = &found.access;
    if access.gpus.len() == 1 {
        heading(text, "Access between GPUs: there is one");
        return;
    }
    heading(text, "Access between GPUs (rows: whose memory it is; columns: who touches it; in this process)");
    for (name, matrix) in [
        ("peer access supported", &access.peer_access_supported),
        ("peer access enabled", &access.peer_access_enabled),
        ("pool access supported", &access.mempool_access_supported),
        ("pool access enabled", &access.mempool_access_enabled),
    ] {
        let mut rows = vec![header(access.gpus.iter().map(String::as_str))];
        let named = access.gpus.iter().zip(matrix);
        rows.extend(named.map(|(alias, row)| cells(alias, row.iter().copied())));
        let _ = writeln!(text, "\n  {name}: {}", summary(matrix));
        table(text, &rows, 2, "<");
    }
}

/// In a word what holds of all pairs of two GPUs.
fn summary(matrix: &Matrix) -> &'static str {
    let pairs: Vec<Option<bool>> = matrix
        .iter()
        .enumerate()
        .flat_map(|(i, row)| row.iter().enumerate().filter(move |(j, _)| i != *j).map(|(_, cell)| *cell))
        .collect();
    if pairs.iter().all(|pair| *pair == Some(true)) {
        "all pairs"
    } else if pairs.iter().all(|pair| *pair == Some(false)) {
        "no pair"
    } else {
        "some pairs"
    }
}

fn remarks(text: &mut String, found: &Found) {
    if !found.messages.is_empty() {
        heading(text, "The library says");
        for message in &found.messages {
            wrap(text, &format!("{}: {}", message.level, message.text), 2);
        }
    }
    if !found.problems.is_empty() {
        heading(text, "What could not be asked");
        for problem in &found.problems {
            wrap(text, &format!("{}: {}: {}", problem.question, problem.status, problem.message), 2);
        }
    }
}

fn heading(text: &mut String, words: &str) {
    let _ = writeln!(text, "\n{words}");
}

fn row<const N: usize>(cells: [&str; N]) -> Row {
    cells.map(str::to_string).to_vec()
}

fn header<'a>(columns: impl Iterator<Item = &'a str>) -> Row {
    std::iter::once("").chain(columns).map(str::to_string).collect()
}

fn cells(name: &str, answers: impl Iterator<Item = Option<bool>>) -> Row {
    let answers = answers.map(|answer| yes(answer).to_string());
    std::iter::once(name.to_string()).chain(answers).collect()
}

fn yes(answer: Option<bool>) -> &'static str {
    match answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    }
}

/// Writes rows with `gap` spaces between columns; `<` and `>` say where the text of each column stands, the last sign also
/// for those behind.
fn table(text: &mut String, rows: &[Row], gap: usize, sides: &str) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.extend(std::iter::repeat_n(' ', if column == 0 { 2 } else { gap }));
            let side = sides.chars().nth(column).or(sides.chars().last());
            let _ = if side == Some('>') {
                write!(line, "{cell:>width$}")
            } else {
                write!(line, "{cell:<width$}")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Writes a sentence in lines of the width, those after the first further in. A word that is too long stands alone.
fn wrap(text: &mut String, sentence: &str, indent: usize) {
    let mut line = " ".repeat(indent);
    let mut used = indent;
    let mut is_first = true;
    for word in sentence.split_whitespace() {
        let length = word.chars().count();
        if !is_first && used + 1 + length > WIDTH {
            let _ = writeln!(text, "{line}");
            line = " ".repeat(indent + 2);
            used = indent + 2;
        } else if !is_first {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
        is_first = false;
    }
    let _ = writeln!(text, "{line}");
}

fn cut(name: &str) -> String {
    if name.chars().count() <= NAME_WIDTH {
        return name.to_string();
    }
    name.chars().take(NAME_WIDTH - 1).chain(['…']).collect()
}

/// A size as people say it: the largest unit that it has one of.
fn bytes(size: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (size as f64, "B");
    for larger in units {
        // What would be shown as 1024.0 is one of the next.
        if value < 1023.95 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" { format!("{size} B") } else { format!("{value:.1} {unit}") }
}

fn threshold(size: u64) -> String {
    if size == u64::MAX { "everything".to_string() } else { bytes(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_say_them() {
        for (size, said) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (232_448, "227.0 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (150_109_880_320, "139.8 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(size), said);
        }
        assert_eq!(threshold(u64::MAX), "everything");
        assert_eq!(threshold(0), "0 B");
    }

    #[test]
    fn long_sentences_are_wrapped_and_no_word_is_lost() {
        let sentence = format!("{} {} end", "word ".repeat(60), "x".repeat(150));
        let mut text = String::new();
        wrap(&mut text, &sentence, 2);
        assert!(text.lines().filter(|line| !line.contains("xxx")).all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.split_whitespace().eq(sentence.split_whitespace()), "{text}");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(cut("NVIDIA H200"), "NVIDIA H200");
        let long = cut(&"ä".repeat(255));
        assert_eq!(long.chars().count(), NAME_WIDTH);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_pair_that_could_not_be_asked_is_neither_all_nor_none() {
        let with = |pair| vec![vec![Some(true), pair], vec![Some(true), Some(true)]];
        assert_eq!(summary(&with(Some(true))), "all pairs");
        assert_eq!(summary(&with(Some(false))), "some pairs");
        assert_eq!(summary(&with(None)), "some pairs");
        assert_eq!(summary(&vec![vec![Some(true), Some(false)], vec![Some(false), Some(true)]]), "no pair");
    }
}
