//! Declarations of variables, of a module as well as of a kernel.
use super::cursor::Cursor;
use super::lex::{Kind, Number};
use super::operand::Type;
use super::{Problem, malformed, unknown};

/// The most bytes of a variable, and of all that a kernel has of its own, here.
pub const LARGEST: u64 = 64 << 20;
/// The most bytes that a thread has of its own.
pub const LOCAL: u64 = 512 << 10;

/// A variable, as it is declared.
pub struct Declared<'a> {
    pub name: &'a str,
    pub kind: Type,
    pub align: u64,
    pub size: u64,
    /// It stands for all shared memory that a launch adds.
    pub open: bool,
}

/// `.align N`, a vector, a type, a name, dimensions.
pub fn declared<'a>(cursor: &mut Cursor<'a>, parameter: bool) -> Result<Declared<'a>, Problem> {
    let (mut align, mut lanes) = (0, 1);
    let kind = loop {
        let line = cursor.line();
        match cursor.directive()? {
            ".align" => align = cursor.whole()?,
            ".v2" => lanes = 2,
            ".v4" => lanes = 4,
            ".texref" | ".samplerref" | ".surfref" => return unknown(line, "a texture, sampler or surface"),
            ".b128" => return unknown(line, ".b128"),
            word => match Type::parse(word) {
                Some(kind) if !kind.is_predicate() => break kind,
                _ => return malformed(line, format!("no type is called '{word}'")),
            },
        }
    };
    // What a pointer parameter points to is of no account.
    if parameter && cursor.take_word(".ptr") {
        while matches!(cursor.peek(), Kind::Word(".global" | ".shared" | ".local" | ".const")) {
            cursor.next();
        }
        if cursor.take_word(".align") {
            cursor.whole()?;
        }
    }
    let line = cursor.line();
    let name = cursor.name()?;
    let mut count: Option<u64> = Some(lanes);
    let mut open = false;
    while cursor.take('[') {
        if cursor.take(']') {
            open = true;
            count = Some(0);
            continue;
        }
        let length = cursor.whole()?;
        cursor.expect(']')?;
        count = count.and_then(|count| count.checked_mul(length));
    }
    let natural = u64::from(kind.bytes) * lanes;
    let align = if align == 0 { natural } else { align };
    if !align.is_power_of_two() || align > 1 << 20 {
        return malformed(line, format!("an alignment of {align}"));
    }
    let size = count.and_then(|count| count.checked_mul(u64::from(kind.bytes)));
    match size.filter(|size| *size <= LARGEST) {
        Some(size) => Ok(Declared { name, kind, align, size, open }),
        None => malformed(line, format!("'{name}' is too large")),
    }
}

/// Values behind an `=`, in order of their elements.
pub fn contents(cursor: &mut Cursor, kind: Type, size: u64) -> Result<Vec<u8>, Problem> {
    let (mut bytes, mut depth) = (Vec::new(), 0_u32);
    loop {
        let line = cursor.line();
        if cursor.take('{') {
            depth += 1;
            continue;
        }
        while depth > 0 && cursor.take('}') {
            depth -= 1;
        }
        if depth > 0 && cursor.take(',') {
            continue;
        }
        if cursor.peek() == Kind::Mark(';') || (depth == 0 && cursor.peek() == Kind::Mark(',')) {
            break;
        }
        if matches!(cursor.peek(), Kind::Word(_)) {
            return unknown(line, "an address as the first value of a variable");
        }
        let bits = match (cursor.signed()?, kind.is_float(), kind.bytes) {
            (Number::Integer(value), false, _) => value,
            (Number::F32(bits), true, 4) => u64::from(bits),
            (Number::F64(bits), true, 4) => u64::from((f64::from_bits(bits) as f32).to_bits()),
            (Number::F64(bits), true, 8) => bits,
            (Number::Integer(value), true, 4) => u64::from((value as i64 as f32).to_bits()),
            (Number::Integer(value), true, 8) => (value as i64 as f64).to_bits(),
            _ => return malformed(line, "a first value of another type"),
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..usize::from(kind.bytes)]);
        if bytes.len() as u64 > size {
            return malformed(line, "more first values than the variable has elements");
        }
        if depth == 0 {
            break;
        }
    }
    if depth > 0 { malformed(cursor.line(), "a '{' without its '}'") } else { Ok(bytes) }
}
