//! Which machine is simulated: a preset plus `key=value` changes, written as one line of text.
use std::collections::BTreeSet;

use crate::attribute;
use crate::codes::{self, Code};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

/// One simulated GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    pub name: String,
    pub memory: u64,
    pub attributes: [i32; attribute::COUNT],
}

impl Gpu {
    fn h200() -> Gpu {
        Gpu { name: "NVIDIA H200".into(), memory: 150_109_880_320, attributes: attribute::h200() }
    }

    /// The H200 values under another name, memory size and with some attributes changed.
    fn like(name: &str, memory: u64, changes: &[(&str, i32)]) -> Gpu {
        let mut gpu = Gpu { name: name.into(), memory, ..Gpu::h200() };
        for &(key, value) in changes {
            if let Some(number) = attribute::number(key) {
                gpu.attributes[number as usize] = value;
            }
        }
        gpu
    }

    pub fn attribute(&self, number: i32) -> i32 {
        self.attributes.get(number as usize).copied().unwrap_or(0)
    }

    pub fn has(&self, number: i32) -> bool {
        self.attribute(number) != 0
    }
}

/// The whole simulated machine.
#[derive(Clone, Debug)]
pub struct Topology {
    pub gpus: Vec<Gpu>,
    /// `peers[a][b]`: kernels on `a` can be allowed to touch the memory of `b`.
    pub peers: Vec<Vec<bool>>,
    /// `(a, b)`: what `a` does directly to the memory of `b` is lost without a word, as on hosts with a broken link.
    pub broken: BTreeSet<(usize, usize)>,
    /// Peer connections a device can have at a time.
    pub peer_limit: usize,
    pub driver: i32,
    /// Entry points that this driver does not have.
    pub missing: BTreeSet<String>,
    /// What `cuInit` answers.
    pub init_code: Code,
    pub pinned_limit: u64,
    /// A call with a dead stream crashes, as the real driver does; otherwise it is an invalid handle.
    pub dead_stream_crashes: bool,
    /// A fault of a kernel ends all contexts of the process, as with the real driver; otherwise the kernel's own.
    pub fault_ends_all: bool,
    /// What memory holds before anything wrote to it.
    pub fresh_byte: u8,
}

impl Topology {
    fn of(gpus: Vec<Gpu>) -> Topology {
        let mut topology = Topology {
            gpus,
            peers: Vec::new(),
            broken: BTreeSet::new(),
            peer_limit: 8,
            driver: 13000,
            missing: BTreeSet::new(),
            init_code: codes::SUCCESS,
            pinned_limit: 1024 * GIB,
            dead_stream_crashes: true,
            fault_ends_all: true,
            fresh_byte: 0xCD,
        };
        topology.set_all_peers(true);
        topology
    }

    /// The presets, by name.
    pub fn preset(name: &str) -> Option<Topology> {
        let discrete = |memory| {
            Gpu::like(
                "Simulated Discrete GPU",
                memory,
                &[
                    ("handle_types", 1),
                    ("handle_type_fabric_supported", 0),
                    ("compute_capability_major", 8),
                    ("compute_capability_minor", 6),
                ],
            )
        };
        let coherent = [("pageable", 1), ("concurrent", 1), ("host_page_tables", 1), ("host_atomics", 1)];
        let topology = match name {
            "h200x2" => Topology::of(vec![Gpu::h200(); 2]),
            "h200" => Topology::of(vec![Gpu::h200()]),
            "discrete" => Topology::of(vec![discrete(24 * GIB); 2]),
            "hmm" => {
                let mut gpu = discrete(24 * GIB);
                gpu.name = "Simulated HMM GPU".into();
                gpu.attributes[88] = 1;
                Topology::of(vec![gpu; 2])
            }
            // Integrated, address translation shared with the CPU, yet the CPU cannot reach device-resident pages.
            "ats" => {
                let mut gpu = Gpu::like("Simulated ATS GPU", 122 * GIB, &coherent);
                gpu.attributes[18] = 1;
                gpu.attributes[attribute::IPC_EVENT as usize] = 0;
                Topology::of(vec![gpu])
            }
            "gb10" => {
                let mut gpu = Gpu::like("Simulated GB10", 119 * GIB, &coherent);
                gpu.attributes[18] = 1;
                gpu.attributes[75] = 12;
                gpu.attributes[76] = 1;
                gpu.attributes[16] = 48;
                gpu.attributes[attribute::DMA_BUF as usize] = 0;
                Topology::of(vec![gpu])
            }
            "grace" => {
                let mut gpu = Gpu::like("Simulated Grace Hopper", 96 * GIB, &coherent);
                gpu.attributes[101] = 1;
                gpu.attributes[131] = 1;
                Topology::of(vec![gpu])
            }
            "wsl" => {
                let mut gpu = discrete(16 * GIB);
                for number in [89, 103, 119, 124, 125] {
                    gpu.attributes[number] = 0;
                }
                gpu.name = "Simulated WSL GPU".into();
                let mut topology = Topology::of(vec![gpu]);
                topology.pinned_limit = GIB / 2;
                topology
            }
            "vgpu" => {
                let changes =
                    [("pools", 0), ("handle_types", 0), ("vmm", 0), ("managed", 0), ("concurrent", 0)];
                Topology::of(vec![Gpu::like("Simulated vGPU", 8 * GIB, &changes)])
            }
            "mixed" => {
                let mut old = discrete(8 * GIB);
                old.name = "Simulated GPU without pools".into();
                old.attributes[attribute::MEMORY_POOLS as usize] = 0;
                old.attributes[attribute::POOL_HANDLE_TYPES as usize] = 0;
                Topology::of(vec![discrete(24 * GIB), old])
            }
            "gpux10" => Topology::of(vec![discrete(24 * GIB); 10]),
            // Two linked pairs, and one link between the pairs that works in one direction only.
            "partial" => {
                let mut topology = Topology::of(vec![discrete(24 * GIB); 4]);
                topology.set_all_peers(false);
                for (a, b) in [(0, 1), (1, 0), (2, 3), (3, 2), (0, 2)] {
                    topology.peers[a][b] = true;
                }
                topology
            }
            "none" => {
                let mut topology = Topology::of(Vec::new());
                topology.init_code = codes::NO_DEVICE;
                topology
            }
            _ => return None,
        };
        Some(topology)
    }

