//! Types and state spaces.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Bits,
    Unsigned,
    Signed,
    Float,
    Predicate,
}

/// A fundamental type: what it is and how many bytes it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    pub class: Class,
    pub bytes: u8,
}

impl Type {
    pub const fn new(class: Class, bytes: u8) -> Type {
        Type { class, bytes }
    }

    pub fn parse(word: &str) -> Option<Type> {
        let word = word.strip_prefix('.').unwrap_or(word);
        if word == "pred" {
            return Some(Type::new(Class::Predicate, 1));
        }
        let class = match word.as_bytes().first()? {
            b'b' => Class::Bits,
            b'u' => Class::Unsigned,
            b's' => Class::Signed,
            b'f' => Class::Float,
            _ => return None,
        };
        let bytes = match &word[1..] {
            "8" => 1,
            "16" => 2,
            "32" => 4,
            "64" => 8,
            _ => return None,
        };
        let float_of_a_byte = class == Class::Float && bytes == 1;
        (!float_of_a_byte).then_some(Type { class, bytes })
    }

    pub fn bits(self) -> u32 {
        u32::from(self.bytes) * 8
    }

    /// The bits that a value of this type has.
    pub fn mask(self) -> u64 {
        if self.class == Class::Predicate { 1 } else { u64::MAX >> (64 - self.bits()) }
    }

    pub fn is_integer(self) -> bool {
        matches!(self.class, Class::Bits | Class::Unsigned | Class::Signed)
    }

    pub fn is_float(self) -> bool {
        self.class == Class::Float
    }

    pub fn is_predicate(self) -> bool {
        self.class == Class::Predicate
    }

    /// Whether a register of this type serves an instruction of that one: bits serve anything of their size, and integers
    /// and floats only their like.
    pub fn serves(self, wanted: Type) -> bool {
        if self.is_predicate() || wanted.is_predicate() {
            return self.class == wanted.class;
        }
        self.bytes == wanted.bytes && self.is_like(wanted)
    }

    /// As [`Type::serves`], where a wider register will do, as for loads, stores and conversions.
    pub fn holds(self, wanted: Type) -> bool {
        if self.is_predicate() || wanted.is_predicate() {
            return false;
        }
        // A float has its own size, and a small one is kept in bits.
        let wide_float = wanted.is_float() && self.bytes != wanted.bytes;
        self.bytes >= wanted.bytes && self.is_like(wanted) && !wide_float
    }

    fn is_like(self, wanted: Type) -> bool {
        match (self.class, wanted.class) {
            (Class::Bits, _) | (_, Class::Bits) => true,
            (Class::Float, _) | (_, Class::Float) => self.class == wanted.class,
            _ => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Generic,
    Global,
    Param,
    Shared,
    Local,
}

impl Space {
    pub fn parse(word: &str) -> Option<Space> {
        Some(match word {
            // A constant variable is a global one that nothing writes.
            "global" | "const" => Space::Global,
            "param" | "param::entry" => Space::Param,
            "shared" | "shared::cta" => Space::Shared,
            "local" => Space::Local,
            _ => return None,
        })
    }

    /// Where the space lies among generic addresses.
    pub fn window(self) -> u64 {
        match self {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Generic | Space::Global | Space::Param => 0,
        }
    }
}

/// No process has addresses here.
pub const SHARED_WINDOW: u64 = 1 << 56;
pub const LOCAL_WINDOW: u64 = 2 << 56;
pub const WINDOW: u64 = 1 << 32;

/// How a result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Round {
    pub fn parse(word: &str) -> Option<Round> {
        Some(match word {
            "rn" | "rni" => Round::Nearest,
            "rz" | "rzi" => Round::Zero,
            "rm" | "rmi" => Round::Down,
            "rp" | "rpi" => Round::Up,
            _ => return None,
        })
    }
}
