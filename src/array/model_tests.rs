//! Layouts against a model that knows nothing of strides: the list of every item's offset, in row order.

use super::layout::{Layout, Reach};
use super::view::{Range, View};
use std::collections::BTreeSet;

/// Small numbers without a pattern; the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as i64
    }

    fn shape(&mut self, most_dims: i64) -> Vec<i64> {
        (0..self.roll(most_dims + 1)).map(|_| if self.roll(12) == 0 { 0 } else { 1 + self.roll(4) }).collect()
    }

    /// A layout of any sort: rows, gaps, backwards, repeated, transposed, overlapping.
    fn layout(&mut self) -> Layout {
        let item_size = [1u32, 2, 3, 4, 8][self.roll(5) as usize];
        let shape = self.shape(4);
        let plain = Layout::contiguous(&shape, item_size).unwrap();
        let mut strides: Vec<i64> = plain.dims().iter().map(|dim| dim.stride).collect();
        match self.roll(4) {
            0 => {}
            1 => {
                for stride in &mut strides {
                    *stride *= [1, 2, 3, -1, 0][self.roll(5) as usize];
                }
            }
            2 => {
                for stride in &mut strides {
                    *stride = self.roll(80) - 40;
                }
            }
            _ => {
                let mut axes: Vec<i32> = (0..shape.len() as i32).collect();
                for i in (1..axes.len()).rev() {
                    axes.swap(i, self.roll(i as i64 + 1) as usize);
                }
                return plain.transpose(Some(&axes)).unwrap().layout;
            }
        }
        Layout::strided(&shape, &strides, item_size).unwrap()
    }
}

/// Every index in row order.
fn indices(shape: &[i64]) -> Vec<Vec<i64>> {
    shape.iter().fold(vec![vec![]], |before, &extent| {
        before.iter().flat_map(|head| (0..extent).map(move |i| [&head[..], &[i]].concat())).collect()
    })
}

fn offset_at(layout: &Layout, index: &[i64]) -> i64 {
    layout.dims().iter().zip(index).map(|(dim, i)| dim.stride * i).sum()
}

fn offsets(layout: &Layout) -> Vec<i64> {
    indices(&layout.shape()).iter().map(|index| offset_at(layout, index)).collect()
}

fn view_offsets(view: &View) -> Vec<i64> {
    offsets(&view.layout).into_iter().map(|offset| offset + view.offset).collect()
}

/// What each layout claims of itself.
fn check_claims(layout: &Layout) {
    let (all, item) = (offsets(layout), layout.item_size() as i64);
    assert_eq!(layout.count(), all.len() as u64);
    assert_eq!(layout.size(), all.len() as u64 * layout.item_size());
    let rows: Vec<i64> = (0..all.len() as i64).map(|i| i * item).collect();
    assert_eq!(layout.is_contiguous(), all == rows, "{layout:?}");
    let reach = match (all.iter().min(), all.iter().max()) {
        (Some(low), Some(high)) => Reach { below: low.unsigned_abs(), above: (high + item) as u64 },
        _ => Reach { below: 0, above: 0 },
    };
    assert_eq!(layout.reach(), reach, "{layout:?}");
}

#[test]
fn layouts_know_what_they_touch() {
    let mut dice = Dice(11);
    for _ in 0..20_000 {
        check_claims(&dice.layout());
    }
}

#[test]
fn a_slice_has_the_items_that_were_named() {
    let mut dice = Dice(12);
    for _ in 0..20_000 {
        let layout = dice.layout();
        let mut chosen: Vec<Vec<i64>> = vec![];
        let mut ranges = vec![];
        for (at, &extent) in layout.shape().iter().enumerate() {
            if at > 0 && dice.roll(4) == 0 {
                break;
            }
            let step = [1, 2, 3, -1, -2, 7][dice.roll(6) as usize];
            let (a, b) = (dice.roll(extent + 1), dice.roll(extent + 1));
            let (start, stop) = if step > 0 { (a.min(b), a.max(b)) } else { (a.max(b) - 1, a.min(b) - 1) };
            let mut picked = vec![];
            let mut i = start;
            while if step > 0 { i < stop } else { i > stop } {
                picked.push(i);
                i += step;
            }
            chosen.push(picked);
            // An end that is the default may be left out.
            let (first, behind) = if step > 0 { (0, extent) } else { (extent - 1, -1) };
            ranges.push(Range {
                start: (start != first || dice.roll(2) == 0).then_some(start),
                stop: (stop != behind || dice.roll(2) == 0).then_some(stop),
                step,
            });
        }
        for &extent in &layout.shape()[chosen.len()..] {
            chosen.push((0..extent).collect());
        }
        let view = layout.slice(&ranges).unwrap();
        let shape: Vec<i64> = chosen.iter().map(|picked| picked.len() as i64).collect();
        assert_eq!(view.layout.shape().as_slice(), shape);
        let expected: Vec<i64> = indices(&shape)
            .iter()
            .map(|index| index.iter().zip(&chosen).map(|(i, picked)| picked[*i as usize]).collect::<Vec<_>>())
            .map(|index| offset_at(&layout, &index))
            .collect();
        assert_eq!(view_offsets(&view), expected, "{layout:?} {ranges:?}");
        check_claims(&view.layout);
    }
}

