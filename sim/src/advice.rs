//! What was said of managed memory, page by page: hints, and where it was sent last.
use std::collections::{BTreeMap, BTreeSet};

use crate::pool::{LOCATION_DEVICE, LOCATION_HOST, Location};
use crate::reserve::HOST_PAGE;

/// What a question about places answers where there is none.
pub const NOWHERE: i32 = -2;

/// The host, as answers name it.
pub const CPU: Location = Location { kind: LOCATION_HOST, id: -1 };

const NUMA: u32 = 3;

/// The number by which the older attributes name a place. Not inlined: the optimiser would compare the bytes of a place that is
/// none before it looks whether it is one, which valgrind reports.
#[inline(never)]
pub fn ordinal(place: Location) -> i32 {
    if place.kind == LOCATION_DEVICE { place.id } else { -1 }
}

/// The place of a prefetch as it is answered: nodes of the host's memory have numbers.
pub fn sent_to(place: Location) -> Location {
    match place.kind {
        LOCATION_DEVICE | NUMA => place,
        LOCATION_HOST => CPU,
        kind => Location { kind, id: 0 },
    }
}

/// A preferred place as it is answered: all nodes of the host's memory are the host.
pub fn preferred_at(place: Location) -> Location {
    if place.kind == LOCATION_DEVICE { place } else { CPU }
}

/// What was said of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    pub read_mostly: bool,
    pub preferred: Option<Location>,
    /// GPUs, and -1 for the host.
    pub accessed_by: BTreeSet<i32>,
    pub sent: Option<Location>,
}

/// Pages of a block, the last one not among them.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    first: u64,
    end: u64,
}

/// The pages of a block that the addresses lie in.
pub fn pages(base: u64, from: u64, to: u64) -> Range {
    Range { first: (from - base) / HOST_PAGE, end: (to - base).div_ceil(HOST_PAGE) }
}

/// What was said of a block: from each page on that is named here. Nothing was said of the pages before the first.
#[derive(Clone, Debug, Default)]
pub struct Advised(BTreeMap<u64, Advice>);

impl Advised {
    fn of(&self, page: u64) -> Advice {
        self.0.range(..=page).next_back().map(|(_, advice)| advice.clone()).unwrap_or_default()
    }

    pub fn change(&mut self, range: Range, change: impl Fn(&mut Advice)) {
        let (first, behind) = (self.of(range.first), self.of(range.end));
        self.0.insert(range.first, first);
        self.0.insert(range.end, behind);
        self.0.range_mut(range.first..range.end).for_each(|(_, advice)| change(advice));
    }

    /// What holds for all the pages.
    pub fn common(&self, range: Range) -> Advice {
        let mut common = self.of(range.first);
        for (_, advice) in self.0.range(range.first..range.end) {
            common.read_mostly &= advice.read_mostly;
            common.preferred = common.preferred.filter(|place| advice.preferred == Some(*place));
            common.accessed_by.retain(|who| advice.accessed_by.contains(who));
            common.sent = common.sent.filter(|place| advice.sent == Some(*place));
        }
        common
    }
}
