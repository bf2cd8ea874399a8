//! An adaptor that knows which blocks are out, and whose they are.
#![forbid(unsafe_code)]

use super::backtrace::Backtrace;
use super::shards::Shards;
use super::source::{Request, Source, Stacked, Traits, Upstream, may_be_repeated};
use crate::device::Device;
use crate::error::{Result, fail};
use crate::{tag, thread};
use std::any::Any;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

/// As many blocks of a tag as the report names one by one.
const MOST_NAMED: usize = 16;

/// A block that is out.
#[derive(Clone)]
pub struct Block {
    pub address: u64,
    pub size: u64,
    pub device: &'static Device,
    /// The id of its stream, 0 for none.
    pub stream_id: u64,
    pub tag: u32,
    /// Nanoseconds from the making of the adaptor to that of the block.
    pub time: u64,
    /// The small number of the thread that asked for it.
    pub thread: usize,
    backtrace: Option<Arc<Backtrace>>,
}

impl Block {
    /// The return addresses of the call that it came from, the innermost first; none unless they were asked for.
    pub fn callers(&self) -> &[usize] {
        self.backtrace.as_ref().map_or(&[], |backtrace| backtrace.callers())
    }
}

pub struct Tracking {
    upstream: Upstream,
    with_backtraces: bool,
    start: Instant,
    blocks: Shards<Block>,
}

impl Tracking {
    pub fn new(upstream: Upstream, with_backtraces: bool) -> Result<Tracking> {
        Stacked::require_room(&[&upstream])?;
        Ok(Tracking { upstream, with_backtraces, start: Instant::now(), blocks: Shards::new() })
    }

    /// The blocks that are out, by address.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        self.blocks.each(|_, block| blocks.push(block.clone()));
        blocks.sort_by_key(|block| block.address);
        blocks
    }

    /// The blocks that are out by their tags, the largest sums and blocks first.
    pub fn report(&self) -> String {
        let blocks = self.blocks();
        let mut groups: HashMap<u32, Vec<&Block>> = HashMap::new();
        blocks.iter().for_each(|block| groups.entry(block.tag).or_default().push(block));
        let bytes = |blocks: &[&Block]| blocks.iter().map(|block| u128::from(block.size)).sum::<u128>();
        let mut groups: Vec<(u32, u128, Vec<&Block>)> =
            groups.into_iter().map(|(tag, blocks)| (tag, bytes(&blocks), blocks)).collect();
        groups.sort_by_key(|(tag, bytes, _)| (std::cmp::Reverse(*bytes), *tag));

        let all: u128 = groups.iter().map(|(_, bytes, _)| bytes).sum();
        let mut text = format!("{}, {all} bytes, are out\n", counted(blocks.len()));
        for (tag, bytes, mut blocks) in groups {
            let name = tag::tag_name(tag);
            let name = name.map_or("no tag".into(), |name| format!("\"{}\"", name.to_string_lossy()));
            // Writing to a text does not fail.
            let _ = writeln!(text, "{name}: {}, {bytes} bytes", counted(blocks.len()));
            blocks.sort_by_key(|block| (std::cmp::Reverse(block.size), block.time));
            for block in blocks.iter().take(MOST_NAMED) {
                let _ = writeln!(
                    text,
                    "  {} bytes at {:#x} on \"{}\", stream {}, thread {}, after {:.6} s",
                    block.size,
                    block.address,
                    block.device.alias(),
                    block.stream_id,
                    block.thread,
                    block.time as f64 / 1e9,
                );
                if let Some(backtrace) = &block.backtrace {
                    backtrace.write(&mut text, "    ");
                }
            }
            if blocks.len() > MOST_NAMED {
                let _ = writeln!(text, "  and {} that are no larger", counted(blocks.len() - MOST_NAMED));
            }
        }
        text
    }
}

fn counted(blocks: usize) -> String {
    if blocks == 1 { "1 block".into() } else { format!("{blocks} blocks") }
}

