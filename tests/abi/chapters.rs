//! Turning what cbindgen writes (all constants, then all types, then all functions) into a header of chapters, each opened by
//! the `//!` text of its source file and holding its constants, types and functions together, in source order.

use crate::declarations::{self, Declaration, Kind, identifiers, without_comments};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The longest line that is written.
const WIDTH: usize = 110;

/// One chapter of the header, as its source file has it.
#[derive(Debug, Default)]
pub struct Chapter {
    /// The `//!` text; a first line that stands alone names the chapter.
    pub text: String,
    /// The names that cross the boundary, in source order.
    pub names: Vec<String>,
    /// The Rust types of constants and type aliases, as written.
    pub types: HashMap<String, String>,
    structs: HashSet<String>,
}

impl Chapter {
    /// Reads the source file of a chapter.
    pub fn read(source: &str) -> Result<Chapter, String> {
        let file = syn::parse_file(source).map_err(|error| error.to_string())?;
        let mut chapter = Chapter { text: inner_docs(&file.attrs), ..Chapter::default() };
        for item in &file.items {
            let (visibility, name) = match item {
                syn::Item::Fn(item) => {
                    if !item.attrs.iter().any(is_no_mangle) {
                        continue;
                    }
                    (&item.vis, item.sig.ident.to_string())
                }
                syn::Item::Type(item) => {
                    chapter.types.insert(item.ident.to_string(), type_name(&item.ty));
                    (&item.vis, item.ident.to_string())
                }
                syn::Item::Const(item) => {
                    chapter.types.insert(item.ident.to_string(), type_name(&item.ty));
                    (&item.vis, item.ident.to_string())
                }
                syn::Item::Struct(syn::ItemStruct { vis, ident, .. })
                | syn::Item::Union(syn::ItemUnion { vis, ident, .. }) => {
                    chapter.structs.insert(ident.to_string());
                    (vis, ident.to_string())
                }
                _ => continue,
            };
            if matches!(visibility, syn::Visibility::Public(_)) && is_public_name(&name) {
                chapter.names.push(name);
            }
        }
        Ok(chapter)
    }
}

/// The modules of `src/ffi/mod.rs`, in its order.
pub fn module_names(source: &str) -> Result<Vec<String>, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && !is_test(&module.attrs) => {
            Some(module.ident.to_string())
        }
        _ => None,
    });
    Ok(modules.collect())
}

/// Writes the chapters from the declarations that cbindgen made.
pub fn arrange(declared: &str, chapters: &[Chapter]) -> Result<String, String> {
    let types: HashMap<&str, &str> = chapters
        .iter()
        .flat_map(|chapter| chapter.types.iter().map(|(name, rust)| (name.as_str(), rust.as_str())))
        .collect();
    let mut by_name = HashMap::new();
    let mut foreign = BTreeSet::new();
    for mut declaration in declarations::read(declared) {
        if declaration.text.starts_with("typedef union") {
            return Err(format!("{} is a union, which this writing does not know", declaration.name));
        }
        if !is_public_name(&declaration.name) {
            if declaration.kind == Kind::Struct
                && (declaration.fields().is_empty() || is_opaque(&declaration))
            {
                foreign.insert(declaration.name);
                continue;
            }
            return Err(format!("{} is public in src/ffi but has no name of the library", declaration.name));
        }
        declaration.doc = on_one_line(&plain_links(&declaration.doc));
        declaration.text = on_one_line(&plain_links(&declaration.text));
        if declaration.kind == Kind::Constant {
            declaration.text = typed_constant(&declaration, &types)?;
        } else if is_opaque(&declaration) {
            declaration.text = format!("typedef struct {0} {0};", declaration.name);
        }
        by_name.insert(declaration.name.clone(), declaration);
    }
    let mut order: Vec<(usize, String)> = Vec::new();
    for (at, chapter) in chapters.iter().enumerate() {
        for name in &chapter.names {
            let known = by_name.get(name);
            // A struct that no function reaches is not part of the interface; anything else must not get lost.
            if known.is_some() {
                order.push((at, name.clone()));
            } else if !chapter.structs.contains(name) {
                return Err(format!("cbindgen left {name} out: it cannot be written in C as it is"));
            }
        }
    }
    if let Some(lost) = by_name.keys().find(|name| !order.iter().any(|(_, known)| known == *name)) {
        return Err(format!("{lost} was declared but stands in no chapter"));
    }
    let placed = place(&order, &by_name);
    Ok(write_foreign(&foreign) + &write(&placed, chapters, &by_name))
}

