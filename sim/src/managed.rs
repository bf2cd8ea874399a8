//! The fence around managed memory: on a GPU without concurrent managed access the CPU may not touch any of it, even
//! what no kernel uses, while the GPU has work. The pages are really closed for that time.
use crate::attribute;
use crate::block::{Block, Kind};
use crate::reserve::{self, HOST_PAGE};
use crate::work::Operand;
use crate::world::World;

/// `CU_MEM_ATTACH_HOST`: the CPU keeps such memory until it is attached to a stream.
const ATTACH_HOST: u32 = 2;

fn is_fenced(block: &Block) -> bool {
    block.kind == Kind::Managed && block.flags != ATTACH_HOST
}

fn pages(block: &Block) -> (u64, u64) {
    (block.base, block.size.next_multiple_of(HOST_PAGE))
}

impl World {
    /// Closes or opens all managed memory as the GPUs that need it take up or finish work.
    pub fn update_fence(&mut self) {
        if !self.has_fence {
            return;
        }
        let wanted = self.busy.iter().filter_map(|number| self.streams.get(number)).any(|stream| {
            let gpu = &self.devices[stream.device].gpu;
            gpu.has(attribute::MANAGED_MEMORY) && !gpu.has(attribute::CONCURRENT_MANAGED_ACCESS)
        });
        if wanted == self.fenced {
            return;
        }
        self.fenced = wanted;
        for (base, len) in self.blocks.iter().filter(|block| is_fenced(block)).map(pages) {
            if wanted {
                reserve::fence_pages(base, len);
            } else if reserve::open_pages(base, len).is_err() {
                self.violations.push(format!("managed memory at {base:#x} could not be opened again"));
            }
        }
    }

    /// The pages of a block that have to be opened before the GPU's work can use it.
    pub fn closed_pages(&self, block: &Block) -> Option<(u64, u64)> {
        (self.fenced && is_fenced(block)).then(|| pages(block))
    }

    /// Runs a piece of the GPU's work, for which the managed memory it uses is open.
    pub fn through_fence(&mut self, operands: &[&Operand], body: impl FnOnce(&mut World)) {
        if !self.fenced {
            return body(self);
        }
        let used: Vec<(u64, u64)> = operands
            .iter()
            .filter_map(|operand| self.blocks.at(operand.block?.0))
            .filter_map(|block| self.closed_pages(block))
            .collect();
        let opened: Vec<_> =
            used.into_iter().filter(|(base, len)| reserve::open_pages(*base, *len).is_ok()).collect();
        body(self);
        for (base, len) in opened {
            reserve::fence_pages(base, len);
        }
    }
}
