//! A log as a logging adaptor writes it: read line by line, and refused where it is none. `docs/replay.md` has the format.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

const FIRST: &str = "warpmem-allocation-log 1";
const COLUMNS: &str = "thread,time,action,pointer,size,alignment,device,stream,tag,status";

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Allocate,
    /// An allocation that came to nothing.
    Fail,
    Deallocate,
}

impl Action {
    pub fn name(self) -> &'static str {
        match self {
            Action::Allocate => "allocate",
            Action::Fail => "allocate-failure",
            Action::Deallocate => "deallocate",
        }
    }
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Where it stands in the file, from 1 on.
    pub line: usize,
    pub action: Action,
    pub size: u64,
    pub alignment: u64,
    /// The number of the GPU, -1 for the CPU.
    pub device: i32,
    /// The id of the stream, 0 for none.
    pub stream: u64,
    /// As bytes, since a tag need not be UTF-8.
    pub tag: Vec<u8>,
    /// Which of the allocations that succeeded it makes or takes back, from 0 on; of no meaning for one that failed.
    pub block: usize,
}

#[derive(Debug, Default)]
pub struct Log {
    pub calls: Vec<Call>,
    /// Allocations that succeeded.
    pub blocks: usize,
}

impl Log {
    pub fn read(path: &Path) -> Result<Log, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Log::parse(&bytes).map_err(|(line, what)| format!("{}:{line}: {what}", path.display()))
    }

    /// An error has the number of its line.
    pub fn parse(bytes: &[u8]) -> Result<Log, (usize, String)> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            (line, "expected UTF-8; bytes of tags that are none are written as \\xNN".to_string())
        })?;
        let mut lines = text.split_inclusive('\n').enumerate();
        for expected in [FIRST, COLUMNS] {
            let (at, line) = lines.next().unwrap_or((0, ""));
            if line.strip_suffix('\n') != Some(expected) {
                return Err((at + 1, format!("expected \"{expected}\", found {}", shown(line.trim_end()))));
            }
        }
        let mut reader = Reader::default();
        for (at, line) in lines {
            reader.take(at + 1, line).map_err(|what| (at + 1, what))?;
        }
        Ok(reader.log)
    }
}

/// A block that is out at a place of the file.
struct Out {
    block: usize,
    line: usize,
    size: u64,
    tag: Vec<u8>,
}

#[derive(Default)]
struct Reader {
    log: Log,
    /// The blocks at each address, the oldest first. They may be several: a thread that gives a block back writes that only when it
    /// is over, and by then another thread may have been given the address, and even have given it back.
    out: HashMap<u64, VecDeque<Out>>,
    time: u128,
}

impl Reader {
    fn take(&mut self, number: usize, line: &str) -> Result<(), String> {
        let Some(line) = line.strip_suffix('\n') else {
            return Err(format!(
                "expected the end of the line, found the end of the file after {}",
                shown(line)
            ));
        };
        let mut fields = Fields { rest: line };
        let thread: u64 = fields.number("a thread's number from 1 on")?;
        if thread == 0 {
            return Err("expected a thread's number from 1 on, found 0".into());
        }
        let time: u128 = fields.number("nanoseconds")?;
        let action = match fields.next("an action")? {
            "allocate" => Action::Allocate,
            "allocate-failure" => Action::Fail,
            "deallocate" => Action::Deallocate,
            other => {
                return Err(format!(
                    "expected \"allocate\", \"allocate-failure\" or \"deallocate\", found {}",
                    shown(other)
                ));
            }
        };
        let pointer = fields.pointer()?;
        let size: u64 = fields.number("bytes")?;
        let alignment: u64 = fields.number("an alignment")?;
        let device: i32 = fields.number("a GPU's number, or -1")?;
        let stream: u64 = fields.number("a stream's id")?;
        let tag = fields.tag()?;
        let status: i32 = fields.last("a status")?;

        if time < self.time {
            return Err(format!("expected a time of at least {}, found {time}", self.time));
        }
        self.time = time;
        if size == 0 {
            return Err("expected bytes from 1 on, found 0".into());
        }
        if !alignment.is_power_of_two() {
            return Err(format!("expected an alignment that is a power of two, found {alignment}"));
        }
        if device < -1 {
            return Err(format!("expected a GPU's number, or -1, found {device}"));
        }
        let is_null_or_failed = (pointer == 0, status != 0);
        let block = match (action, is_null_or_failed) {
            (Action::Allocate, (false, false)) => self.allocate(number, pointer, size, &tag),
            (Action::Fail, (true, true)) => 0,
            // One that was refused is gone as well.
            (Action::Deallocate, (false, _)) => self.deallocate(pointer, size, &tag)?,
            (Action::Allocate, _) => return Err("expected an address and status 0 of an allocation".into()),
            (Action::Fail, _) => return Err("expected 0x0 and a status other than 0 of a failure".into()),
            (Action::Deallocate, _) => return Err("expected the address of a block, found 0x0".into()),
        };
        self.log.calls.push(Call { line: number, action, size, alignment, device, stream, tag, block });
        Ok(())
    }

