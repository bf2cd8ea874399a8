//! What is copied, checked: the one place where every copy's numbers are looked at, before anything is done.

use super::end::{End, Reach};
use super::plan::{Plan, Side, Step, Which};
use crate::device::Device;
use crate::error::{Result, fail};
use smallvec::SmallVec;

/// One end of a copy of items: the item at the origin, how to get to the others, and how far that leads.
#[derive(Debug, Clone)]
pub struct Operand {
    pub side: Side,
    /// Bytes below the address of the origin's item that are used.
    pub below: u64,
    /// Bytes from there on.
    pub above: u64,
}

/// A copy of items of the same shape at both ends.
#[derive(Debug, Clone)]
pub struct Items {
    /// Without zeros.
    pub shape: SmallVec<[u64; 4]>,
    /// Bytes of each item.
    pub item: u64,
    pub dest: Operand,
    pub src: Operand,
}

/// A copy that can be made, if it is legal where it is put.
pub struct Job {
    pub plan: Plan,
    pub dest: End,
    pub src: End,
    /// The arrays of numbers that items are picked by, of either end.
    pub indices: SmallVec<[(Which, End); 2]>,
    /// An end may read what the other has written already.
    pub meets: bool,
    /// The source is good for this call only.
    pub passes: bool,
}

pub const DEST: &str = "the destination";
pub const SRC: &str = "the source";

impl Job {
    /// `size` bytes from one place to another.
    pub fn line(dest: u64, src: u64, size: u64) -> Result<Job> {
        Ok(Job::between(End::find(dest, size, DEST)?, End::find(src, size, SRC)?))
    }

    /// All bytes of one end to another of the same size.
    pub fn between(dest: End, src: End) -> Job {
        let plan = Plan::line(dest.address, src.address, dest.size);
        let meets = dest.meets(&src) && !changes_nothing(&plan);
        Job { plan, dest, src, indices: SmallVec::new(), meets, passes: false }
    }

    pub fn of(items: &Items) -> Result<Job> {
        let dest = find(&items.dest, DEST)?;
        let src = find(&items.src, SRC)?;
        let mut indices: SmallVec<[(Which, End); 2]> = SmallVec::new();
        for (which, operand, what) in [
            (Which::Dest, &items.dest, "an index array of the destination"),
            (Which::Src, &items.src, "an index array of the source"),
        ] {
            for (step, &extent) in operand.side.steps.iter().zip(&items.shape) {
                if let Some(end) = find_index(step, extent, what)? {
                    indices.push((which, end));
                }
            }
        }
        let plan = plan(items);
        require_apart(&plan)?;
        let meets = dest.meets(&src) && !changes_nothing(&plan) && !are_apart(&plan);
        // Numbers that the copy itself writes would be read before and after.
        if let Some((_, index)) = indices.iter().find(|(_, index)| index.meets(&dest)) {
            fail!(
                InvalidArgument,
                "the index array at {:#x} lies in what is written; copy it first, or index by other memory",
                index.address
            );
        }
        Ok(Job { plan, dest, src, indices, meets, passes: false })
    }

    pub fn size(&self) -> u64 {
        self.plan.size()
    }

    pub fn is_indexed(&self, which: Which) -> bool {
        self.indices.iter().any(|(of, _)| *of == which)
    }

    pub fn end(&self, which: Which) -> &End {
        match which {
            Which::Dest => &self.dest,
            Which::Src => &self.src,
        }
    }

    /// Whether the driver may still be at work on pageable memory when its call comes back: it stages nothing where the other end
    /// is managed, or where the GPU goes by the host's page tables.
    pub fn reads_late(&self, device: &Device) -> bool {
        let is = |reach| self.dest.reach == reach || self.src.reach == reach;
        is(Reach::Pageable) && (is(Reach::Managed) || device.facts().host_page_tables)
    }

    /// Whether what was put on the stream before may still write to memory of the host that the CPU reads when it packs or
    /// unpacks: the driver comes back from ordinary memory only when that is read or written.
    pub fn is_written_late(&self) -> bool {
        let host_end = if self.src.is_host() { Which::Src } else { Which::Dest };
        let numbers = self.indices.iter().filter(|(of, _)| *of == host_end).map(|(_, index)| index);
        let source = (host_end == Which::Src).then_some(&self.src);
        numbers.chain(source).any(|end| end.reach != Reach::Pageable)
    }

    /// Whose the destination is, and whose the source, of a copy from GPU to GPU.
    pub fn gpus(&self) -> Result<(&'static Device, &'static Device)> {
        match (self.dest.gpu, self.src.gpu) {
            (Some(to), Some(from)) => Ok((to, from)),
            _ => fail!(Internal, "a copy between GPUs without two of them; please report it"),
        }
    }

    /// All memory that it uses.
    pub fn ends(&self) -> impl Iterator<Item = &End> {
        [&self.dest, &self.src].into_iter().chain(self.indices.iter().map(|(_, end)| end))
    }
}

fn find(operand: &Operand, what: &str) -> Result<End> {
    let Some(size) = operand.below.checked_add(operand.above) else {
        fail!(
            SizeOverflow,
            "{what} reaches over more than any address space has (the limit is 2^63 - 1 bytes)"
        );
    };
    let address = operand.side.address;
    if address < operand.below {
        fail!(SizeOverflow, "{what} at {address:#x} reaches {} bytes below, past address 0", operand.below);
    }
    End::find(address - operand.below, size, what)
}

