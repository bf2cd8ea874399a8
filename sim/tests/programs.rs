//! Texts that are no programs, or use what is not interpreted: refused with the code and the words for it, and never more.
mod driver;
use driver::*;
use std::ffi::{CStr, c_void};
use std::ptr;

const HEAD: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

fn kernel(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 p) {{ .reg .b64 %a<4>; .reg .b32 %r<4>; .reg .f32 %f; .reg .pred %p; {body} ret; }}"
    )
}

/// The code of a text, and what the log has to say.
fn refused(text: &str) -> (u32, String) {
    let text = std::ffi::CString::new(text).expect("no zero byte");
    let mut log = [0_u8; 256];
    // `CU_JIT_ERROR_LOG_BUFFER` and its size.
    let options = [5_u32, 6];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len())];
    let mut module = 0;
    // SAFETY: a terminated text; as many options as values; a buffer of the size that is said.
    let code = unsafe {
        cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, options.as_ptr(), values.as_mut_ptr())
    };
    let said = CStr::from_bytes_until_nul(&log).expect("a terminated log").to_string_lossy().into_owned();
    assert_eq!(values[1].addr(), said.len());
    if code == SUCCESS {
        ok(cuModuleUnload(module));
    }
    (code, said)
}

#[test]
fn what_is_no_program_is_invalid_and_says_where() {
    let sim = Sim::start("h200");
    for (body, word) in [
        ("frobnicate.u32 %r1, %r2;", "frobnicate"),
        ("mov.u32 %r9, 0;", "%r9"),
        ("bra nowhere;", "nowhere"),
        ("add.u32 %r1, %r2;", "add"),
        ("add.u32 %r1, %r2, %r3, %r0;", "add"),
        ("mov.u32 %a1, 0;", "mov"),
        ("add.u32 %f, %f, 1;", "add"),
        ("ld.global.u32 %r1, [%r2];", "ld"),
        ("ld.shared.u32 %r1, [p];", "ld"),
        ("cvt.s32.f32 %r1, %f;", "cvt"),
        ("div.f32 %f, %f, %f;", "div"),
        ("setp.lt.u32 %r1, %r1, %r2;", "setp"),
        ("@%r1 ret;", "ret"),
        ("mov.u32 %r1, 12x;", "12x"),
        (".reg .b32 %r1; .reg .b32 %r1;", "%r1"),
        ("again: again:", "again"),
        ("{ .reg .b32 %inner; } mov.u32 %r1, %inner;", "%inner"),
        ("{ inside: } bra inside;", "inside"),
        ("st.global.v2.u32 [%a1], {%r1, %r2, %r3};", "st"),
        ("ld.volatile.local.u32 %r1, [%a1];", "volatile"),
    ] {
        let (code, said) = refused(&kernel(body));
        assert_eq!(
            (name(code).as_str(), said.contains(word)),
            ("CUDA_ERROR_INVALID_PTX", true),
            "{body}: {said}"
        );
        assert!(said.contains("line 4"), "{said}");
    }
    assert_eq!(sim.live("module"), 0);
}

#[test]
fn what_is_not_interpreted_is_refused_by_name() {
    let sim = Sim::start("h200");
    for (text, word) in [
        (kernel("shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;"), "shfl.sync.idx.b32"),
        (kernel("vote.sync.any.pred %p, %p, -1;"), "vote.sync.any.pred"),
        (kernel("call (%r1), other, (%r2);"), "call"),
        (kernel("bar.red.popc.u32 %r1, 0, %p;"), "bar.red.popc.u32"),
        (kernel("add.f16x2 %r1, %r2, %r3;"), "add.f16x2"),
        (kernel("atom.global.cas.b16 %r1, [%a1], %r2, %r3;"), "atom.global.cas.b16"),
        (kernel("fma.rp.f64 %a1, %a1, %a1, %a1;"), "fma.rp.f64"),
        (kernel("mov.u32 %r1, %clusterid.x;"), "%clusterid.x"),
        (kernel("mov.u64 %a1, k;"), "Unknown symbol"),
        (format!("{HEAD}.func f() {{ ret; }}"), ".func"),
        (format!("{HEAD}.extern .global .u32 elsewhere;"), "another module"),
        (format!("{HEAD}.global .u64 at = k;"), "an address"),
        (format!("{HEAD}.global .texref picture;"), "texture"),
        (".version 7.0\n.target sm_70\n.address_size 32\n".into(), "32 bits"),
    ] {
        let (code, said) = refused(&text);
        if word == "Unknown symbol" {
            // Its own name is not known within a kernel.
            is(code, INVALID_PTX);
        } else {
            is(code, NOT_SUPPORTED);
            assert!(said.contains("is not simulated"), "{said}");
            assert!(sim.logged(&format!("CUDA_ERROR_NOT_SUPPORTED; unsupported: {said}")), "{said}");
        }
        assert!(said.contains(word), "{said}");
    }
    for image in ["\x7fELF\u{2}", "not a program at all", ""] {
        let (code, _) = refused(image);
        is(code, if image.starts_with('\x7f') { NOT_SUPPORTED } else { INVALID_IMAGE });
    }
}

