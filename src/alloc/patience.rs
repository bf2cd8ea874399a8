//! How long a request waits that is out of memory while some is on its way back.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

const MOST: Duration = Duration::from_secs(2);
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(2);

/// That of one request; whoever waits for it on the way down shares what is left.
pub struct Patience {
    end: Instant,
    pause: Duration,
}

impl Patience {
    pub fn new() -> Patience {
        Patience { end: Instant::now() + MOST, pause: SHORTEST }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Sleeps, each time longer than before: what takes long is not asked for often.
    pub fn pause(&mut self) {
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
    }
}
