//! Reading a C header of the kind that this project writes: which names it declares, with what text and what comment.
//!
//! It is no C parser. It knows `#define NAME value`, `typedef`, `struct` and function prototypes, in headers without
//! conditional parts other than the include guard and `extern "C"`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Constant,
    /// A typedef of a scalar or of a function pointer.
    Typedef,
    Struct,
    Function,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub kind: Kind,
    pub name: String,
    /// The `/** ... */` that stands before it, or nothing.
    pub doc: String,
    /// From its first token to its semicolon; of a constant, the line.
    pub text: String,
}

impl Declaration {
    /// The value of a constant.
    pub fn value(&self) -> Option<&str> {
        if self.kind != Kind::Constant {
            return None;
        }
        self.text.strip_prefix("#define ")?.trim_start().strip_prefix(self.name.as_str()).map(str::trim)
    }

    /// The names of a struct's fields, in order; none for an opaque one.
    pub fn fields(&self) -> Vec<String> {
        let text = without_comments(&self.text);
        let (Some(open), Some(close)) = (text.find('{'), text.rfind('}')) else { return Vec::new() };
        let mut fields = Vec::new();
        let mut depth = 0i32;
        let mut field = String::new();
        for letter in text[open + 1..close].chars() {
            match letter {
                '(' | '{' => depth += 1,
                ')' | '}' => depth -= 1,
                _ => {}
            }
            if letter == ';' && depth == 0 {
                fields.extend(declared_name(&field));
                field.clear();
            } else {
                field.push(letter);
            }
        }
        fields
    }
}

/// The declarations of a header, in its order.
pub fn read(header: &str) -> Vec<Declaration> {
    let mut found = Vec::new();
    let mut doc = String::new();
    let mut rest = header.trim_start();
    while !rest.is_empty() {
        let end;
        if rest.starts_with("/*") {
            end = rest.find("*/").map_or(rest.len(), |at| at + 2);
            doc = if rest.starts_with("/**") { rest[..end].to_string() } else { String::new() };
        } else if rest.starts_with("//") {
            end = rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with('#') {
            end = logical_line(rest);
            if let Some(name) = defined_name(&rest[..end]) {
                found.push(Declaration {
                    kind: Kind::Constant,
                    name,
                    doc: std::mem::take(&mut doc),
                    text: rest[..end].trim_end().to_string(),
                });
            }
        } else if let Some(after) = rest.strip_prefix("extern \"C\" {") {
            end = rest.len() - after.len();
        } else if rest.starts_with('}') {
            end = 1;
        } else {
            end = statement(rest);
            let text = rest[..end].trim().to_string();
            if let Some((kind, name)) = kind_and_name(&text) {
                found.push(Declaration { kind, name, doc: std::mem::take(&mut doc), text });
            }
        }
        rest = rest[end..].trim_start();
    }
    found
}

/// The text with every comment replaced by a space.
pub fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        out.push_str(&rest[..at]);
        out.push(' ');
        let (mark, skip) = if rest[at..].starts_with("/*") { ("*/", 2) } else { ("\n", 0) };
        rest = rest[at..].find(mark).map_or("", |end| &rest[at + end + skip..]);
    }
    out.push_str(rest);
    out
}