fn find_index(step: &Step, extent: u64, what: &str) -> Result<Option<End>> {
    const NUMBER: u64 = size_of::<i32>() as u64;
    let Some(index) = step.index else { return Ok(None) };
    // The index array is an array, whose reach was found to fit when it was made.
    let far = (extent - 1).wrapping_mul(index.stride.unsigned_abs());
    let below = if index.stride < 0 { far } else { 0 };
    End::find(index.address.wrapping_sub(below), far.wrapping_add(NUMBER), what).map(Some)
}

/// The plan in the order of the destination, unless only the source has no gaps: then what goes through a buffer need not be
/// packed.
fn plan(items: &Items) -> Plan {
    let with = |lead| Plan::new(&items.shape, items.item, &items.dest.side, &items.src.side, lead);
    let by_dest = with(Which::Dest);
    if by_dest.is_linear(Which::Dest) {
        return by_dest;
    }
    let by_src = with(Which::Src);
    if by_src.is_linear(Which::Src) { by_src } else { by_dest }
}

/// An error for a destination of which some bytes would be written twice. What index arrays lead to is not looked at.
fn require_apart(plan: &Plan) -> Result<()> {
    if is_apart(plan, Which::Dest) {
        return Ok(());
    }
    let strides: Vec<_> = plan.axes.iter().map(|axis| axis.dest.stride).collect();
    let extents: Vec<_> = plan.axes.iter().map(|axis| axis.extent).collect();
    fail!(
        InvalidArgument,
        "items of the destination share bytes ({} bytes at strides {strides:?}, {extents:?} of them), or are too many to be told apart, and it would be left to chance which stays; copy to items that lie apart",
        plan.row
    )
}

/// As many places of rows as are compared one by one.
const COMPARED: u64 = 1 << 20;

/// Whether no two rows of an end share bytes.
fn is_apart(plan: &Plan, which: Which) -> bool {
    let mut axes: SmallVec<[(u64, u64); 4]> = plan
        .axes
        .iter()
        .filter(|axis| axis.step(which).index.is_none() && axis.extent > 1)
        .map(|axis| (axis.step(which).stride.unsigned_abs(), axis.extent))
        .collect();
    axes.sort_unstable();
    let mut span = plan.row;
    let nested = axes.iter().all(|&(stride, extent)| {
        let fits = stride >= span;
        span = span.saturating_add((extent - 1).saturating_mul(stride));
        fits
    });
    if nested {
        return true;
    }
    let rows = axes.iter().fold(1u64, |rows, (_, extent)| rows.saturating_mul(*extent));
    if axes[0].0 == 0 || rows > COMPARED {
        return false;
    }
    let mut places = vec![0u64];
    for (stride, extent) in axes {
        places = places.iter().flat_map(|at| (0..extent).map(move |i| at + i * stride)).collect();
    }
    places.sort_unstable();
    places.windows(2).all(|pair| pair[1] - pair[0] >= plan.row)
}

/// Whether every item is copied onto itself.
pub fn changes_nothing(plan: &Plan) -> bool {
    plan.dest == plan.src && plan.axes.iter().all(|axis| axis.dest == axis.src)
}

/// Whether the ends surely share no bytes though their ranges meet: both repeat with a common period, in which they have
/// different parts, as columns of one matrix do.
fn are_apart(plan: &Plan) -> bool {
    if plan.is_indexed() {
        return false;
    }
    let strides = plan.axes.iter().flat_map(|axis| [axis.dest.stride, axis.src.stride]);
    let period = strides.fold(0, |all, stride| gcd(all, stride.unsigned_abs()));
    if period == 0 || plan.row > period {
        return false;
    }
    let behind = plan.dest.wrapping_sub(plan.src) as i64;
    let behind = behind.rem_euclid(period as i64) as u64;
    behind >= plan.row && period - behind >= plan.row
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(shape: &[u64], item: u64, dest: (u64, &[i64]), src: (u64, &[i64])) -> Plan {
        let side = |(address, strides): (u64, &[i64])| Side {
            address,
            steps: strides.iter().map(|&stride| Step::by(stride)).collect(),
        };
        Plan::new(shape, item, &side(dest), &side(src), Which::Dest)
    }

    #[test]
    fn rows_that_share_bytes_are_found_and_others_are_not_taken_for_such() {
        let apart = |shape: &[u64], strides: &[i64]| {
            is_apart(&plan_of(shape, 1, (0, strides), (1 << 20, strides)), Which::Dest)
        };
        assert!(apart(&[3, 4], &[4, 1]));
        assert!(apart(&[3, 4], &[-4, 1]));
        assert!(!apart(&[3, 4], &[3, 1]));
        assert!(!apart(&[3], &[0]));
        // Neither axis goes over the other's span, and yet: 0 2 3 5.
        assert!(apart(&[2, 2], &[3, 2]));
        assert!(!apart(&[3, 4], &[3, 2]));
    }

    #[test]
    fn columns_of_one_matrix_are_apart_and_shifted_rows_are_not() {
        let columns =
            |shift: u64| are_apart(&plan_of(&[10, 4], 4, (1000, &[64, 4]), (1000 + shift, &[64, 4])));
        assert!(columns(16) && columns(48) && !columns(4) && !columns(52) && !columns(0));
        // Rows further down, in the same columns.
        assert!(!columns(64) && columns(64 + 16));
        assert!(!are_apart(&Plan::line(0, 8, 16)));
    }
}
