//! What is told of a stream's capture.

use super::{find, info, paused_on};
use crate::driver::{CaptureMode, Driver};
use crate::error::{Error, Result, error};
use crate::handle::Entered;
use crate::stream::{self, Stream};

/// Whether a stream is captured, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    None,
    Active,
    /// Something broke it: all that is left is to end it.
    Invalidated,
    Paused,
}

pub struct Description {
    pub state: State,
    pub id: u64,
    /// Of the stream that it began on; 0 where that is not known.
    pub origin_id: u64,
    /// `None` where other code began it.
    pub mode: Option<CaptureMode>,
    pub ours: bool,
}

/// What is known of the stream's capture.
pub fn describe(stream: &Entered<Stream>) -> Result<Description> {
    let mut answer = Description { state: State::None, id: 0, origin_id: 0, mode: None, ours: false };
    if !stream.device().is_cuda() {
        return Ok(answer);
    }
    let driver = stream.device().require_cuda("the state of a capture")?;
    let known = if driver.has_graphs()
        && let Some(graph) = paused_on(stream)
    {
        answer.state = State::Paused;
        answer.id = graph.id();
        Some(graph)
    } else {
        let _context = stream.enter_context(driver)?;
        let Some(info) = info(driver, stream)? else { return Ok(answer) };
        answer.state = if info.active { State::Active } else { State::Invalidated };
        answer.id = info.id;
        find(info.id)
    };
    if let Some(graph) = known {
        answer.id = graph.id();
        answer.origin_id = stream::id_of(graph.origin.stream);
        answer.ours = graph.is_ours();
        answer.mode = graph.is_ours().then_some(graph.origin.mode);
    }
    Ok(answer)
}

/// Why a capture cannot be ended, paused or given up on this stream.
#[cold]
pub fn why_not_here(driver: &'static Driver, stream: &Entered<Stream>, what: &str) -> Error {
    let asked = stream.enter_context(driver).and_then(|_context| info(driver, stream));
    match asked {
        Err(error) => error,
        Ok(None) => error!(
            InvalidArgument,
            "no capture goes on on the stream (id {}) of \"{}\" that could be {what}",
            stream.id(),
            stream.device().alias()
        ),
        Ok(Some(info)) => match find(info.id) {
            Some(graph) => error!(
                InvalidArgument,
                "the capture {} began on the stream with id {}, and the stream with id {} only takes part in it; it can be {what} on the first",
                info.id,
                stream::id_of(graph.origin.stream),
                stream.id()
            ),
            None => error!(
                InvalidArgument,
                "the capture {} of the stream (id {}) was begun by other code and can be {what} there; see warp_capture_adopt()",
                info.id,
                stream.id()
            ),
        },
    }
}
