//! An adaptor whose blocks are aligned to more than the allocator below gives: it asks for more bytes, and hands out the part
//! that begins at the right place.
#![forbid(unsafe_code)]

use super::shards::Shards;
use super::source::{
    Exported, Request, Source, Stacked, Traits, Upstream, may_be_repeated, tell_of_unusable,
};
use crate::error::{Error, Result, error, fail};
use std::any::Any;

/// More than any page or any GPU: what is asked for beside a block is never much more than that.
const LARGEST: u64 = 1 << 40;

pub struct Aligned {
    upstream: Upstream,
    alignment: u64,
    /// What was handed out at another address than the upstream gave, and that one.
    moved: Shards<u64>,
}

impl Aligned {
    pub fn new(upstream: Upstream, alignment: u64) -> Result<Aligned> {
        if !alignment.is_power_of_two() || alignment > LARGEST {
            fail!(
                BadAlignment,
                "an alignment is a power of two of at most {LARGEST} bytes, and {alignment} is not; 256 is what most GPU code wants"
            );
        }
        Stacked::require_room(&[&upstream])?;
        Ok(Aligned { upstream, alignment, moved: Shards::new() })
    }

    /// What the upstream is asked for, the same when the block is given back.
    fn below<'a>(&self, request: &Request<'a>) -> Result<Request<'a>> {
        // What is aligned to more anyway needs nothing of us.
        let more = self.alignment.saturating_sub(request.alignment);
        // No larger than what anybody may ask for.
        let sum = request.size.checked_add(more).filter(|sum| *sum <= i64::MAX as u64);
        sum.map(|size| Request { size, ..*request }).ok_or_else(|| overflow(request.size, self.alignment))
    }

    fn given_below(&self, address: u64) -> u64 {
        self.moved.get(address).unwrap_or(address)
    }
}

#[cold]
fn overflow(size: u64, alignment: u64) -> Error {
    error!(
        SizeOverflow,
        "{size} bytes aligned to {alignment} do not fit into an address space; no allocation can be that large"
    )
}

impl Source for Aligned {
    fn sort(&self) -> &'static str {
        "aligned"
    }

    fn traits(&self) -> Traits {
        self.upstream.traits()
    }

    fn allocate(&self, request: &Request<'_>) -> Result<u64> {
        let below = self.below(request)?;
        let given = self.upstream.allocate(&below)?;
        let Some(address) = given.checked_next_multiple_of(self.alignment) else {
            tell_of_unusable(self.upstream.deallocate(given, &below));
            return Err(overflow(request.size, self.alignment));
        };
        if address != given && !self.moved.insert(address, given) {
            // Only a block that the upstream has given twice can be here. Its first owner still uses it.
            fail!(
                AllocatorFailed,
                "{} below the aligned allocator gave {given:#x}, which was not given back yet; it is not used",
                self.upstream.title()
            );
        }
        Ok(address)
    }

    fn deallocate(&self, address: u64, request: &Request<'_>) -> Result<()> {
        let below = self.below(request)?;
        // Forgotten first: once the upstream has it back, the address may be another block's.
        let moved = self.moved.remove(address);
        self.upstream.deallocate(moved.unwrap_or(address), &below).inspect_err(|error| {
            if let Some(given) = moved.filter(|_| may_be_repeated(error)) {
                self.moved.insert(address, given);
            }
        })
    }

    fn record_stream(&self, address: u64, request: &Request<'_>) -> Result<bool> {
        self.upstream.record_stream(self.given_below(address), &self.below(request)?)
    }

    fn export_ipc(&self, address: u64, request: &Request<'_>) -> Result<Option<Exported>> {
        let given = self.given_below(address);
        let exported = self.upstream.export_ipc(given, &self.below(request)?)?;
        Ok(exported.map(|from| Exported { offset: from.offset.saturating_add(address - given), ..from }))
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
    fn the_upstream_gets_back_what_it_gave() {
        let (below, fake) = upstream(Fake::default());
        let aligned = Aligned::new(below, 4096).unwrap();
        for size in [1, 100, 5000] {
            let address = aligned.allocate(&request(size)).unwrap();
            assert_eq!(address % 4096, 0);
            assert!(aligned.record_stream(address, &request(size)).unwrap());
            aligned.deallocate(address, &request(size)).unwrap();
            let calls = fake.source().take_calls();
            let (_, given, asked, alignment) = calls[0];
            assert_eq!((asked, alignment), (size + 4096 - 16, 16));
            assert!(given <= address && address + size <= given + asked, "{given:#x} {address:#x}");
            assert_ne!(given, address, "the fake gives nothing that is aligned by chance");
            assert_eq!(calls[1], ("record_stream", given, asked, 16));
            assert_eq!(calls[2], ("deallocate", given, asked, 16));
        }
        assert_eq!(fake.source().blocks(), 0);
    }

    #[test]
    fn what_is_aligned_to_more_goes_down_as_it_is() {
        let (below, fake) = upstream(Fake::default());
        let aligned = Aligned::new(below, 256).unwrap();
        let large = Request { alignment: 1024, ..request(10) };
        let address = aligned.allocate(&large).unwrap();
        assert_eq!((address % 1024, address % 2048), (0, 1024));
        aligned.deallocate(address, &large).unwrap();
        let calls = fake.source().take_calls();
        assert_eq!(calls, [("allocate", address, 10, 1024), ("deallocate", address, 10, 1024)]);
    }

    #[test]
    fn sizes_that_overflow_and_alignments_that_are_none_are_errors() {
        let (below, fake) = upstream(Fake::default());
        let aligned = Aligned::new(below, 4096).unwrap();
        for size in [u64::MAX - 100, i64::MAX as u64 - 4079] {
            assert_eq!(aligned.allocate(&request(size)).unwrap_err().status, Status::SizeOverflow);
        }
        assert!(fake.source().take_calls().is_empty());
        for bad in [0, 3, 1 << 41, u64::MAX] {
            let (below, _fake) = upstream(Fake::default());
            let error = Aligned::new(below, bad).err().expect("no alignment");
            assert_eq!(error.status, Status::BadAlignment, "{bad}");
        }
    }

    #[test]
    fn an_address_that_would_pass_the_end_is_given_back() {
        let (below, fake) = upstream(Fake { always: u64::MAX - 50, ..Fake::default() });
        let aligned = Aligned::new(below, 4096).unwrap();
        assert_eq!(aligned.allocate(&request(10)).unwrap_err().status, Status::SizeOverflow);
        assert_eq!(fake.source().take_calls(), [("deallocate", u64::MAX - 50, 4090, 16)]);
    }

    #[test]
    fn a_block_that_is_given_twice_stays_its_first_owners() {
        let (below, fake) = upstream(Fake { always: 0x1001, ..Fake::default() });
        let aligned = Aligned::new(below, 4096).unwrap();
        assert_eq!(aligned.allocate(&request(10)).unwrap(), 0x2000);
        let error = aligned.allocate(&request(10)).unwrap_err();
        assert_eq!(error.status, Status::AllocatorFailed);
        assert!(error.message.contains("0x1001"), "{error}");
        assert!(fake.source().take_calls().is_empty(), "nothing was given back");
    }
}
