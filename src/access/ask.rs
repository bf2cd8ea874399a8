//! What only the driver knows. Nothing here makes a context, changes anything or harms a capture: questions that the driver
//! counts as unsafe are asked with the thread's mode relaxed. While the calling thread captures on the device, its peers and
//! pools are as they were when that began.

use super::rule::{Answer, Question};
use crate::alloc::{Block, Rule};
use crate::capture;
use crate::device::Device;
use crate::driver::{Driver, Failure, RawPool};
use crate::error::{Result, Status};
use crate::{peer, pool, runtime};

/// The memory that is asked about.
#[derive(Clone, Copy)]
pub enum Subject<'a> {
    Ours(&'a Block),
    /// Somebody else's; its pool, where it has one.
    Foreign {
        address: u64,
        pool: Option<RawPool>,
    },
}

impl Subject<'_> {
    fn address(&self) -> u64 {
        match self {
            Subject::Ours(block) => block.base(),
            Subject::Foreign { address, .. } => *address,
        }
    }
}

/// The answer for a GPU and memory whose home is another device, or a mapping.
pub fn answer(
    question: Question,
    toucher: &'static Device,
    home: &'static Device,
    subject: Subject<'_>,
) -> Result<Answer> {
    let driver = runtime::driver()?;
    let answer = match question {
        Question::Reach => reach(driver, toucher, home, subject),
        Question::PoolAccess => pool_access(driver, toucher, home, subject),
        Question::MappingAccess => mapping(driver, toucher, home, subject.address()),
        Question::GraphAccess => graph(driver, toucher, subject),
    };
    Ok(unless_silent(answer)?.unwrap_or(Answer::Silence))
}

/// `None` when the driver refused. A device that is gone, or a process that may not ask, is the caller's to know.
pub fn unless_silent<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.status == Status::DriverError || error.status == Status::NotSupported => Ok(None),
        answer => answer.map(Some),
    }
}

/// The answer for a GPU and what default requests on another are served with.
pub fn answer_of_default(rule: Rule, toucher: &'static Device, home: &'static Device) -> Result<Answer> {
    let driver = runtime::driver()?;
    let recording = capture::recording(toucher);
    let reached = if rule == Rule::Pool {
        let noted = recording.and_then(|graph| {
            let pool = pool::in_use(home)?;
            graph.reached().pool(home.index(), pool.native())
        });
        match noted {
            Some(reached) => reached,
            None => peer::reaches(driver, peer::Memory::InUse, home, toucher)?,
        }
    } else {
        match recording {
            Some(graph) => graph.reached().peer(home.index()),
            None => peer::plain_is_reached_by_gpu(driver, home, toucher)?,
        }
    };
    Ok(given(reached))
}

fn given(yes: bool) -> Answer {
    if yes { Answer::Yes } else { Answer::No }
}

/// Tells a permission that is not given from one that cannot be.
fn refused(driver: &Driver, toucher: &Device, home: &Device) -> Result<Answer> {
    Ok(if peer::supports(driver, home, toucher)? { Answer::No } else { Answer::Never })
}

fn reach(
    driver: &'static Driver,
    toucher: &'static Device,
    home: &'static Device,
    subject: Subject<'_>,
) -> Result<Answer> {
    let is_ours = matches!(subject, Subject::Ours(_));
    if is_ours && let Some(graph) = capture::recording(toucher) {
        return Ok(given(graph.reached().peer(home.index())));
    }
    // Other code may have enabled or disabled peers, and memory that other processes made does not follow them.
    if peer::is_address_reached(driver, toucher, subject.address())? {
        return Ok(Answer::Yes);
    }
    // This only tells one refusal from another, and may find no memory to ask about.
    if !is_ours && peer::reaches(driver, peer::Memory::Plain, home, toucher).unwrap_or(false) {
        return Ok(Answer::NotByPeers);
    }
    refused(driver, toucher, home)
}

fn pool_access(
    driver: &'static Driver,
    toucher: &'static Device,
    home: &'static Device,
    subject: Subject<'_>,
) -> Result<Answer> {
    let (native, _kept) = match subject {
        Subject::Ours(block) => {
            let Some(pool) = pool::of_record(block.pool()) else { return Ok(Answer::Silence) };
            if let Some(graph) = capture::recording(toucher)
                && let Some(reached) = graph.reached().pool(home.index(), pool.native())
            {
                return Ok(given(reached));
            }
            let kept = if pool.is_for_good() { None } else { pool.keep() };
            if kept.is_none() && !pool.is_for_good() {
                // It was destroyed, and gave what it will ever give.
                return Ok(given(peer::is_address_reached(driver, toucher, block.base())?));
            }
            (pool.native(), kept)
        }
        Subject::Foreign { pool: Some(pool), .. } => (pool, None),
        Subject::Foreign { pool: None, .. } => return Ok(Answer::Silence),
    };
    let ordinal = toucher.facts().device;
    let failed = |f: Failure| home.error(driver, f);
    let _relaxed = driver.relax_capture().map_err(failed)?;
    if driver.pool_access(native, ordinal).map_err(failed)? {
        return Ok(Answer::Yes);
    }
    // A pool of the host gives access to any GPU.
    if home.is_cuda() { refused(driver, toucher, home) } else { Ok(Answer::No) }
}

fn mapping(driver: &Driver, toucher: &Device, home: &Device, address: u64) -> Result<Answer> {
    match driver.mapping_access(address, toucher.facts().device).map_err(|f| home.error(driver, f))? {
        (true, true) => Ok(Answer::Yes),
        (true, false) => Ok(Answer::ReadOnly),
        _ => Ok(Answer::No),
    }
}

fn graph(driver: &'static Driver, toucher: &'static Device, subject: Subject<'_>) -> Result<Answer> {
    match subject {
        Subject::Ours(block) => Ok(given(block.is_reached_by_graph(toucher.ordinal()))),
        // The driver denies such memory an address on other GPUs also where kernels there may touch it.
        Subject::Foreign { address, .. } => {
            let reached = peer::is_address_reached(driver, toucher, address)?;
            Ok(if reached { Answer::Yes } else { Answer::Silence })
        }
    }
}
