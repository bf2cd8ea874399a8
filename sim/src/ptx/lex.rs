//! From text to tokens.
use super::{Problem, malformed};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind<'a> {
    /// A directive, an opcode with its modifiers, or a name.
    Word(&'a str),
    /// What begins with a digit.
    Number(&'a str),
    Text(&'a str),
    Mark(char),
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub kind: Kind<'a>,
    pub line: u32,
}

fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn in_word(byte: u8) -> bool {
    begins_word(byte) || byte.is_ascii_digit()
}

/// Splits a text into tokens; the last one is [`Kind::End`].
///
/// # Errors
/// Malformed: a character that no token has, a comment or text without an end.
pub fn tokens(source: &str) -> Result<Vec<Token<'_>>, Problem> {
    let bytes = source.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut found = Vec::new();
    while at < bytes.len() {
        let rest = &bytes[at..];
        let start = at;
        match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b' ' | b'\t' | b'\r' => at += 1,
            b'/' if rest.starts_with(b"//") => {
                at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            }
            b'/' if rest.starts_with(b"/*") => {
                let Some(length) = rest.windows(2).skip(2).position(|pair| pair == b"*/") else {
                    return malformed(line, "a comment without an end");
                };
                line += rest[..length + 4].iter().filter(|byte| **byte == b'\n').count() as u32;
                at += length + 4;
            }
            b'"' => {
                let Some(length) = rest[1..].iter().position(|byte| matches!(byte, b'"' | b'\n')) else {
                    return malformed(line, "a text without an end");
                };
                at += length + 2;
                found.push(Token { kind: Kind::Text(&source[start + 1..at - 1]), line });
            }
            byte if byte.is_ascii_digit() => {
                while at < bytes.len() && in_word(bytes[at]) {
                    at += 1;
                }
                found.push(Token { kind: Kind::Number(&source[start..at]), line });
            }
            byte if begins_word(byte) => {
                while at < bytes.len() {
                    // Modifiers such as `.shared::cta` are one word.
                    let inner = bytes[at..].starts_with(b"::")
                        && bytes.get(at + 2).is_some_and(|byte| in_word(*byte));
                    match inner {
                        true => at += 2,
                        false if in_word(bytes[at]) => at += 1,
                        false => break,
                    }
                }
                found.push(Token { kind: Kind::Word(&source[start..at]), line });
            }
            byte if b"{}()[]<>,;:+-!@=|*~".contains(&byte) => {
                at += 1;
                found.push(Token { kind: Kind::Mark(char::from(byte)), line });
            }
            byte => return malformed(line, format!("a character {:#x}", byte)),
        }
    }
    found.push(Token { kind: Kind::End, line });
    Ok(found)
}

/// The value of a number token: bits as wide as they come, and whether it was written as a float of 32 or 64 bits.
pub fn number(text: &str) -> Option<Number> {
    let lower = text.to_ascii_lowercase();
    let radix = |digits: &str, radix| u64::from_str_radix(digits.trim_end_matches('u'), radix).ok();
    if let Some(digits) = lower.strip_prefix("0f") {
        return (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok().map(Number::F32))?;
    }
    if let Some(digits) = lower.strip_prefix("0d") {
        return (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok().map(Number::F64))?;
    }
    if let Some(digits) = lower.strip_prefix("0x") {
        return radix(digits, 16).map(Number::Integer);
    }
    if let Some(digits) = lower.strip_prefix("0b") {
        return radix(digits, 2).map(Number::Integer);
    }
    if lower.contains('.') || (lower.contains('e') && !lower.starts_with("0x")) {
        return lower.parse::<f64>().ok().map(|value| Number::F64(value.to_bits()));
    }
    if lower.len() > 1 && lower.starts_with('0') {
        return radix(&lower[1..], 8).map(Number::Integer);
    }
    radix(&lower, 10).map(Number::Integer)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(u64),
    F32(u32),
    F64(u64),
}
