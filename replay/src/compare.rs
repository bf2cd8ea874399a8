//! Whether two logs are of the same allocations: up to addresses, times, threads, devices and streams.

use crate::log::{Action, Call, Log};
use std::fmt::Write;

/// `None` when they are the same, else where they first differ. Requests that failed left nothing behind and are not compared.
pub fn difference((name_a, a): (&str, &Log), (name_b, b): (&str, &Log)) -> Option<String> {
    let served = |log: &Log| log.calls.iter().filter(|call| call.action != Action::Fail).cloned().collect();
    let (a, b): (Vec<Call>, Vec<Call>) = (served(a), served(b));
    let differ = a.iter().zip(&b).position(|(a, b)| !is_same(a, b));
    let at = differ.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())))?;
    let mut text = format!("they differ from call {} on\n", at + 1);
    for (name, call) in [(name_a, a.get(at)), (name_b, b.get(at))] {
        // Writing to a text does not fail.
        let _ = match call {
            Some(call) => writeln!(text, "{name}:{}: {}", call.line, shown(call)),
            None => writeln!(text, "{name}: ends"),
        };
    }
    Some(text)
}

fn is_same(a: &Call, b: &Call) -> bool {
    (a.action, a.size, a.block, &a.tag) == (b.action, b.size, b.block, &b.tag)
}

fn shown(call: &Call) -> String {
    let tag = String::from_utf8_lossy(&call.tag);
    format!("{} of {} bytes, block {}, tag {tag:?}", call.action.name(), call.size, call.block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &str) -> Log {
        let head =
            "warpmem-allocation-log 1\nthread,time,action,pointer,size,alignment,device,stream,tag,status\n";
        Log::parse(format!("{head}{lines}").as_bytes()).unwrap()
    }

    const LOG: &str = "1,1,allocate,0x1000,100,256,0,7,\"t\",0\n\
                       1,2,allocate,0x2000,100,256,0,7,\"t\",0\n\
                       1,3,deallocate,0x1000,100,256,0,7,\"t\",0\n";

    #[test]
    fn addresses_times_threads_streams_and_failures_do_not_matter() {
        let other = "4,90,allocate,0x1,100,64,-1,0,\"t\",0\n\
                     5,91,allocate-failure,0x0,100,64,-1,0,\"t\",101\n\
                     5,92,allocate,0x2,100,64,-1,0,\"t\",0\n\
                     4,93,deallocate,0x1,100,64,-1,0,\"t\",0\n";
        assert_eq!(difference(("a", &log(LOG)), ("b", &log(other))), None);
    }

    #[test]
    fn the_first_difference_is_told() {
        for (from, to, call, part) in [
            ("allocate,0x2000,100", "allocate,0x2000,101", 2, "b:4: allocate of 101 bytes, block 1"),
            ("deallocate,0x1000", "deallocate,0x2000", 3, "b:5: deallocate of 100 bytes, block 1"),
            ("2,allocate,0x2000,100,256,0,7,\"t\"", "2,allocate,0x2000,100,256,0,7,\"u\"", 2, "tag \"u\""),
            ("1,3,deallocate,0x1000,100,256,0,7,\"t\",0\n", "", 3, "b: ends"),
            ("1,3,deallocate,0x1000", "1,3,allocate,0x3000", 3, "b:5: allocate of 100 bytes, block 2"),
        ] {
            assert!(LOG.contains(from), "{from}");
            let told = difference(("a", &log(LOG)), ("b", &log(&LOG.replace(from, to)))).expect(to);
            assert!(told.starts_with(&format!("they differ from call {call} on\na:")), "{told}");
            assert!(told.contains(part), "{told}");
        }
    }
}
