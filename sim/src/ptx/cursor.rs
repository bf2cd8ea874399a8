//! Tokens, one after another.
use super::lex::{Kind, Number, Token, number};
use super::{Problem, malformed};

/// Tokens and a place in them.
pub struct Cursor<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(tokens: Vec<Token<'a>>) -> Cursor<'a> {
        Cursor { tokens, at: 0 }
    }

    pub fn peek(&self) -> Kind<'a> {
        self.tokens[self.at.min(self.tokens.len() - 1)].kind
    }

    pub fn second(&self) -> Kind<'a> {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)].kind
    }

    pub fn line(&self) -> u32 {
        self.tokens[self.at.min(self.tokens.len() - 1)].line
    }

    pub fn next(&mut self) -> Kind<'a> {
        let kind = self.peek();
        self.at += 1;
        kind
    }

    /// Takes a mark if it is the next token.
    pub fn take(&mut self, mark: char) -> bool {
        let is = self.peek() == Kind::Mark(mark);
        self.at += usize::from(is);
        is
    }

    pub fn expect(&mut self, mark: char) -> Result<(), Problem> {
        if self.take(mark) {
            Ok(())
        } else {
            malformed(self.line(), format!("no '{mark}' where there has to be one"))
        }
    }

    pub fn take_word(&mut self, word: &str) -> bool {
        let is = self.peek() == Kind::Word(word);
        self.at += usize::from(is);
        is
    }

    /// A name that a program gives to something.
    pub fn name(&mut self) -> Result<&'a str, Problem> {
        match self.next() {
            Kind::Word(word) if !word.starts_with('.') => Ok(word),
            _ => malformed(self.line(), "no name where there has to be one"),
        }
    }

    pub fn directive(&mut self) -> Result<&'a str, Problem> {
        match self.next() {
            Kind::Word(word) if word.starts_with('.') => Ok(word),
            _ => malformed(self.line(), "no directive where there has to be one"),
        }
    }

    /// A whole number without a sign.
    pub fn whole(&mut self) -> Result<u64, Problem> {
        match self.next() {
            Kind::Number(text) => match number(text) {
                Some(Number::Integer(value)) => Ok(value),
                _ => malformed(self.line(), format!("'{text}' is no whole number")),
            },
            _ => malformed(self.line(), "no number where there has to be one"),
        }
    }

    /// A number with or without a sign.
    pub fn signed(&mut self) -> Result<Number, Problem> {
        let negative = self.take('-');
        let Kind::Number(text) = self.next() else {
            return malformed(self.line(), "no number where there has to be one");
        };
        match (number(text), negative) {
            (Some(value), false) => Ok(value),
            (Some(Number::Integer(value)), true) => Ok(Number::Integer(value.wrapping_neg())),
            (Some(Number::F32(bits)), true) => Ok(Number::F32(bits ^ 1 << 31)),
            (Some(Number::F64(bits)), true) => Ok(Number::F64(bits ^ 1 << 63)),
            (None, _) => malformed(self.line(), format!("'{text}' is no number")),
        }
    }

    /// Goes on behind the tokens of the line that the last one was on.
    pub fn skip_line(&mut self) {
        let line = self.tokens[self.at.saturating_sub(1).min(self.tokens.len() - 1)].line;
        while self.line() == line && self.peek() != Kind::End {
            self.at += 1;
        }
    }

    pub fn skip_braces(&mut self) -> Result<(), Problem> {
        while !self.take('{') {
            if self.next() == Kind::End {
                return malformed(self.line(), "no '{' where there has to be one");
            }
        }
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Kind::Mark('{') => depth += 1,
                Kind::Mark('}') => depth -= 1,
                Kind::End => return malformed(self.line(), "a '{' without its '}'"),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn pragma(&mut self) -> Result<(), Problem> {
        match self.next() {
            Kind::Text(_) => self.expect(';'),
            _ => malformed(self.line(), "no text behind .pragma"),
        }
    }
}