    fn allocate(&mut self, line: usize, pointer: u64, size: u64, tag: &[u8]) -> usize {
        let block = self.log.blocks;
        self.log.blocks += 1;
        self.out.entry(pointer).or_default().push_back(Out { block, line, size, tag: tag.to_vec() });
        block
    }

    fn deallocate(&mut self, pointer: u64, size: u64, tag: &[u8]) -> Result<usize, String> {
        let Some(of_address) = self.out.get_mut(&pointer) else {
            return Err(format!(
                "expected a block that is out, found {pointer:#x}, which no line before allocates"
            ));
        };
        let Some(oldest) = of_address.front() else {
            return Err(format!(
                "expected a block that is out, found {pointer:#x}, which was given back before"
            ));
        };
        match of_address.iter().position(|out| out.size == size && out.tag == tag) {
            Some(at) => Ok(of_address.remove(at).expect("it was found there").block),
            None if oldest.size == size => Err(format!(
                "expected the tag that line {} allocates {pointer:#x} with, found another",
                oldest.line
            )),
            None => Err(format!(
                "expected {} bytes, as line {} allocates at {pointer:#x}, found {size}",
                oldest.size, oldest.line
            )),
        }
    }
}

/// What is left of a line.
struct Fields<'a> {
    rest: &'a str,
}

impl<'a> Fields<'a> {
    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        let Some((field, rest)) = self.rest.split_once(',') else {
            return Err(format!("expected {what} and a comma, found {}", shown(self.rest)));
        };
        self.rest = rest;
        Ok(field)
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, String> {
        let field = self.next(what)?;
        number(field, what)
    }

    fn last<T: std::str::FromStr>(self, what: &str) -> Result<T, String> {
        number(self.rest, what)
    }

    fn pointer(&mut self) -> Result<u64, String> {
        let field = self.next("an address")?;
        let digits = field.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| format!("expected an address such as 0x7f00, found {}", shown(field)))
    }

    /// A text in quotes, with the comma after it.
    fn tag(&mut self) -> Result<Vec<u8>, String> {
        const WHAT: &str = "a tag in quotes";
        let Some(text) = self.rest.strip_prefix('"') else {
            return Err(format!("expected {WHAT}, found {}", shown(self.rest)));
        };
        let mut tag = Vec::new();
        let mut letters = text.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    let Some(rest) = text[at + 1..].strip_prefix(',') else {
                        return Err(format!(
                            "expected a comma after the tag, found {}",
                            shown(&text[at + 1..])
                        ));
                    };
                    self.rest = rest;
                    return Ok(tag);
                }
                '\\' => match letters.next().map(|(_, escaped)| escaped) {
                    Some('"') => tag.push(b'"'),
                    Some('\\') => tag.push(b'\\'),
                    Some('n') => tag.push(b'\n'),
                    Some('x') => {
                        let digits: String = letters.by_ref().take(2).map(|(_, digit)| digit).collect();
                        let byte = u8::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 2);
                        tag.push(byte.ok_or_else(|| {
                            format!("expected two hexadecimal digits after \\x, found {}", shown(&digits))
                        })?);
                    }
                    _ => return Err(r#"expected \", \\, \n or \xNN after a backslash in the tag"#.into()),
                },
                letter => tag.extend(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Err(format!("expected {WHAT}, found no closing quote"))
    }
}