#[test]
fn a_transposed_layout_finds_each_item_under_its_turned_index() {
    let mut dice = Dice(13);
    for _ in 0..5_000 {
        let layout = dice.layout();
        let view = layout.transpose(None).unwrap();
        for index in indices(&layout.shape()) {
            let turned: Vec<i64> = index.iter().rev().copied().collect();
            assert_eq!(offset_at(&view.layout, &turned), offset_at(&layout, &index));
        }
        check_claims(&view.layout);
    }
}

/// Shapes with as many items.
fn other_shape(dice: &mut Dice, count: i64) -> Vec<i64> {
    let mut rest = count;
    let mut shape = vec![];
    while rest > 1 && shape.len() < 5 {
        let divisors: Vec<i64> = (1..=rest).filter(|d| rest % d == 0).collect();
        let extent = divisors[dice.roll(divisors.len() as i64) as usize];
        shape.push(extent);
        rest /= extent;
    }
    if rest != 1 || dice.roll(3) == 0 {
        shape.push(rest);
    }
    shape
}

/// Whether any strides give these offsets: those that the first step along each dimension shows, if they hold for all.
fn has_strides(shape: &[i64], expected: &[i64]) -> bool {
    let all = indices(shape);
    let at = |wanted: &[i64]| expected[all.iter().position(|index| index == wanted).unwrap()];
    let strides: Vec<i64> = (0..shape.len())
        .map(|d| {
            let mut unit = vec![0; shape.len()];
            unit[d] = 1;
            if shape[d] > 1 { at(&unit) - expected[0] } else { 0 }
        })
        .collect();
    all.iter().zip(expected).all(|(index, offset)| {
        index.iter().zip(&strides).map(|(i, stride)| i * stride).sum::<i64>() + expected[0] == *offset
    })
}

#[test]
fn a_shape_is_a_view_exactly_when_some_strides_give_it() {
    let mut dice = Dice(14);
    let (mut views, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let layout = dice.layout();
        let expected = offsets(&layout);
        let mut shape = other_shape(&mut dice, expected.len() as i64);
        let whole = shape.clone();
        if !shape.is_empty() && !layout.is_empty() && dice.roll(3) == 0 {
            let open = dice.roll(shape.len() as i64) as usize;
            shape[open] = -1;
        }
        match layout.reshape(&shape) {
            Ok(view) => {
                views += 1;
                assert_eq!(view.layout.shape().as_slice(), whole);
                assert_eq!(view_offsets(&view), expected, "{layout:?} {shape:?}");
                check_claims(&view.layout);
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.status, crate::error::Status::NotSupported);
                assert!(!has_strides(&whole, &expected), "{layout:?} can be seen as {whole:?}");
            }
        }
    }
    assert!(views > 1000 && refused > 1000, "{views} {refused}");
}

/// Every byte of every item, in order.
fn bytes(view: &View) -> Vec<i64> {
    let item = view.layout.item_size() as i64;
    view_offsets(view).into_iter().flat_map(|offset| offset..offset + item).collect()
}

#[test]
fn items_of_another_size_are_the_same_bytes() {
    let mut dice = Dice(15);
    let mut changed = 0;
    for _ in 0..20_000 {
        let layout = dice.layout();
        let item_size = [1u32, 2, 3, 4, 6, 8, 16][dice.roll(7) as usize];
        let whole = View { layout: layout.clone(), offset: 0 };
        let Ok(view) = layout.reinterpret(item_size) else { continue };
        changed += u32::from(u64::from(item_size) != layout.item_size());
        assert_eq!(view.layout.item_size(), u64::from(item_size));
        assert_eq!(bytes(&view), bytes(&whole), "{layout:?} as {item_size}");
        check_claims(&view.layout);
    }
    assert!(changed > 1000, "{changed}");
}

#[test]
fn runs_hold_the_items_and_nothing_else() {
    let mut dice = Dice(16);
    for _ in 0..20_000 {
        let layout = dice.layout();
        if layout.is_empty() {
            continue;
        }
        let (item, reach, runs) = (layout.item_size() as i64, layout.reach(), layout.runs());
        let expected: BTreeSet<i64> = offsets(&layout).into_iter().flat_map(|at| at..at + item).collect();
        let count: i64 = runs.dims.iter().map(|dim| dim.extent).product();
        let starts = offsets(&Layout::of(runs.dims.clone(), 1, count as u64));
        assert_eq!(starts.len() as i64, count);
        let covered: Vec<i64> = starts
            .iter()
            .map(|start| start - reach.below as i64)
            .flat_map(|start| start..start + runs.size as i64)
            .collect();
        let set: BTreeSet<i64> = covered.iter().copied().collect();
        assert_eq!(set, expected, "{layout:?} {runs:?}");
        if runs.disjoint {
            assert_eq!(set.len(), covered.len(), "{layout:?} {runs:?}");
        }
        if layout.is_contiguous() {
            assert_eq!((count, runs.size), (1, layout.size()));
        }
        let starts_of_items: BTreeSet<i64> = offsets(&layout).into_iter().collect();
        let torn = starts_of_items.iter().zip(starts_of_items.iter().skip(1)).any(|(a, b)| b - a < item);
        assert!(runs.torn || !torn, "{layout:?} {runs:?}");
    }
}