impl Source for Tracking {
    fn sort(&self) -> &'static str {
        "tracking"
    }

    fn traits(&self) -> Traits {
        self.upstream.traits()
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let address = self.upstream.allocate(request)?;
        let block = Block {
            address,
            size: request.size,
            device: request.device,
            stream_id: request.stream.map_or(0, |stream| stream.id()),
            tag: request.tag,
            time: self.start.elapsed().as_nanos() as u64,
            thread: thread::mine().number(),
            backtrace: self.with_backtraces.then(|| Arc::new(Backtrace::capture())),
        };
        if !self.blocks.insert(address, block) {
            // Its first owner still uses it, so it is not given back.
            fail!(
                AllocatorFailed,
                "{} gave {address:#x} for {} bytes, a block that is out already; it is not used, and its first owner keeps it",
                self.upstream.title(),
                request.size
            );
        }
        Ok(address)
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        // Forgotten first: once the upstream has it back, the address may be another block's.
        let Some(block) = self.blocks.remove(address) else {
            fail!(
                AllocatorFailed,
                "a block of {} bytes at {address:#x} came back that is not out; {} does not get it a second time",
                request.size,
                self.upstream.title()
            );
        };
        self.upstream.deallocate(address, request).inspect_err(|error| {
            if may_be_repeated(error) {
                self.blocks.insert(address, block);
            }
        })
    }

    fn upstream(&self) -> Option<&Upstream> {
        Some(&self.upstream)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, request, upstream};
    use super::*;
    use crate::error::Status;

    #[test]
    fn what_is_out_is_listed_and_reported_by_tag() {
        let (below, fake) = upstream(Fake::default());
        let tracking = Tracking::new(below, false).unwrap();
        let (small, large) = (tag::intern(c"tracking: small"), tag::intern(c"tracking: large"));
        let tagged = |tag, size| Request { tag, ..request(size) };
        let mut out: Vec<_> =
            (0..20).map(|_| (tracking.allocate(&tagged(small, 10)).unwrap(), tagged(small, 10))).collect();
        out.push((tracking.allocate(&tagged(large, 700)).unwrap(), tagged(large, 700)));
        out.push((tracking.allocate(&tagged(large, 800)).unwrap(), tagged(large, 800)));
        out.push((tracking.allocate(&request(3)).unwrap(), request(3)));

        let blocks = tracking.blocks();
        assert_eq!(blocks.len(), 23);
        assert!(blocks.is_sorted_by_key(|block| block.address));
        assert!(blocks.iter().zip(&out).all(|(block, (address, asked))| {
            (block.address, block.size, block.tag) == (*address, asked.size, asked.tag)
                && block.thread == thread::mine().number()
                && block.callers().is_empty()
        }));
        let report = tracking.report();
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!(lines[0], "23 blocks, 1703 bytes, are out");
        assert_eq!(lines[1], "\"tracking: large\": 2 blocks, 1500 bytes");
        assert!(lines[2].starts_with("  800 bytes at 0x"), "{report}");
        assert!(lines[3].starts_with("  700 bytes at 0x"), "{report}");
        assert_eq!(lines[4], "\"tracking: small\": 20 blocks, 200 bytes");
        assert_eq!(lines[21], "  and 4 blocks that are no larger");
        assert_eq!(lines[22], "no tag: 1 block, 3 bytes");
        assert!(lines[23].contains("on \"cpu\", stream 0"), "{report}");
        for (address, asked) in out {
            tracking.deallocate(address, &asked).unwrap();
        }
        assert_eq!(tracking.report(), "0 blocks, 0 bytes, are out\n");
        assert_eq!(fake.source().blocks(), 0);
    }

    #[test]
    fn what_an_upstream_gives_twice_is_its_failure() {
        let (below, fake) = upstream(Fake { always: 0x4000, ..Fake::default() });
        let tracking = Tracking::new(below, true).unwrap();
        assert_eq!(tracking.allocate(&request(8)).unwrap(), 0x4000);
        let error = tracking.allocate(&request(9)).unwrap_err();
        assert_eq!(error.status, Status::AllocatorFailed);
        assert!(error.message.contains("0x4000"), "{error}");
        assert!(fake.source().take_calls().is_empty(), "the first owner has it still");
        assert_eq!(tracking.blocks()[0].size, 8);
        assert!(!tracking.blocks()[0].callers().is_empty(), "{}", tracking.report());
        assert!(tracking.report().contains("+0x"), "{}", tracking.report());
    }

    #[test]
    fn what_is_not_out_does_not_come_back() {
        let (below, fake) = upstream(Fake::default());
        let tracking = Tracking::new(below, false).unwrap();
        let address = tracking.allocate(&request(8)).unwrap();
        tracking.deallocate(address, &request(8)).unwrap();
        fake.source().take_calls();
        let error = tracking.deallocate(address, &request(8)).unwrap_err();
        assert_eq!(error.status, Status::AllocatorFailed);
        assert!(fake.source().take_calls().is_empty());
    }
}