/// The identifiers of a piece of C without comments, each with the first character that follows it and is no space.
pub fn identifiers(code: &str) -> Vec<(&str, Option<char>)> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    let mut start = None;
    for (at, letter) in code.char_indices().chain([(code.len(), ' ')]) {
        match start {
            None if is_word(letter) => start = Some(at),
            Some(from) if !is_word(letter) => {
                let word = &code[from..at];
                if !word.starts_with(|letter: char| letter.is_ascii_digit()) {
                    found.push((word, code[at..].chars().find(|letter| !letter.is_whitespace())));
                }
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn logical_line(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find('\n') {
        if !text[..from + at].ends_with('\\') {
            return from + at;
        }
        from += at + 1;
    }
    text.len()
}

fn statement(text: &str) -> usize {
    let mut depth = 0i32;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            at += text[at..].find("*/").map_or(text.len() - at, |end| end + 2);
            continue;
        }
        match text.as_bytes()[at] {
            b'{' | b'(' => depth += 1,
            b'}' | b')' => depth -= 1,
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

fn defined_name(line: &str) -> Option<String> {
    let mut words = line.strip_prefix("#define")?.split_whitespace();
    let name = words.next()?;
    // An include guard has no value, a macro with parameters is no constant.
    words.next()?;
    (!name.contains('(')).then(|| name.to_string())
}

fn kind_and_name(text: &str) -> Option<(Kind, String)> {
    let code = without_comments(text);
    let words: Vec<&str> = identifiers(&code).into_iter().map(|(word, _)| word).collect();
    match *words.first()? {
        "typedef" if words.get(1) == Some(&"struct") => Some((Kind::Struct, words.last()?.to_string())),
        "struct" if !code.contains('(') => Some((Kind::Struct, words.get(1)?.to_string())),
        "typedef" => Some((Kind::Typedef, declared_name(code.trim_end_matches(';'))?)),
        _ if code.contains('(') => Some((Kind::Function, declared_name(&code[..code.find('(')?])?)),
        _ => None,
    }
}

/// The name that a declarator declares: of `uint32_t reserved[3]`, `reserved`; of `int (*call)(void)`, `call`.
fn declared_name(declarator: &str) -> Option<String> {
    let inner = match declarator.find("(*") {
        Some(at) => &declarator[at + 2..],
        None => declarator.split('[').next()?,
    };
    let words = identifiers(inner);
    let name = if declarator.contains("(*") { words.first() } else { words.last() };
    name.map(|(word, _)| word.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
/* An opening; with a semicolon. */
#ifndef X_H
#define X_H
#include <stdint.h>
/** A limit. */
#define WARP_LIMIT (1u << 3)
#ifdef __cplusplus
extern "C" {
#endif
/* A banner. */
/** A status. */
typedef int32_t warp_status;
typedef struct warp_device warp_device;
struct warp_other;
/**
 * A call; of a kind.
 */
typedef warp_status (*warp_callback)(void *user, const char *text);
/** Options. */
typedef struct warp_options {
    /** Its size; in bytes. */
    uint64_t struct_size;
    const char *path; /* a (trailing) remark */
    warp_status (*call)(void *user, warp_device *device);
    uint32_t reserved[3];
} warp_options;
struct warp_full { uint8_t one; };
/** Makes one. */
warp_status warp_make(const struct warp_options *options,
                      warp_status (*then)(void *user),
                      warp_device **out);
uint32_t warp_version(void);
#ifdef __cplusplus
}
#endif
#endif
"#;

    #[test]
    fn every_kind_of_declaration_is_found_with_its_name() {
        let found: Vec<(Kind, String)> = read(SAMPLE).into_iter().map(|one| (one.kind, one.name)).collect();
        let expected = [
            (Kind::Constant, "WARP_LIMIT"),
            (Kind::Typedef, "warp_status"),
            (Kind::Struct, "warp_device"),
            (Kind::Struct, "warp_other"),
            (Kind::Typedef, "warp_callback"),
            (Kind::Struct, "warp_options"),
            (Kind::Struct, "warp_full"),
            (Kind::Function, "warp_make"),
            (Kind::Function, "warp_version"),
        ];
        assert_eq!(found, expected.map(|(kind, name)| (kind, name.to_string())));
    }

    #[test]
    fn a_comment_belongs_to_the_declaration_behind_it_only() {
        let found = read(SAMPLE);
        assert_eq!(found[0].doc, "/** A limit. */");
        assert_eq!(found[1].doc, "/** A status. */");
        assert_eq!(found[2].doc, "");
        assert!(found[4].doc.contains("A call; of a kind."));
        assert_eq!(found[8].doc, "");
    }

    #[test]
    fn fields_values_and_identifiers_are_read() {
        let found = read(SAMPLE);
        assert_eq!(found[0].value(), Some("(1u << 3)"));
        assert_eq!(found[5].fields(), ["struct_size", "path", "call", "reserved"]);
        assert_eq!(found[6].fields(), ["one"]);
        assert!(found[2].fields().is_empty());
        assert_eq!(
            identifiers("const warp_x *p[4]; 8u"),
            [("const", Some('w')), ("warp_x", Some('*')), ("p", Some('['))]
        );
    }
}
