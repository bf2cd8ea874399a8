//! What a copy would do, told without doing it.
#![forbid(unsafe_code)]

use super::end::Reach;
use super::items::{Items, Job};
use super::put::Put;
use super::route::{How, Path, Route};
use super::{by_cpu, home_of, prepare, staged, stream_for, threads};
use crate::capture;
use crate::device::{self, Device};
use crate::error::Result;
use crate::handle::Entered;
use crate::stream::Stream;

pub struct Description {
    pub path: Path,
    pub how: How,
    /// Who makes it; the last step of several.
    pub device: &'static Device,
    /// Bytes that are copied.
    pub size: u64,
    /// Bytes of temporary memory on GPUs at a time.
    pub staging: u64,
    /// The call only puts the copy on the stream.
    pub is_async: bool,
}

/// Of a copy of bytes.
pub fn describe_line(
    dest: u64,
    src: u64,
    size: u64,
    stream: Option<&Entered<Stream>>,
) -> Result<Description> {
    if size == 0 { describe_nothing() } else { describe(&Job::line(dest, src, size)?, stream) }
}

/// Of a copy of items.
pub fn describe_items(items: &Items, stream: Option<&Entered<Stream>>) -> Result<Description> {
    describe(&Job::of(items)?, stream)
}

/// Of a copy of nothing.
pub fn describe_nothing() -> Result<Description> {
    let device = device::by_alias("cpu")?;
    Ok(Description { path: Path::Nothing, how: How::Line, device, size: 0, staging: 0, is_async: false })
}

fn describe(job: &Job, stream: Option<&Entered<Stream>>) -> Result<Description> {
    let size = job.size();
    let Some(home) = home_of(job) else {
        by_cpu::refuse_gpu_stream(stream)?;
        by_cpu::require_good_numbers_now(job)?;
        let path = if threads::serve_host(size) && !job.meets { Path::HostThreads } else { Path::Host };
        let device = device::by_alias("cpu")?;
        let is_async = capture::of_cpu()?.is_some();
        return Ok(Description { path, how: How::Line, device, size, staging: 0, is_async });
    };
    let mut current = None;
    let stream = stream_for(job, stream, home, &mut current)?;
    let mut put = Put::on(stream, "the way of a copy")?;
    put.relax()?;
    let Route { how, path } = prepare(job, &put)?;
    let device = if let How::Kernel(gpu) = how { gpu } else { put.device() };
    let step = if job.meets { size } else { size.min(staged::STEP) };
    let staging = match how {
        How::ByHost { by_way: true, .. } => step,
        How::Staged { pack, unpack } => {
            let is_one = pack.zip(unpack).is_some_and(|(pack, unpack)| std::ptr::eq(pack, unpack));
            step * (u64::from(pack.is_some()) + u64::from(unpack.is_some() && !is_one))
        }
        _ => 0,
    };
    let is_pageable = job.ends().any(|end| end.reach == Reach::Pageable);
    let is_async = put.is_captured || !(is_pageable || matches!(how, How::ByHost { .. }));
    Ok(Description { path, how, device, size, staging, is_async })
}