/// Structs of other headers (DLPack's) are named by their tag, which agrees with the other header whether it is included
/// or not.
fn write_foreign(foreign: &BTreeSet<String>) -> String {
    if foreign.is_empty() {
        return String::new();
    }
    let names: String = foreign.iter().map(|name| format!("struct {name};\n")).collect();
    format!("/* Types of other headers. */\n{names}\n")
}

/// The declarations in an order in which each comes after what it needs whole, and the structs that are named, by pointer
/// or in a prototype, before they are described.
struct Placed {
    order: Vec<(usize, String)>,
    early: BTreeSet<String>,
}

fn place(order: &[(usize, String)], by_name: &HashMap<String, Declaration>) -> Placed {
    let mut placing = Placing { given: order, by_name, done: HashSet::new(), out: Vec::new() };
    for (chapter, name) in order {
        placing.put(*chapter, name);
    }
    let position: HashMap<&str, usize> =
        placing.out.iter().enumerate().map(|(at, (_, name))| (name.as_str(), at)).collect();
    let mut early = BTreeSet::new();
    for (at, (_, name)) in placing.out.iter().enumerate() {
        for needed in names_in(&by_name[name], by_name) {
            if by_name[&needed].kind == Kind::Struct && position[needed.as_str()] > at {
                early.insert(needed);
            }
        }
    }
    Placed { order: placing.out, early }
}

struct Placing<'a> {
    given: &'a [(usize, String)],
    by_name: &'a HashMap<String, Declaration>,
    done: HashSet<String>,
    out: Vec<(usize, String)>,
}

impl Placing<'_> {
    fn put(&mut self, chapter: usize, name: &str) {
        if !self.done.insert(name.to_string()) {
            return;
        }
        let declaration = &self.by_name[name];
        for needed in names_in(declaration, self.by_name) {
            if self.needs_whole(declaration, &needed) {
                for member in self.group(&needed) {
                    self.put(chapter, &member);
                }
            }
        }
        self.out.push((chapter, name.to_string()));
    }

    fn needs_whole(&self, user: &Declaration, needed: &str) -> bool {
        match self.by_name[needed].kind {
            Kind::Struct => {
                user.kind == Kind::Struct
                    && identifiers(&without_comments(&user.text))
                        .iter()
                        .any(|(word, next)| *word == needed && *next != Some('*') && *next != Some(';'))
                    && !only_in_prototypes(&user.text, needed)
            }
            Kind::Constant => user.kind != Kind::Constant,
            Kind::Typedef | Kind::Function => true,
        }
    }

    /// A type and the constants that stand right behind it in the source travel together.
    fn group(&self, name: &str) -> Vec<String> {
        let mut group = vec![name.to_string()];
        if self.by_name[name].kind == Kind::Typedef
            && let Some(at) = self.given.iter().position(|(_, known)| known == name)
        {
            let behind = self.given[at + 1..].iter().map(|(_, known)| known);
            group.extend(behind.take_while(|known| self.by_name[*known].kind == Kind::Constant).cloned());
        }
        group
    }
}

/// Whether a struct names a type only among the parameters of function pointers, where it need not be complete.
fn only_in_prototypes(text: &str, name: &str) -> bool {
    let code = without_comments(text);
    let mut depth = 0;
    let outside: String = code
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '(') - i32::from(*letter == ')');
            depth == 0
        })
        .collect();
    let body = outside.split_once('{').map_or("", |(_, body)| body);
    let body = body.rsplit_once('}').map_or(body, |(body, _)| body);
    !identifiers(body).iter().any(|(word, next)| *word == name && *next != Some('*'))
}

fn names_in(declaration: &Declaration, by_name: &HashMap<String, Declaration>) -> Vec<String> {
    let code = without_comments(&declaration.text);
    let mut seen = HashSet::new();
    identifiers(&code)
        .into_iter()
        .map(|(word, _)| word)
        .filter(|word| *word != declaration.name && by_name.contains_key(*word) && seen.insert(*word))
        .map(str::to_string)
        .collect()
}

