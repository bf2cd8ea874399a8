//! Several copies by one call.
#![forbid(unsafe_code)]

use super::items::{Items, Job};
use super::put::Put;
use super::route::Route;
use super::{by_cpu, home_of, make, prepare, stream_for};
use crate::capture::Graph;
use crate::error::{Error, Result};
use crate::handle::{Entered, Handle};
use crate::stream::{self, Stream};
use std::ops::Range;

/// One of several copies.
pub enum Several<'a> {
    Bytes {
        dest: u64,
        src: u64,
        size: u64,
    },
    Items(&'a Items),
    /// A copy of nothing.
    Nothing,
}

/// What is told which copy is recorded, and in which graph.
pub type Recorded<'a> = &'a dyn Fn(usize, &Entered<Graph>);

/// Copies next to each other that go on one stream, or that the CPU makes.
struct Group {
    /// Entered when it is used: a thread can be inside of so many objects only.
    stream: Option<Handle>,
    copies: Range<usize>,
}

/// Makes copies one after another, all of which are checked before the first is made. With an error comes which of them it was;
/// if that is none of those that were found wrong before, the ones in front of it have been made.
pub fn copy_all(
    copies: &[Several<'_>],
    stream: Option<&Entered<Stream>>,
    recorded: Recorded<'_>,
) -> std::result::Result<(), (usize, Error)> {
    let mut jobs = Vec::with_capacity(copies.len());
    for (at, copy) in copies.iter().enumerate() {
        jobs.push(job_of(copy).map_err(|e| (at, e))?);
    }
    let groups = group(&jobs, stream)?;
    // What is ready is made right away where nothing else is to be checked.
    if let [one] = &*groups {
        return one.make(&jobs, recorded);
    }
    for group in &groups {
        group.check(&jobs)?;
    }
    groups.iter().try_for_each(|group| group.make(&jobs, recorded))
}

fn job_of(copy: &Several<'_>) -> Result<Option<Job>> {
    match *copy {
        Several::Nothing | Several::Bytes { size: 0, .. } => Ok(None),
        Several::Bytes { dest, src, size } => {
            Job::line(dest, src, size).map(|job| Some(Job { passes: true, ..job }))
        }
        Several::Items(items) => Job::of(items).map(Some),
    }
}

fn group(
    jobs: &[Option<Job>],
    asked: Option<&Entered<Stream>>,
) -> std::result::Result<Vec<Group>, (usize, Error)> {
    let mut groups: Vec<Group> = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let Some(job) = job else {
            // Where nothing is to be done anyone may do it.
            if let Some(last) = groups.last_mut() {
                last.copies.end = at + 1;
            }
            continue;
        };
        let stream = match home_of(job) {
            None => by_cpu::refuse_gpu_stream(asked).map(|()| None),
            Some(home) => {
                let mut current = None;
                stream_for(job, asked, home, &mut current).map(|found| Some(stream::handle_of(found)))
            }
        };
        let stream = stream.map_err(|e| (at, e))?;
        match groups.last_mut() {
            Some(last) if last.stream == stream => last.copies.end = at + 1,
            _ => groups.push(Group { stream, copies: at..at + 1 }),
        }
    }
    Ok(groups)
}

impl Group {
    fn jobs<'a>(&self, jobs: &'a [Option<Job>]) -> impl Iterator<Item = (usize, &'a Job)> {
        let of = self.copies.clone();
        let within = jobs.iter().enumerate().skip(of.start).take(of.len());
        within.filter_map(|(at, job)| job.as_ref().map(|job| (at, job)))
    }

    /// An error for the first that cannot be made.
    fn check(&self, jobs: &[Option<Job>]) -> std::result::Result<(), (usize, Error)> {
        match self.stream {
            None => self
                .jobs(jobs)
                .try_for_each(|(at, job)| by_cpu::require_good_numbers_now(job).map_err(|e| (at, e))),
            Some(stream) => {
                let stream = self.enter(stream)?;
                let put = self.put(&stream)?;
                self.routes(jobs, &put).map(drop)
            }
        }
    }

    fn enter(&self, stream: Handle) -> std::result::Result<Entered<Stream>, (usize, Error)> {
        stream::enter_again(stream).map_err(|e| (self.copies.start, e))
    }

    fn put<'a>(&self, stream: &'a Entered<Stream>) -> std::result::Result<Put<'a>, (usize, Error)> {
        let ready = || {
            let mut put = Put::on(stream, "a copy")?;
            put.relax()?;
            Ok(put)
        };
        ready().map_err(|e| (self.copies.start, e))
    }

    fn routes(&self, jobs: &[Option<Job>], put: &Put<'_>) -> std::result::Result<Vec<Route>, (usize, Error)> {
        self.jobs(jobs).map(|(at, job)| prepare(job, put).map_err(|e| (at, e))).collect()
    }

    fn make(&self, jobs: &[Option<Job>], recorded: Recorded<'_>) -> std::result::Result<(), (usize, Error)> {
        let Some(stream) = self.stream else {
            self.check(jobs)?;
            for (at, job) in self.jobs(jobs) {
                let graph = by_cpu::run(job, None).map_err(|e| (at, e))?;
                graph.iter().for_each(|graph| recorded(at, graph));
            }
            return Ok(());
        };
        let stream = self.enter(stream)?;
        let put = self.put(&stream)?;
        let routes = self.routes(jobs, &put)?;
        let mut made = Ok(());
        for ((at, job), route) in self.jobs(jobs).zip(routes) {
            put.graph.iter().for_each(|graph| recorded(at, graph));
            made = make(job, &put, route).map_err(|e| (at, e));
            if made.is_err() {
                break;
            }
        }
        let used: Vec<_> = self.jobs(jobs).flat_map(|(_, job)| job.ends()).collect();
        let settled = put.settle(used.into_iter(), None).map_err(|e| (self.copies.start, e));
        made?;
        settled.map(drop)
    }
}