/// A generator of numbers, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }
}

const GOOD: &str = ".version 7.1\n.target sm_70\n.address_size 64\n// a comment\n.visible .global .align 8 .b8 table[8] = {1, 2, 0xff};
.extern .shared .align 16 .b8 more[];\n.visible .entry k(.param .u64 p, .param .align 4 .b8 c[12]) .maxntid 64, 1, 1 {
.reg .b64 %a<6>; .reg .b32 %r<8>, %s; .reg .f32 %f<3>; .reg .f64 %d; .reg .b16 %h; .reg .pred %p, %q; .shared .align 4 .b8 own[64]; .local .align 8 .b8 l[16];
ld.param.u64 %a0, [p]; ld.param.u32 %r0, [c+8]; mov.u32 %r1, %tid.x; mad.lo.s32 %r2, %r1, 4, %r0; cvta.to.global.u64 %a1, %a0;
setp.lt.and.u32 %p|%q, %r1, 8, !%q; @!%p bra $L1; ld.global.v2.u32 {%r3, %r4}, [%a1+16]; st.shared.u32 [own+4], %r3; bar.sync 0;
$L1: cvt.rn.f32.s32 %f0, %r1; fma.rn.f32 %f1, %f0, 0f3F800000, %f0; cvt.rzi.u32.f32 %r5, %f1; atom.global.add.u32 %r6, [%a1], 1;
mov.b64 %a2, {%r3, %r4}; shl.b64 %a3, %a2, 3; bfi.b32 %r7, %r1, %r2, 3, 5; st.local.u64 [l], %a3; sub.cc.u32 %s, %r1, 7; subc.u32 %s, %s, 0;
selp.b32 %r3, %r4, -1, %p; { .reg .b32 %r1; mov.u32 %r1, more; st.shared.u32 [%r1], %r0; } ret; }\n";

#[test]
fn no_text_is_more_than_refused() {
    let sim = Sim::start("h200");
    ok(refused(GOOD).0);
    let mut dice = Dice(7);
    // Pieces of programs, and of what is none.
    let pieces: Vec<&str> = GOOD
        .split_inclusive([' ', ';', ',', '.'])
        .chain([
            "{",
            "}",
            "[",
            "]",
            "<",
            ">",
            "0x",
            "-",
            "\"",
            "/*",
            "@",
            "%r<999999999999>",
            ".b8 x[4294967295][4294967295];",
            "{{{{{{{{",
        ])
        .collect();
    let (mut loaded, mut refused_count) = (0, 0);
    let scratch = sim.alloc(1 << 16);
    warpsim_kernel_limit(100_000);
    for round in 0..6000 {
        let mut text = GOOD.to_owned();
        for _ in 0..=dice.below(3) {
            let at = dice.below(text.len());
            match dice.below(8) {
                // A number becomes another one, which is where most of what still loads comes from.
                0..4 => {
                    let digit = text[at..].find(|letter: char| letter.is_ascii_digit()).map(|more| at + more);
                    if let Some(at) = digit {
                        text.replace_range(at..=at, &dice.below(10).to_string());
                    }
                }
                4 => text.truncate(at),
                5 => text.insert_str(at, pieces[dice.below(pieces.len())]),
                6 => {
                    let end = (at + dice.below(12)).min(text.len());
                    text.replace_range(at..end, pieces[dice.below(pieces.len())]);
                }
                _ => {
                    let tail: String =
                        (0..dice.below(40)).map(|_| pieces[dice.below(pieces.len())]).collect();
                    text = if round % 3 == 0 { format!("{HEAD}{tail}") } else { text + &tail };
                }
            }
            if text.is_empty() {
                break;
            }
        }
        match sim.load(&text) {
            Ok(module) => {
                loaded += 1;
                // What is loaded runs to some end as well.
                let mut function = 0;
                // SAFETY: a terminated text.
                if unsafe { cuModuleGetFunction(&mut function, module, c"k".as_ptr()) } == SUCCESS {
                    let buffer = vec![scratch; 4096];
                    let params: Vec<*const u64> = vec![buffer.as_ptr(); 64];
                    // SAFETY: more parameters than any of these kernels has, and as many bytes for each as parameters can have.
                    let code = unsafe {
                        cuLaunchKernel(function, 1, 1, 1, 8, 1, 1, 256, 0, params.as_ptr(), ptr::null())
                    };
                    assert_ne!(code, 999, "a panic within: {text}");
                }
                if cuModuleUnload(module) != SUCCESS {
                    // A fault ends everything; the next program starts afresh.
                    warpsim_reset();
                    ok(cuInit(0));
                    sim.enter(0);
                    warpsim_kernel_limit(100_000);
                    sim.alloc(1 << 16);
                }
            }
            Err(code) => {
                refused_count += 1;
                assert_ne!(code, 999, "a panic within: {text}");
                assert!(matches!(code, 1 | 2 | 200 | 218 | 222 | 801), "{code}: {text}");
            }
        }
    }
    assert!(loaded > 300 && refused_count > 300, "{loaded} {refused_count}");
}
