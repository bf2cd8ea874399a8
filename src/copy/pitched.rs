//! Which copies the driver makes by itself in one call: rows, and planes of rows.
#![forbid(unsafe_code)]

use super::plan::{Axis, Plan, Which};
use crate::driver::{Pitch, Pitched};

/// The plan as rows of planes, if it is that. `most` is the most bytes from row to row that the driver takes, of each GPU that is
/// in it.
pub fn pitched(plan: &Plan, most: u64) -> Option<Pitched> {
    let (planes, rows) = match &plan.axes[..] {
        [rows] => (None, rows),
        [planes, rows] => (Some(planes), rows),
        _ => return None,
    };
    if plan.is_indexed() {
        return None;
    }
    let end = |which| {
        let pitch = u64::try_from(rows.step(which).stride).ok()?;
        let height = match planes {
            None => rows.extent,
            Some(planes) => height(planes, rows, pitch, which)?,
        };
        // Rows that overlap are no rows to the driver.
        (plan.row..=most).contains(&pitch).then_some(Pitch { address: plan.address(which), pitch, height })
    };
    Some(Pitched {
        dest: end(Which::Dest)?,
        src: end(Which::Src)?,
        width: plan.row,
        height: rows.extent,
        depth: planes.map_or(1, |planes| planes.extent),
    })
}

/// Rows from plane to plane, where these are a whole number and enough.
fn height(planes: &Axis, rows: &Axis, pitch: u64, which: Which) -> Option<u64> {
    let plane = u64::try_from(planes.step(which).stride).ok()?;
    let height = plane.checked_div(pitch)?;
    (plane.is_multiple_of(pitch) && height >= rows.extent).then_some(height)
}

#[cfg(test)]
mod tests {
    use super::super::lab::{Lab, ROOM, Random, content};
    use super::super::plan::{Axes, Index, Step};
    use super::*;
    use crate::driver::Place;

    const MOST: u64 = i32::MAX as u64;

    fn plan(row: u64, axes: &[(u64, i64, i64)]) -> Plan {
        let axis = |&(extent, dest, src)| Axis { extent, dest: Step::by(dest), src: Step::by(src) };
        Plan { dest: 1 << 20, src: 1 << 30, row, axes: axes.iter().map(axis).collect::<Axes>() }
    }

    #[test]
    fn rows_and_planes_of_rows_are_the_drivers() {
        let rows = pitched(&plan(64, &[(10, 64, 100)]), MOST).unwrap();
        assert_eq!(rows.dest, Pitch { address: 1 << 20, pitch: 64, height: 10 });
        assert_eq!(rows.src, Pitch { address: 1 << 30, pitch: 100, height: 10 });
        assert_eq!((rows.width, rows.height, rows.depth), (64, 10, 1));
        let planes = pitched(&plan(64, &[(3, 640, 1200), (10, 64, 100)]), MOST).unwrap();
        assert_eq!((planes.dest.height, planes.src.height), (10, 12));
        assert_eq!((planes.width, planes.height, planes.depth), (64, 10, 3));
    }

    #[test]
    fn what_it_cannot_make_is_not_given_to_it() {
        for (why, other) in [
            ("one line needs no rows", plan(64, &[])),
            ("rows overlap", plan(64, &[(10, 64, 60)])),
            ("one row is read again and again", plan(64, &[(10, 64, 0)])),
            ("rows go backwards", plan(64, &[(10, 64, -100)])),
            ("planes go backwards", plan(64, &[(3, 640, -1200), (10, 64, 100)])),
            ("planes are no whole number of rows apart", plan(64, &[(3, 640, 1250), (10, 64, 100)])),
            ("planes overlap", plan(64, &[(3, 640, 900), (10, 64, 100)])),
            ("the rows lie turned round", plan(4, &[(100, 4, 800), (200, 400, 4)])),
            ("more axes", plan(64, &[(2, 6400, 6400), (3, 640, 1200), (10, 64, 100)])),
        ] {
            assert_eq!(pitched(&other, MOST), None, "{why}");
        }
        let far = plan(64, &[(10, 64, MOST as i64)]);
        assert!(pitched(&far, MOST).is_some() && pitched(&far, MOST - 1).is_none());
        let mut picked = plan(64, &[(10, 64, 64)]);
        picked.axes[0].src.index = Some(Index { address: 64, stride: 4, limit: 10 });
        assert_eq!(pitched(&picked, MOST), None, "an index array says which rows");
    }

    #[test]
    fn the_driver_copies_what_the_plan_means() {
        let lab = Lab::new();
        let mut random = Random(4);
        let src = content(&mut random);
        lab.put(lab.src, &src);
        let from_host = src.as_ptr().expose_provenance() as u64;
        for round in 0..200_u64 {
            let (row, rows) = (1 + random.below(200), 1 + random.below(20));
            let mut place = |extent: u64| {
                let pitch = row + random.below(50);
                let plane = pitch * (rows + random.below(3));
                (pitch as i64, plane as i64, random.below(ROOM as u64 - plane * extent))
            };
            let planes = if round % 2 == 0 { 1 } else { 2 + round % 5 };
            let (to, from) = (place(planes), place(planes));
            let mut plan = Plan::line(lab.dest + to.2, lab.src + from.2, row);
            if planes > 1 {
                plan.axes.push(Axis { extent: planes, dest: Step::by(to.1), src: Step::by(from.1) });
            }
            plan.axes.push(Axis { extent: rows, dest: Step::by(to.0), src: Step::by(from.0) });
            let whole = pitched(&plan, MOST).expect("these are rows");
            let check = |how: &str, copy: &dyn Fn() -> Result<(), crate::driver::Failure>| {
                lab.check(&plan, 0..plan.size(), (&src, &[]), || {
                    assert_eq!(copy(), Ok(()), "{how}");
                });
            };
            check("within a GPU", &|| lab.driver.copy_pitched(&whole, Place::Any, Place::Device, lab.stream));
            let mut up = whole;
            up.src.address = from_host + from.2;
            check("from the host", &|| lab.driver.copy_pitched(&up, Place::Device, Place::Host, lab.stream));
        }
    }
}