fn write(placed: &Placed, chapters: &[Chapter], by_name: &HashMap<String, Declaration>) -> String {
    let mut out = String::new();
    if !placed.early.is_empty() {
        out.push_str("/* Types that are named before the chapter that describes them. */\n");
        for name in &placed.early {
            out.push_str(&format!("typedef struct {name} {name};\n"));
        }
    }
    let mut open = None;
    let mut after_small_constant = false;
    for (chapter, name) in &placed.order {
        let declaration = &by_name[name];
        let small_constant = declaration.kind == Kind::Constant && !declaration.doc.contains('\n');
        if open != Some(*chapter) {
            out.push_str(&banner(&chapters[*chapter].text));
            open = Some(*chapter);
            after_small_constant = false;
        }
        // The values of an enumeration read as one block.
        if !(small_constant && after_small_constant) {
            out.push('\n');
        }
        after_small_constant = small_constant;
        if !declaration.doc.is_empty() {
            out.push_str(&declaration.doc);
            out.push('\n');
        }
        let early = placed.early.contains(name);
        let text = if early { tag_only(declaration) } else { declaration.text.clone() };
        let text = without_tags(&text, name, early, by_name);
        out.push_str(&if declaration.kind == Kind::Function { prototype(&text) } else { text });
        out.push('\n');
    }
    out
}

/// `struct name` is `name` wherever the typedef stands above: everywhere but in the struct's own declaration.
fn without_tags(text: &str, own: &str, early: bool, by_name: &HashMap<String, Declaration>) -> String {
    let (head, body) = text.split_at(text.find('{').unwrap_or(0));
    let mut body = body.to_string();
    let mut names: Vec<&String> = by_name.keys().filter(|name| early || *name != own).collect();
    if head.is_empty() && by_name[own].kind == Kind::Struct {
        names.clear();
    }
    for name in names {
        for end in [" ", ";", ",", ")", "["] {
            body = body.replace(&format!("struct {name}{end}"), &format!("{name}{end}"));
        }
    }
    format!("{head}{body}")
}

/// A prototype on one line where it fits, else a parameter a line.
fn prototype(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.len() <= WIDTH {
        return words;
    }
    let Some(open) = words.find('(') else { return words };
    let mut depth = 0;
    let mut out = String::new();
    for letter in words.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if letter == ' ' && depth == 1 && out.ends_with(',') {
            out.push('\n');
            out.push_str(&" ".repeat(open + 1));
        } else {
            out.push(letter);
        }
    }
    out
}

/// A comment of one line takes one line.
fn on_one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        if let [first, middle, last, ..] = lines[at..]
            && first.trim() == "/**"
            && last.trim() == "*/"
            && let Some(words) = middle.trim().strip_prefix("* ")
            && first.len() + words.len() + 4 <= WIDTH
        {
            out.push(format!("{first} {words} */"));
            at += 3;
            continue;
        }
        out.push(lines[at].to_string());
        at += 1;
    }
    out.join("\n")
}

/// A struct whose typedef has been made already.
fn tag_only(declaration: &Declaration) -> String {
    match (declaration.text.find('{'), declaration.text.rfind('}')) {
        (Some(open), Some(close)) => {
            format!("struct {} {};", declaration.name, &declaration.text[open..=close])
        }
        _ => format!("struct {};", declaration.name),
    }
}

fn banner(text: &str) -> String {
    const RULE: &str =
        "================================================================================================";
    let (title, body) = title_and_body(text.trim());
    let mut out = format!("\n/* {RULE}\n");
    let titled = !title.is_empty() && !body.is_empty();
    for line in
        [title].into_iter().filter(|title| !title.is_empty()).chain(titled.then_some("")).chain(body.lines())
    {
        // A comment cannot hold its own end.
        out.push_str(format!(" * {}", plain_links(line).replace("*/", "* /")).trim_end());
        out.push('\n');
    }
    out.push_str(&format!(" * {RULE} */\n"));
    out
}

/// A title is a first line that ends no sentence and stands alone, with or without Markdown's `#`.
fn title_and_body(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if let Some(title) = first.strip_prefix("# ") {
        (title.trim(), rest.trim())
    } else if !first.ends_with('.') && (rest.is_empty() || rest.starts_with('\n')) {
        (first.trim(), rest.trim())
    } else {
        ("", text)
    }
}

