//! Failures ordered by a test: the n-th call of an entry point, everything from some call on, memory that runs out.
use crate::codes::{self, Code};

struct Planned {
    /// `None` for every entry point.
    entry: Option<String>,
    /// Calls that still pass before this one fails.
    passes: u64,
    code: Code,
    /// Fails again and again, or once.
    lasting: bool,
}

/// The failures that are still to come.
#[derive(Default)]
pub struct Faults {
    planned: Vec<Planned>,
    /// Requests of this size or more fail.
    pub size_limit: Option<u64>,
    /// Requests fail that would bring the device memory in use above this.
    pub total_limit: Option<u64>,
}

impl Faults {
    /// Reads `WARPSIM_FAIL`: `entry:nth:code,...`; an entry may be `*`, nth 0 is every call.
    pub fn from_environment() -> Faults {
        let mut faults = Faults::default();
        let text = std::env::var("WARPSIM_FAIL").unwrap_or_default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let mut parts = word.split(':');
            let (entry, nth, code) = (parts.next(), parts.next(), parts.next());
            let parsed = (|| Some((entry?, nth?.parse().ok()?, codes::parse(code?)?)))();
            match parsed {
                Some((entry, nth, code)) => faults.plan(entry, nth, code),
                None => eprintln!("warpsim: WARPSIM_FAIL: '{word}' is not entry:nth:code"),
            }
        }
        faults
    }

    /// The `nth` next call (1 is the next one, 0 every call from now on) of `entry` (`*`: any) answers `code`.
    pub fn plan(&mut self, entry: &str, nth: u64, code: Code) {
        let entry = (entry != "*").then(|| entry.to_owned());
        self.planned.push(Planned { entry, passes: nth.saturating_sub(1), code, lasting: nth == 0 });
    }

    /// After `calls` more calls of anything, everything answers `code`.
    pub fn plan_end(&mut self, calls: u64, code: Code) {
        self.planned.push(Planned { entry: None, passes: calls, code, lasting: true });
    }

    pub fn clear(&mut self) {
        *self = Faults::default();
    }

    /// The code that this call has to answer, if one was ordered.
    pub fn due(&mut self, entry: &str) -> Option<Code> {
        if self.planned.is_empty() {
            return None;
        }
        let mut due = None;
        self.planned.retain_mut(|fault| {
            if fault.entry.as_deref().is_some_and(|name| name != entry) {
                return true;
            }
            if fault.passes > 0 {
                fault.passes -= 1;
                return true;
            }
            if due.is_some() {
                return true;
            }
            due = Some(fault.code);
            fault.lasting
        });
        due
    }
}