    fn set_all_peers(&mut self, on: bool) {
        let count = self.gpus.len();
        self.peers = (0..count).map(|a| (0..count).map(|b| on && a != b).collect()).collect();
    }

    fn resize(&mut self, count: usize) {
        let last = self.gpus.last().cloned().unwrap_or_else(Gpu::h200);
        let before = self.gpus.len();
        self.gpus.resize(count, last);
        self.peers.truncate(count);
        self.peers.resize(count, Vec::new());
        for (a, row) in self.peers.iter_mut().enumerate() {
            row.truncate(count);
            while row.len() < count {
                row.push(a != row.len());
            }
        }
        if before == 0 && count > 0 {
            self.init_code = codes::SUCCESS;
        }
    }

    /// Reads `preset,key=value,...`; an empty text is the default machine.
    ///
    /// # Errors
    /// A sentence that names the word which was not understood.
    pub fn parse(text: &str) -> Result<Topology, String> {
        let mut words = text.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
        let preset = match words.peek() {
            Some(word) if !word.contains('=') => words.next().unwrap_or_default(),
            _ => "h200x2",
        };
        let mut topology =
            Topology::preset(preset).ok_or_else(|| format!("no preset is called '{preset}'"))?;
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not key=value"))?;
            topology.change(key.trim(), value.trim()).map_err(|reason| format!("'{word}': {reason}"))?;
        }
        Ok(topology)
    }

    fn change(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "gpus" => self.resize(number(value, 64)? as usize),
            "peers" => self.set_all_peers(number(value, 1)? == 1),
            "peer_limit" => self.peer_limit = number(value, u64::MAX)? as usize,
            "driver" => self.driver = number(value, 99_999)? as i32,
            "missing" => self.missing.extend(value.split('+').map(str::to_owned)),
            "init_code" => {
                self.init_code =
                    codes::parse(value).ok_or_else(|| format!("'{value}' is not a result code"))?;
            }
            "pinned_limit" => self.pinned_limit = bytes(value)?,
            "dead_stream" => {
                self.dead_stream_crashes = match value {
                    "crash" => true,
                    "error" => false,
                    _ => return Err("crash or error".into()),
                };
            }
            "fault" => {
                self.fault_ends_all = match value {
                    "process" => true,
                    "context" => false,
                    _ => return Err("process or context".into()),
                };
            }
            "fresh" => self.fresh_byte = number(value, 255)? as u8,
            _ => return self.change_gpus(key, value),
        }
        Ok(())
    }

    fn change_gpus(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(pair) = key.strip_prefix("peer.") {
            let (a, b) = pair.split_once('.').ok_or("peer.FROM.TO=0, 1 or broken")?;
            let (a, b) = (self.ordinal(a)?, self.ordinal(b)?);
            if a == b {
                return Err("a GPU is no peer of itself".into());
            }
            let broken = value == "broken";
            self.peers[a][b] = broken || number(value, 1)? == 1;
            if broken {
                self.broken.insert((a, b));
            }
            return Ok(());
        }
        let (range, key) = match key.strip_prefix("gpu").and_then(|rest| rest.split_once('.')) {
            Some((ordinal, key)) => {
                let ordinal = self.ordinal(ordinal)?;
                (ordinal..ordinal + 1, key)
            }
            None => (0..self.gpus.len(), key),
        };
        for gpu in &mut self.gpus[range] {
            match key {
                "memory" => gpu.memory = bytes(value)?,
                "name" => gpu.name = value.into(),
                _ => {
                    let attribute =
                        attribute::number(key).ok_or_else(|| format!("no key is called '{key}'"))?;
                    gpu.attributes[attribute as usize] =
                        value.parse().map_err(|_| format!("'{value}' is not a number"))?;
                }
            }
        }
        Ok(())
    }

    fn ordinal(&self, word: &str) -> Result<usize, String> {
        let ordinal: usize = word.parse().map_err(|_| format!("'{word}' is not an ordinal"))?;
        if ordinal < self.gpus.len() { Ok(ordinal) } else { Err(format!("there is no GPU {ordinal}")) }
    }
}

fn number(value: &str, most: u64) -> Result<u64, String> {
    let parsed = match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => value.parse(),
    };
    match parsed {
        Ok(number) if number <= most => Ok(number),
        _ => Err(format!("'{value}' is not a number up to {most}")),
    }
}

/// A size in bytes, with an optional unit (`KiB`, `MiB`, `GiB`, `TiB`).
fn bytes(value: &str) -> Result<u64, String> {
    let units = [("KiB", KIB), ("MiB", KIB << 10), ("GiB", GIB), ("TiB", GIB << 10), ("", 1)];
    for (unit, factor) in units {
        if let Some(digits) = value.strip_suffix(unit) {
            let count = digits.trim().parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
            return count.ok_or_else(|| format!("'{value}' is not a size"));
        }
    }
    Err(format!("'{value}' is not a size"))
}