/// The value of a constant with a suffix that gives it the type it has in Rust: cbindgen writes `1 << 40` as an `int`.
fn typed_constant(declaration: &Declaration, types: &HashMap<&str, &str>) -> Result<String, String> {
    let name = &declaration.name;
    let value = declaration.value().ok_or_else(|| format!("{name} has no value"))?;
    let mut rust = types.get(name.as_str()).copied().unwrap_or_default();
    let mut steps = 0;
    while let Some(next) = types.get(rust) {
        rust = next;
        steps += 1;
        if steps > types.len() {
            return Err(format!("the type of {name} is an alias of itself"));
        }
    }
    let (before, after) = match rust {
        "u64" | "usize" => ("UINT64_C(", ")"),
        "i64" | "isize" => ("INT64_C(", ")"),
        "u32" | "c_uint" => ("", "u"),
        "i32" | "c_int" | "u16" | "i16" | "u8" | "i8" => ("", ""),
        _ => return Err(format!("{name} has the type {rust}, which is no integer")),
    };
    let mut text = suffixed(value, before, after);
    if text.starts_with('-') {
        text = format!("({text})");
    }
    Ok(format!("#define {name} {text}"))
}

fn suffixed(value: &str, before: &str, after: &str) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = if is_word(first) {
            rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let word = &rest[..end];
        let digits = word.trim_end_matches(['u', 'l', 'U', 'L']);
        let shift_count = out.trim_end().ends_with("<<") || out.trim_end().ends_with(">>");
        if first.is_ascii_digit() && shift_count {
            out.push_str(digits);
        } else if first.is_ascii_digit() {
            out.push_str(before);
            out.push_str(digits);
            out.push_str(after);
        } else {
            out.push_str(word);
        }
        rest = &rest[end..];
    }
    out
}

/// `[`name`]`, a link in Rust's documentation, is just `name` in C.
fn plain_links(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

fn is_opaque(declaration: &Declaration) -> bool {
    declaration.kind == Kind::Struct && declaration.fields() == ["_private"]
}

fn is_public_name(name: &str) -> bool {
    name.starts_with("warp_") || name.starts_with("WARP_")
}

fn is_no_mangle(attribute: &syn::Attribute) -> bool {
    let path = attribute.path();
    if path.is_ident("no_mangle") {
        return true;
    }
    path.is_ident("unsafe")
        && attribute.parse_args::<syn::Path>().is_ok_and(|inner| inner.is_ident("no_mangle"))
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|inner| inner.is_ident("test"))
    })
}