fn number<T: std::str::FromStr>(field: &str, what: &str) -> Result<T, String> {
    // Rust takes a plus sign, which nobody writes.
    let plain = field.strip_prefix('+').is_none();
    field.parse().ok().filter(|_| plain).ok_or_else(|| format!("expected {what}, found {}", shown(field)))
}

/// A part of a file as it is quoted, not longer than a reader wants.
fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.is_empty() {
        return "nothing".into();
    }
    let cut: String = text.chars().take(LONGEST).collect();
    let more = if cut.len() < text.len() { " …" } else { "" };
    format!("{cut:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(lines: &str) -> String {
        format!("{FIRST}\n{COLUMNS}\n{lines}")
    }

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let log = Log::parse(
            with(concat!(
                "1,10,allocate,0x1000,100,256,0,7,\"a \\\"b\\\",\\\\\\n\\xff\u{fc}\",0\n",
                "2,11,allocate-failure,0x0,5,64,-1,0,\"\",101\n",
                "2,11,allocate,0x2000,200,256,0,7,\"\",0\n",
                "1,12,deallocate,0x1000,100,256,0,0,\"a \\\"b\\\",\\\\\\n\\xff\u{fc}\",103\n",
            ))
            .as_bytes(),
        )
        .unwrap();
        let told: Vec<_> =
            log.calls.iter().map(|call| (call.line, call.action, call.size, call.block)).collect();
        assert_eq!(
            told,
            [
                (3, Action::Allocate, 100, 0),
                (4, Action::Fail, 5, 0),
                (5, Action::Allocate, 200, 1),
                (6, Action::Deallocate, 100, 0)
            ]
        );
        assert_eq!(log.calls[0].tag, b"a \"b\",\\\n\xff\xc3\xbc");
        assert_eq!((log.calls[0].device, log.calls[0].stream, log.calls[1].device), (0, 7, -1));
    }

    #[test]
    fn an_address_may_come_again_before_its_end_was_written() {
        let twice = "1,1,allocate,0x1000,100,256,0,7,\"\",0\n2,2,allocate,0x1000,300,256,0,7,\"\",0\n";
        let first = "1,3,deallocate,0x1000,100,256,0,7,\"\",0\n";
        let second = "2,3,deallocate,0x1000,300,256,0,7,\"\",0\n";
        for (ends, blocks) in [([first, second], [0, 1, 0, 1]), ([second, first], [0, 1, 1, 0])] {
            let log = Log::parse(with(&[twice, ends[0], ends[1]].concat()).as_bytes()).unwrap();
            assert_eq!(log.calls.iter().map(|call| call.block).collect::<Vec<_>>(), blocks);
        }
    }

    #[test]
    fn what_is_no_log_is_refused_with_its_line() {
        let good = "1,5,allocate,0x1000,100,256,0,7,\"t\",0\n";
        for (text, line, part) in [
            (String::new(), 1, "expected \"warpmem-allocation-log 1\", found nothing"),
            ("warpmem-allocation-log 2\n".into(), 1, "found \"warpmem-allocation-log 2\""),
            (FIRST.into(), 1, "expected"),
            (format!("{FIRST}\nthread\n"), 2, "expected \"thread,time"),
            (with("x,5,allocate\n"), 3, "expected a thread's number"),
            (with("0,5,allocate,0x1,1,1,0,0,\"\",0\n"), 3, "found 0"),
            (with("1,-5,allocate,0x1,1,1,0,0,\"\",0\n"), 3, "nanoseconds, found \"-5\""),
            (with(&format!("{good}1,4,deallocate,0x1000,100,256,0,7,\"t\",0\n")), 4, "at least 5, found 4"),
            (with("1,5,free,0x1,1,1,0,0,\"\",0\n"), 3, "found \"free\""),
            (with("1,5,allocate,4096,1,1,0,0,\"\",0\n"), 3, "an address such as"),
            (with("1,5,allocate,0x0,1,1,0,0,\"\",0\n"), 3, "an address and status 0"),
            (with("1,5,allocate,0x1,1,1,0,0,\"\",101\n"), 3, "an address and status 0"),
            (with("1,5,allocate-failure,0x0,1,1,0,0,\"\",0\n"), 3, "a status other than 0"),
            (with("1,5,deallocate,0x0,1,1,0,0,\"\",0\n"), 3, "the address of a block"),
            (with("1,5,allocate,0x1,0,1,0,0,\"\",0\n"), 3, "bytes from 1 on"),
            (with("1,5,allocate,0x1,99999999999999999999,1,0,0,\"\",0\n"), 3, "expected bytes"),
            (with("1,5,allocate,0x1,1,3,0,0,\"\",0\n"), 3, "a power of two, found 3"),
            (with("1,5,allocate,0x1,1,1,-2,0,\"\",0\n"), 3, "or -1, found -2"),
            (with("1,5,allocate,0x1,1,1,0,s,\"\",0\n"), 3, "a stream's id, found \"s\""),
            (with("1,5,allocate,0x1,1,1,0,0,t,0\n"), 3, "a tag in quotes, found \"t,0\""),
            (with("1,5,allocate,0x1,1,1,0,0,\"t,0\n"), 3, "no closing quote"),
            (with("1,5,allocate,0x1,1,1,0,0,\"\\q\",0\n"), 3, "after a backslash"),
            (with("1,5,allocate,0x1,1,1,0,0,\"\\xg0\",0\n"), 3, "two hexadecimal digits"),
            (with("1,5,allocate,0x1,1,1,0,0,\"t\"0\n"), 3, "a comma after the tag"),
            (with("1,5,allocate,0x1,1,1,0,0,\"t\",\n"), 3, "a status, found nothing"),
            (with("1,5,allocate,0x1,1,1,0,0,\"t\",0,1\n"), 3, "a status, found \"0,1\""),
            (with("1,5,allocate,0x1,1,1,0,0,\"t\",0"), 3, "the end of the file"),
            (with("1,5,deallocate,0x1000,100,256,0,7,\"t\",0\n"), 3, "no line before allocates"),
            (
                with(&format!("{good}{0}{0}", good.replace("allocate", "deallocate"))),
                5,
                "which was given back before",
            ),
            (
                with(&format!("{good}{}", "1,5,deallocate,0x1000,99,256,0,7,\"t\",0\n")),
                4,
                "expected 100 bytes, as line 3 allocates at 0x1000, found 99",
            ),
            (
                with(&format!("{good}{}", "1,5,deallocate,0x1000,100,256,0,7,\"u\",0\n")),
                4,
                "expected the tag that line 3 allocates 0x1000 with",
            ),
        ] {
            let (at, what) = Log::parse(text.as_bytes()).expect_err(&text);
            assert_eq!(at, line, "{what}: {text}");
            assert!(what.contains(part), "{part:?} is not in {what:?}");
        }
        let (line, what) = Log::parse(&[with(good).as_bytes(), b"\xff\n"].concat()).unwrap_err();
        assert_eq!((line, what.contains("UTF-8")), (4, true));
    }
}