/// The last segment of a plain type's path, `fn` types and others as nothing.
fn type_name(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Path(path) => {
            path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

fn inner_docs(attributes: &[syn::Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes {
        if let syn::Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value
        {
            let text = text.value();
            lines.push(text.strip_prefix(' ').unwrap_or(&text).to_string());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chapters(sources: &[&str]) -> Vec<Chapter> {
        sources.iter().map(|source| Chapter::read(source).expect("a source file")).collect()
    }

    #[test]
    fn a_chapter_lists_what_crosses_the_boundary_in_source_order() {
        let chapter = Chapter::read(
            "//! # Pools\n//!\n//! Text.\nuse x;\npub fn warp_not_exported() {}\n\
             #[unsafe(no_mangle)] pub extern \"C\" fn warp_b() {}\npub type warp_a = i32;\n\
             pub const WARP_A: warp_a = 1;\npub(crate) const WARP_HIDDEN: u8 = 1;\npub const OTHER: u8 = 1;\n\
             pub struct warp_s { _private: [u8; 0] }\n#[unsafe(no_mangle)] extern \"C\" fn warp_private() {}",
        )
        .expect("a source file");
        assert_eq!(chapter.text, "# Pools\n\nText.");
        assert_eq!(chapter.names, ["warp_b", "warp_a", "WARP_A", "warp_s"]);
        assert_eq!(chapter.types["WARP_A"], "warp_a");
    }

    #[test]
    fn modules_come_in_their_order_without_tests() {
        let source = "pub mod zeta;\n\nmod alpha;\n#[cfg(test)]\nmod tests;\nmod inline { }";
        assert_eq!(module_names(source), Ok(vec!["zeta".to_string(), "alpha".to_string()]));
    }

    #[test]
    fn constants_types_and_functions_of_a_chapter_stand_together() {
        let chapters = chapters(&[
            "//! # One\n//! First.\npub type warp_one = i32;\npub const WARP_ONE: warp_one = 1;\n\
             #[unsafe(no_mangle)] pub extern \"C\" fn warp_one_get() {}",
            "//! # Two\npub type warp_two = u64;\npub const WARP_TWO: warp_two = 1 << 40;",
        ]);
        let declared = "#define WARP_ONE 1\n#define WARP_TWO (1 << 40)\ntypedef int32_t warp_one;\n\
                        typedef uint64_t warp_two;\n/** Gets. */\nwarp_one warp_one_get(void);";
        let header = arrange(declared, &chapters).expect("it can be arranged");
        let at = |text: &str| header.find(text).unwrap_or_else(|| panic!("{text} is missing in:\n{header}"));
        assert!(at(" * One\n *\n * First.\n") < at("typedef int32_t warp_one;"));
        assert!(at("typedef int32_t warp_one;") < at("#define WARP_ONE 1\n"));
        assert!(at("#define WARP_ONE 1\n") < at("/** Gets. */\nwarp_one warp_one_get(void);"));
        assert!(at("warp_one_get") < at(" * Two\n"));
        assert!(at(" * Two\n") < at("#define WARP_TWO (UINT64_C(1) << 40)\n"));
    }

    #[test]
    fn what_is_needed_whole_comes_first_and_what_is_pointed_at_is_named_first() {
        let chapters = chapters(&[
            "//! # One\npub struct warp_user { a: u8 }\n#[unsafe(no_mangle)] pub extern \"C\" fn warp_f() {}",
            "//! # Two\npub type warp_kind = i32;\npub const WARP_KIND_A: warp_kind = 0;\n\
             pub struct warp_part { a: u8 }\npub struct warp_handle { _private: [u8; 0] }\n\
             pub struct warp_late { a: u8 }",
        ]);
        let declared = "#define WARP_KIND_A 0\ntypedef int32_t warp_kind;\n/** Opaque. */\n\
            typedef struct warp_handle warp_handle;\ntypedef struct warp_part { uint8_t a; } warp_part;\n\
            typedef struct warp_late { uint8_t a; } warp_late;\n\
            typedef struct warp_user { struct warp_part part; struct warp_handle *handle; \
            warp_kind kind; void (*call)(struct warp_late late); } warp_user;\nvoid warp_f(struct warp_late late);";
        let header = arrange(declared, &chapters).expect("it can be arranged");
        let at = |text: &str| header.find(text).unwrap_or_else(|| panic!("{text} is missing in:\n{header}"));
        assert!(
            at("typedef struct warp_handle warp_handle;\ntypedef struct warp_late warp_late;") < at(" * One")
        );
        assert!(at("typedef struct warp_part {") < at("typedef struct warp_user {"));
        assert!(at("typedef int32_t warp_kind;") < at("#define WARP_KIND_A"));
        assert!(at("#define WARP_KIND_A") < at("typedef struct warp_user {"));
        assert!(at(" * Two") < at("/** Opaque. */\nstruct warp_handle;"));
        assert!(at(" * Two") < at("struct warp_late { uint8_t a; };"));
        assert_eq!(header.matches(" * Two").count(), 1);
    }

    #[test]
    fn a_handle_with_a_c_layout_is_still_opaque() {
        let chapters = chapters(&["//! # One\npub struct warp_h { _private: [u8; 0] }"]);
        let declared = "typedef struct warp_h { uint8_t _private[0]; } warp_h;";
        let header = arrange(declared, &chapters).expect("it can be arranged");
        assert!(header.ends_with("\ntypedef struct warp_h warp_h;\n"), "{header}");
    }

    #[test]
    fn an_opaque_struct_of_another_header_keeps_its_tag() {
        let chapters = chapters(&["//! # One\npub struct DLTensor { _private: [u8; 0] }\n\
             #[unsafe(no_mangle)] pub extern \"C\" fn warp_f() {}"]);
        let declared = "typedef struct DLTensor DLTensor;\nvoid warp_f(struct DLTensor *t);";
        let header = arrange(declared, &chapters).expect("it can be arranged");
        assert!(header.starts_with("/* Types of other headers. */\nstruct DLTensor;\n\n"), "{header}");
        assert!(header.contains("void warp_f(struct DLTensor *t);"), "{header}");
        let whole = "typedef struct DLTensor { uint8_t a; } DLTensor;\nvoid warp_f(struct DLTensor *t);";
        assert!(arrange(whole, &chapters).is_err());
    }

    #[test]
    fn nothing_gets_lost_quietly() {
        let one = chapters(&["//! # One\npub const WARP_A: u32 = 1;"]);
        assert!(arrange("", &one).is_err_and(|why| why.contains("WARP_A")));
        assert!(
            arrange("#define WARP_A 1\nvoid warp_stray(void);", &one)
                .is_err_and(|why| why.contains("warp_stray"))
        );
        assert!(arrange("#define OTHER 1", &one).is_err_and(|why| why.contains("OTHER")));
        let float = chapters(&["//! # One\npub const WARP_A: f32 = 1.0;"]);
        assert!(arrange("#define WARP_A 1.0", &float).is_err_and(|why| why.contains("f32")));
    }

    #[test]
    fn constants_get_the_type_they_have_in_rust() {
        assert_eq!(suffixed("(1 << 40)", "UINT64_C(", ")"), "(UINT64_C(1) << 40)");
        assert_eq!(suffixed("18446744073709551615ull", "UINT64_C(", ")"), "UINT64_C(18446744073709551615)");
        assert_eq!(suffixed("(WARP_A2 | 4)", "", "u"), "(WARP_A2 | 4u)");
        assert_eq!(suffixed("UINT64_MAX", "UINT64_C(", ")"), "UINT64_MAX");
        assert_eq!(suffixed("~0", "", "u"), "~0u");
    }

    #[test]
    fn short_comments_take_one_line_and_values_stand_close() {
        assert_eq!(on_one_line("/**\n * One.\n */\nint x;\n"), "/** One. */\nint x;");
        assert_eq!(
            on_one_line("{\n    /**\n     * A.\n     */\n    int a;\n}"),
            "{\n    /** A. */\n    int a;\n}"
        );
        assert_eq!(on_one_line("/**\n * One.\n *\n * Two.\n */"), "/**\n * One.\n *\n * Two.\n */");
        let long = format!("/**\n * {}\n */", "x".repeat(110));
        assert_eq!(on_one_line(&long), long);
        let chapters = chapters(&["//! # One\npub const WARP_A: u32 = 1;\npub const WARP_B: u32 = 2;"]);
        let header = arrange("/**\n * A.\n */\n#define WARP_A 1\n/** B. */\n#define WARP_B 2", &chapters)
            .expect("it can be arranged");
        assert!(
            header.ends_with("\n/** A. */\n#define WARP_A 1u\n/** B. */\n#define WARP_B 2u\n"),
            "{header}"
        );
    }

    #[test]
    fn a_prototype_takes_one_line_or_a_line_for_each_parameter() {
        assert_eq!(prototype("void warp_f(int a,\n            int b);"), "void warp_f(int a, int b);");
        let long = format!("void warp_f(int {}, int (*g)(int, int), int c);", "a".repeat(90));
        let lines = format!(
            "void warp_f(int {},\n            int (*g)(int, int),\n            int c);",
            "a".repeat(90)
        );
        assert_eq!(prototype(&long), lines);
    }

    #[test]
    fn tags_go_where_the_typedef_is_known() {
        let chapters = chapters(&["//! # One\npub struct warp_s { a: u8 }\npub struct warp_t { a: u8 }\n\
             #[unsafe(no_mangle)] pub extern \"C\" fn warp_f() {}"]);
        let declared = "typedef struct warp_s { struct warp_s *next; struct warp_t *other; } warp_s;\n\
             typedef struct warp_t { uint8_t a; } warp_t;\nvoid warp_f(const struct warp_s *s, struct warp_t t);";
        let header = arrange(declared, &chapters).expect("it can be arranged");
        assert!(
            header.contains("typedef struct warp_s { struct warp_s *next; warp_t *other; } warp_s;"),
            "{header}"
        );
        assert!(header.contains("typedef struct warp_t warp_t;\n"), "{header}");
        assert!(header.contains("\nstruct warp_t { uint8_t a; };\n"), "{header}");
        assert!(header.contains("void warp_f(const warp_s *s, warp_t t);"), "{header}");
    }

    #[test]
    fn a_banner_cannot_end_its_own_comment_and_drops_links() {
        let text = banner("# T\n\nSee [`warp_x`] and */ here.");
        assert!(text.contains(" * T\n *\n * See `warp_x` and * / here.\n"), "{text}");
        assert!(banner("No title.").contains("==\n * No title.\n"));
        assert!(banner("Pools\n\nText.").contains("==\n * Pools\n *\n * Text.\n * =="));
        assert!(banner("A text that\ngoes on.").contains("==\n * A text that\n * goes on.\n * =="));
    }
}
