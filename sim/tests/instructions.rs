//! Each family of instructions against Rust's own arithmetic, on many values, and what programs of several lines come to.
//! `tests/facts/driver_probe10.cpp` asks a real GPU about the edges.
mod driver;
use driver::*;

/// A kernel that reads three values of `from` bits, runs the code with them in `a`, `b` and `c`, and writes `r` of `to` bits.
fn program(from: u32, to: u32, code: &str) -> String {
    format!(
        ".version 7.1\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {{\n\
         .reg .b{from} a, b, c; .reg .b{to} r; .reg .b64 x, y, i; .reg .b32 t, u, v; .reg .pred p, q;\n\
         .reg .b16 h; .reg .f32 f; .reg .f64 d;\n\
         mov.u32 t, %tid.x; mov.u32 u, %ctaid.x; mov.u32 v, %ntid.x; mad.lo.u32 t, u, v, t;\n\
         ld.param.u64 x, [in]; mul.wide.u32 i, t, {}; add.u64 x, x, i;\n\
         ld.global.b{from} a, [x]; ld.global.b{from} b, [x+{}]; ld.global.b{from} c, [x+{}];\n\
         {code}\n\
         ld.param.u64 y, [out]; mul.wide.u32 i, t, {}; add.u64 y, y, i; st.global.b{to} [y], r;\n}}",
        from / 8 * 3,
        from / 8,
        from / 4,
        to / 8
    )
}

/// Runs code on each of the inputs.
#[track_caller]
fn run(sim: &Sim, (from, to): (u32, u32), code: &str, inputs: &[[u64; 3]]) -> Vec<u64> {
    let module = sim.load(&program(from, to, code));
    let module = module.unwrap_or_else(|code_| panic!("{}: {code}", name(code_)));
    let function = sim.function(module, "k");
    let (from, to) = (from as usize / 8, to as usize / 8);
    let count = inputs.len().next_multiple_of(64);
    let bytes: Vec<u8> =
        inputs.iter().flatten().flat_map(|value| value.to_le_bytes()[..from].to_vec()).collect();
    let (a, b) = (sim.alloc(count * 3 * from), sim.alloc(count * to));
    sim.write(a, &bytes);
    ok(sim.launch(function, count as u32 / 64, 64, 0, &[a, b]));
    let out = sim.read(b, inputs.len() * to);
    ok(cuMemFree_v2(a));
    ok(cuMemFree_v2(b));
    ok(cuModuleUnload(module));
    let value = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    out.chunks(to).map(value).collect()
}

/// Values at the edges of every width, and some between.
fn values() -> Vec<u64> {
    let mut all = vec![3, 7, 10, 0x1234_5678, 0xDEAD_BEEF, 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210];
    for bits in [8, 16, 24, 31, 32, 63] {
        all.extend([1 << bits, (1 << bits) - 1, (1_u64 << bits).wrapping_neg()]);
    }
    all.extend([0, 1, 2, u64::MAX, u64::MAX - 1, 15, 16, 17, 33, 64, 65, 0x8000, 0x8000_0000]);
    all
}

fn pairs() -> Vec<[u64; 3]> {
    let all = values();
    all.iter().flat_map(|a| all.iter().map(move |b| [*a, *b, a.rotate_left(9) ^ b])).collect()
}

#[track_caller]
fn check(sim: &Sim, widths: (u32, u32), code: &str, wanted: impl Fn(u64, u64, u64) -> u64) {
    let inputs = pairs();
    let (cut, mask) = (u64::MAX >> (64 - widths.0), u64::MAX >> (64 - widths.1));
    let got = run(sim, widths, code, &inputs);
    for ([a, b, c], got) in inputs.into_iter().zip(got) {
        let (a, b, c) = (a & cut, b & cut, c & cut);
        assert_eq!(got, wanted(a, b, c) & mask, "{code}: {a:#x} {b:#x} {c:#x}");
    }
}

macro_rules! arithmetic {
    ($sim:expr, $signed:ty, $unsigned:ty, $wide:ty, $swide:ty, $bits:expr) => {{
        let n = $bits;
        let w = (n, n);
        let own = |op: &str, kind: &str| format!("{op}.{kind}{n} r, a, b;");
        check($sim, w, &own("add", "u"), |a, b, _| (a as $unsigned).wrapping_add(b as $unsigned) as u64);
        check($sim, w, &own("sub", "s"), |a, b, _| (a as $unsigned).wrapping_sub(b as $unsigned) as u64);
        check($sim, w, &own("mul.lo", "s"), |a, b, _| (a as $unsigned).wrapping_mul(b as $unsigned) as u64);
        check($sim, w, &own("mul.hi", "u"), |a, b, _| {
            ((<$wide>::from(a as $unsigned) * <$wide>::from(b as $unsigned)) >> n) as u64
        });
        check($sim, w, &own("mul.hi", "s"), |a, b, _| {
            ((<$swide>::from(a as $signed) * <$swide>::from(b as $signed)) >> n) as u64
        });
        check($sim, w, &own("div", "u"), |a, b, _| {
            (a as $unsigned).checked_div(b as $unsigned).unwrap_or(<$unsigned>::MAX) as u64
        });
        check($sim, w, &own("rem", "u"), |a, b, _| {
            (a as $unsigned).checked_rem(b as $unsigned).unwrap_or(<$unsigned>::MAX) as u64
        });
        check($sim, w, &own("div", "s"), |a, b, _| match b as $signed {
            0 => u64::MAX,
            b => (a as $signed).wrapping_div(b) as u64,
        });
        check($sim, w, &own("rem", "s"), |a, b, _| match b as $signed {
            0 => u64::MAX,
            b => (a as $signed).wrapping_rem(b) as u64,
        });
        check($sim, w, &own("min", "s"), |a, b, _| (a as $signed).min(b as $signed) as u64);
        check($sim, w, &own("max", "s"), |a, b, _| (a as $signed).max(b as $signed) as u64);
        check($sim, w, &own("min", "u"), |a, b, _| (a as $unsigned).min(b as $unsigned) as u64);
        check($sim, w, &own("max", "u"), |a, b, _| (a as $unsigned).max(b as $unsigned) as u64);
        check($sim, w, &own("and", "b"), |a, b, _| a & b);
        check($sim, w, &own("or", "b"), |a, b, _| a | b);
        check($sim, w, &own("xor", "b"), |a, b, _| a ^ b);
        check($sim, w, &format!("not.b{n} r, a;"), |a, _, _| !a);
        check($sim, w, &format!("neg.s{n} r, a;"), |a, _, _| a.wrapping_neg());
        check($sim, w, &format!("abs.s{n} r, a;"), |a, _, _| (a as $signed).wrapping_abs() as u64);
        check($sim, w, &format!("mad.lo.s{n} r, a, b, c;"), |a, b, c| {
            (a as $unsigned).wrapping_mul(b as $unsigned).wrapping_add(c as $unsigned) as u64
        });
        check($sim, w, &format!("sad.u{n} r, a, b, c;"), |a, b, c| {
            (a as $unsigned).abs_diff(b as $unsigned).wrapping_add(c as $unsigned) as u64
        });
        // The shift is a word of its own: all the bits of it count.
        let by = match n {
            16 => "cvt.u32.u16 t, b;".to_owned(),
            32 => "mov.b32 t, b;".to_owned(),
            _ => "cvt.u32.u64 t, b;".to_owned(),
        };
        let code = |op: &str| format!("mov.u32 v, t; {by} {op} r, a, t; mov.u32 t, v;");
        check($sim, w, &code(&format!("shl.b{n}")), |a, b, _| {
            (a as $unsigned).checked_shl(b as u32).unwrap_or(0) as u64
        });
        check($sim, w, &code(&format!("shr.u{n}")), |a, b, _| {
            (a as $unsigned).checked_shr(b as u32).unwrap_or(0) as u64
        });
        check($sim, w, &code(&format!("shr.s{n}")), |a, b, _| {
            let sign = if (a as $signed) < 0 { u64::MAX } else { 0 };
            (a as $signed).checked_shr(b as u32).map_or(sign, |shifted| shifted as u64)
        });
        for (op, kind, holds) in [
            ("eq", "s", (|a, b| a as $signed == b as $signed) as fn(u64, u64) -> bool),
            ("ne", "b", |a, b| a as $signed != b as $signed),
            ("lt", "s", |a, b| (a as $signed) < b as $signed),
            ("le", "s", |a, b| a as $signed <= b as $signed),
            ("gt", "s", |a, b| a as $signed > b as $signed),
            ("ge", "s", |a, b| a as $signed >= b as $signed),
            ("lo", "u", |a, b| (a as $unsigned) < b as $unsigned),
            ("ls", "u", |a, b| a as $unsigned <= b as $unsigned),
            ("hi", "u", |a, b| a as $unsigned > b as $unsigned),
            ("hs", "u", |a, b| a as $unsigned >= b as $unsigned),
        ] {
            let code = format!("setp.{op}.{kind}{n} p, a, b; selp.b{n} r, a, c, p;");
            check($sim, w, &code, |a, b, c| if holds(a, b) { a } else { c });
        }
    }};
}

#[test]
fn integers_of_all_widths() {
    let sim = Sim::start("h200");
    arithmetic!(&sim, i16, u16, u32, i32, 16);
    arithmetic!(&sim, i32, u32, u64, i64, 32);
    arithmetic!(&sim, i64, u64, u128, i128, 64);
}

#[test]
fn products_of_twice_the_width_and_carries() {
    let sim = Sim::start("h200");
    check(&sim, (32, 64), "mul.wide.u32 r, a, b;", |a, b, _| a * b);
    check(&sim, (32, 64), "mul.wide.s32 r, a, b;", |a, b, _| {
        (i64::from(a as i32) * i64::from(b as i32)) as u64
    });
    check(&sim, (16, 32), "mul.wide.s16 r, a, b;", |a, b, _| {
        (i32::from(a as i16) * i32::from(b as i16)) as u64
    });
    check(&sim, (32, 64), "cvt.u64.u32 y, c; mad.wide.u32 r, a, b, y;", |a, b, c| (a * b).wrapping_add(c));
    check(&sim, (32, 32), "mad.hi.u32 r, a, b, c;", |a, b, c| ((a * b) >> 32).wrapping_add(c));
    check(&sim, (32, 32), "mul24.lo.u32 r, a, b;", |a, b, _| (a & 0xFF_FFFF) * (b & 0xFF_FFFF));
    check(&sim, (32, 32), "mul24.hi.s32 r, a, b;", |a, b, _| {
        let low = |value: u64| i64::from((value as i32) << 8 >> 8);
        ((low(a) * low(b)) >> 16) as u64
    });
    check(&sim, (64, 64), "add.cc.u64 x, a, b; addc.u64 r, c, 0;", |a, b, c| {
        c.wrapping_add(u64::from(a.checked_add(b).is_none()))
    });
    check(
        &sim,
        (32, 32),
        "sub.cc.u32 t, a, b; subc.u32 r, c, a; mov.u32 t, %tid.x; mad.lo.u32 t, u, v, t;",
        |a, b, c| c.wrapping_sub(a).wrapping_sub(u64::from(b > a)),
    );
    check(&sim, (32, 32), "add.sat.s32 r, a, b;", |a, b, _| (a as i32).saturating_add(b as i32) as u64);
}

#[test]
fn bits_are_counted_taken_and_put() {
    let sim = Sim::start("h200");
    check(&sim, (32, 32), "popc.b32 r, a;", |a, _, _| u64::from(a.count_ones()));
    check(&sim, (64, 32), "popc.b64 r, a;", |a, _, _| u64::from(a.count_ones()));
    check(&sim, (32, 32), "clz.b32 r, a;", |a, _, _| u64::from((a as u32).leading_zeros()));
    check(&sim, (64, 32), "clz.b64 r, a;", |a, _, _| u64::from(a.leading_zeros()));
    check(&sim, (64, 64), "brev.b64 r, a;", |a, _, _| a.reverse_bits());
    check(&sim, (32, 32), "bfind.u32 r, a;", |a, _, _| a.checked_ilog2().map_or(u64::MAX, u64::from));
    // Fields, bit by bit.
    let field = |a: u64, from: u64, length: u64, width: u64, signed: bool| {
        let (from, length) = (from & 0xFF, length & 0xFF);
        let top = (from + length).saturating_sub(1).min(width - 1);
        let sign = signed && length > 0 && a >> top & 1 != 0;
        (0..width).fold(0, |all, i| {
            let bit = if i < length && from + i < width { a >> (from + i) & 1 } else { u64::from(sign) };
            all | bit << i
        })
    };
    check(&sim, (32, 32), "bfe.u32 r, a, b, c;", |a, b, c| field(a, b, c, 32, false));
    check(&sim, (32, 32), "bfe.s32 r, a, b, c;", |a, b, c| field(a, b, c, 32, true));
    check(
        &sim,
        (64, 64),
        "cvt.u32.u64 t, b; cvt.u32.u64 u, c; bfe.s64 r, a, t, u; mov.u32 t, %tid.x; mov.u32 u, %ctaid.x; mad.lo.u32 t, u, v, t;",
        |a, b, c| field(a, b, c, 64, true),
    );
    check(&sim, (32, 32), "bfi.b32 r, a, b, c, 7;", |a, b, c| {
        let from = c & 0xFF;
        (0..32).fold(0, |all, i| {
            let inside = i >= from && i < from + 7;
            all | (if inside { a >> (i - from) & 1 } else { b >> i & 1 }) << i
        })
    });
    check(&sim, (32, 32), "prmt.b32 r, a, b, c;", |a, b, c| {
        let bytes = [a.to_le_bytes(), b.to_le_bytes()];
        (0..4).fold(0, |all, i| {
            let choice = (c >> (4 * i) & 0xF) as usize;
            let byte = bytes[choice >> 2 & 1][choice & 3];
            let byte = if choice & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
            all | u64::from(byte) << (8 * i)
        })
    });
    check(&sim, (32, 32), "lop3.b32 r, a, b, c, 0xE8;", |a, b, c| a & b | b & c | a & c);
    check(&sim, (32, 32), "shf.l.wrap.b32 r, a, b, c;", |a, b, c| (b << 32 | a) << (c & 31) >> 32);
    check(&sim, (32, 64), "mov.b64 r, {a, b};", |a, b, _| a | b << 32);
    check(&sim, (64, 32), "mov.b64 {t, r}, a; mov.u32 t, %tid.x; mad.lo.u32 t, u, v, t;", |a, _, _| a >> 32);
    check(&sim, (16, 64), "mov.b64 r, {a, b, c, a};", |a, b, c| a | b << 16 | c << 32 | a << 48);
}

#[test]
fn atomics_give_the_old_value_and_leave_the_new_one() {
    let sim = Sim::start("h200");
    type New = fn(u64, u64, u64) -> u64;
    let words: [(&str, New); 12] = [
        ("add.u32", |a, b, _| a.wrapping_add(b)),
        ("add.s32", |a, b, _| a.wrapping_add(b)),
        ("min.u32", |a, b, _| a.min(b)),
        ("max.u32", |a, b, _| a.max(b)),
        ("min.s32", |a, b, _| (a as i32).min(b as i32) as u64),
        ("max.s32", |a, b, _| (a as i32).max(b as i32) as u64),
        ("and.b32", |a, b, _| a & b),
        ("or.b32", |a, b, _| a | b),
        ("xor.b32", |a, b, _| a ^ b),
        ("exch.b32", |_, b, _| b),
        ("inc.u32", |a, b, _| if a >= b { 0 } else { a + 1 }),
        ("dec.u32", |a, b, _| if a == 0 || a > b { b } else { a - 1 }),
    ];
    let place = |width: u32| format!("ld.param.u64 y, [out]; mul.wide.u32 i, t, {width}; add.u64 y, y, i;");
    for (op, new) in words {
        let own = format!("{} st.global.b32 [y], a;", place(4));
        check(&sim, (32, 32), &format!("{own} atom.global.{op} r, [y], b;"), |a, _, _| a);
        check(
            &sim,
            (32, 32),
            &format!("{own} red.relaxed.gpu.global.{op} [y], b; ld.global.b32 r, [y];"),
            new,
        );
    }
    let wide: [(&str, New); 4] = [
        ("add.u64", |a, b, _| a.wrapping_add(b)),
        ("min.s64", |a, b, _| (a as i64).min(b as i64) as u64),
        ("max.u64", |a, b, _| a.max(b)),
        ("exch.b64", |_, b, _| b),
    ];
    for (op, new) in wide {
        let code = format!("{} st.b64 [y], a; atom.{op} x, [y], b; ld.b64 r, [y];", place(8));
        check(&sim, (64, 64), &code, new);
    }
    let code = format!(
        "{} st.global.b32 [y], a; atom.global.cas.b32 u, [y], c, b; ld.global.b32 r, [y]; mov.u32 u, %ctaid.x;",
        place(4)
    );
    check(&sim, (32, 32), &code, |a, b, c| if a == c { b } else { a });
    check_float(
        &sim,
        &format!("{} st.global.f32 [y], a; atom.global.add.f32 f, [y], b; ld.global.b32 r, [y];", place(4)),
        |a, b, _| a + b,
    );
}

#[test]
fn predicates_combine() {
    let sim = Sim::start("h200");
    for (op, both) in
        [("and", (|a, b| a && b) as fn(bool, bool) -> bool), ("or", |a, b| a || b), ("xor", |a, b| a != b)]
    {
        let code = format!("setp.lt.s32 q, b, c; setp.lt.{op}.s32 p, a, b, !q; selp.b32 r, 1, 0, p;");
        check(&sim, (32, 32), &code, |a, b, c| {
            u64::from(both((a as i32) < b as i32, (b as i32) >= c as i32))
        });
        let code =
            format!("setp.lt.s32 q, b, c; setp.gt.s32 p, a, b; {op}.pred p, p, q; selp.b32 r, 1, 0, p;");
        check(&sim, (32, 32), &code, |a, b, c| u64::from(both((a as i32) > b as i32, (b as i32) < c as i32)));
    }
    check(
        &sim,
        (32, 32),
        "setp.eq.u32 p|q, a, b; selp.b32 r, a, c, q;",
        |a, b, c| if a == b { c } else { a },
    );
    check(
        &sim,
        (32, 32),
        "setp.ge.u32 p, a, b; mov.b32 r, c; @p mov.b32 r, a; @!p add.u32 r, r, 1;",
        |a, b, c| {
            if a >= b { a } else { c + 1 }
        },
    );
    check(
        &sim,
        (32, 32),
        "set.lt.u32.s32 r, a, b;",
        |a, b, _| if (a as i32) < b as i32 { u64::MAX } else { 0 },
    );
    check(&sim, (32, 32), "slct.b32.s32 r, a, b, c;", |a, b, c| if c as i32 >= 0 { a } else { b });
}

/// Floats that are worth a look, as bits.
fn floats() -> Vec<[u64; 3]> {
    let mut all: Vec<f32> =
        vec![0.0, -0.0, 1.0, -1.0, 0.1, 3.0, 1.5, 2.5, -2.5, 1e10, -3.7e-12, 16_777_217.0];
    all.extend([
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-40,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ]);
    all.extend([
        127.5,
        -128.5,
        255.4,
        65_535.7,
        2_147_483_648.0,
        -2_147_483_904.0,
        4_294_967_296.0,
        9.3e18,
        1.9e19,
    ]);
    all.extend([1.0 + f32::EPSILON, 1.0 - f32::EPSILON / 2.0, 0.333_333_34]);
    let bits = |value: f32| u64::from(value.to_bits());
    all.iter().flat_map(|a| all.iter().map(move |b| [bits(*a), bits(*b), bits(a * 0.7 + b)])).collect()
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

#[track_caller]
fn check_float(sim: &Sim, code: &str, wanted: impl Fn(f32, f32, f32) -> f32) {
    let inputs = floats();
    let got = run(sim, (32, 32), code, &inputs);
    for ([a, b, c], got) in inputs.into_iter().zip(got) {
        let (a, b, c) = (single(a), single(b), single(c));
        let wanted = wanted(a, b, c);
        let wanted = if wanted.is_nan() { 0x7FFF_FFFF } else { u64::from(wanted.to_bits()) };
        assert_eq!(got, wanted, "{code}: {a:e} {b:e} {c:e}: {:e}", single(got));
    }
}

#[test]
fn floats_of_32_bits() {
    let sim = Sim::start("h200");
    check_float(&sim, "add.f32 r, a, b;", |a, b, _| a + b);
    check_float(&sim, "sub.rn.f32 r, a, b;", |a, b, _| a - b);
    check_float(&sim, "mul.f32 r, a, b;", |a, b, _| a * b);
    check_float(&sim, "div.rn.f32 r, a, b;", |a, b, _| a / b);
    check_float(&sim, "fma.rn.f32 r, a, b, c;", f32::mul_add);
    check_float(&sim, "sqrt.rn.f32 r, a;", |a, _, _| a.sqrt());
    check_float(&sim, "rcp.rn.f32 r, a;", |a, _, _| 1.0 / a);
    let flushed = |value: f32| if value.is_subnormal() { 0.0_f32.copysign(value) } else { value };
    check_float(&sim, "add.ftz.f32 r, a, b;", |a, b, _| flushed(flushed(a) + flushed(b)));
    let cut = |value: f32| if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) + 0.0 };
    check_float(&sim, "mul.sat.f32 r, a, b;", |a, b, _| cut(a * b));
    // A number counts where the other is none, and zeros have an order.
    let smaller = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => {
            if a < b {
                a
            } else {
                b
            }
        }
    };
    check_float(&sim, "min.f32 r, a, b;", |a, b, _| smaller(a, b));
    check_float(&sim, "max.f32 r, a, b;", |a, b, _| -smaller(-a, -b));
    for (op, holds) in [
        ("lt", (|a, b| a < b) as fn(f32, f32) -> bool),
        ("ne", |a, b| a < b || b < a),
        ("neu", |a, b| a != b),
        ("geu", |a, b| a >= b || a.is_nan() || b.is_nan()),
        ("num", |a, b| !a.is_nan() && !b.is_nan()),
    ] {
        let code = format!("setp.{op}.f32 p, a, b; selp.f32 r, 0f3F800000, 0f00000000, p;");
        check_float(&sim, &code, |a, b, _| f32::from(u8::from(holds(a, b))));
    }
}

#[test]
fn floats_are_rounded_as_asked() {
    let sim = Sim::start("h200");
    // Of two neighbours the one on the right side, and not further than that.
    let within = |code: &str, exact: fn(f64, f64) -> f64, up: bool| {
        let inputs: Vec<[u64; 3]> = floats()
            .into_iter()
            .filter(|[a, b, _]| single(*a).is_normal() && single(*b).is_normal())
            .collect();
        let got = run(&sim, (32, 32), code, &inputs);
        for ([a, b, _], got) in inputs.into_iter().zip(got) {
            let (a, b, got) = (f64::from(single(a)), f64::from(single(b)), single(got));
            let exact = exact(a, b);
            if !exact.is_finite() || exact.abs() > f64::from(f32::MAX) || exact.abs() < 1e-30 {
                continue;
            }
            let (got, next) = if up {
                (f64::from(got), f64::from(got.next_down()))
            } else {
                (f64::from(got), f64::from(got.next_up()))
            };
            let right = if up { got >= exact && next <= exact } else { got <= exact && next >= exact };
            assert!(right, "{code}: {a:e} {b:e}: {got:e} for {exact:e}");
        }
    };
    within("add.rp.f32 r, a, b;", |a, b| a + b, true);
    within("add.rm.f32 r, a, b;", |a, b| a + b, false);
    within("mul.rp.f32 r, a, b;", |a, b| a * b, true);
    within("mul.rm.f32 r, a, b;", |a, b| a * b, false);
    within("div.rp.f32 r, a, b;", |a, b| a / b, true);
    within("div.rm.f32 r, a, b;", |a, b| a / b, false);
    check_float(&sim, "add.rz.f32 r, a, a;", |a, _, _| {
        if (a + a).is_infinite() && a.is_finite() { f32::MAX.copysign(a) } else { a + a }
    });
}

#[test]
fn numbers_are_converted() {
    let sim = Sim::start("h200");
    // Between integers: cut, or brought into range.
    check(&sim, (32, 32), "cvt.s8.s32 r, a;", |a, _, _| a as i8 as u64);
    check(&sim, (32, 32), "cvt.u16.u32 r, a;", |a, _, _| a & 0xFFFF);
    check(&sim, (32, 64), "cvt.s64.s32 r, a;", |a, _, _| a as i32 as u64);
    check(&sim, (32, 64), "cvt.u64.s32 r, a;", |a, _, _| a as i32 as u64);
    check(&sim, (32, 64), "cvt.s64.u32 r, a;", |a, _, _| a);
    check(&sim, (64, 32), "cvt.sat.u8.s64 r, a;", |a, _, _| (a as i64).clamp(0, 255) as u64);
    check(&sim, (64, 32), "cvt.sat.s16.s64 r, a;", |a, _, _| (a as i64).clamp(-32768, 32767) as u64);
    check(&sim, (64, 64), "cvt.sat.s64.u64 r, a;", |a, _, _| a.min(i64::MAX as u64));
    // To floats and back.
    check(&sim, (32, 32), "cvt.rn.f32.s32 r, a;", |a, _, _| u64::from((a as i32 as f32).to_bits()));
    check(&sim, (64, 32), "cvt.rn.f32.u64 r, a;", |a, _, _| u64::from((a as f32).to_bits()));
    check(&sim, (64, 32), "cvt.rn.f32.s64 r, a;", |a, _, _| u64::from((a as i64 as f32).to_bits()));
    check(&sim, (64, 64), "cvt.rn.f64.s64 r, a;", |a, _, _| (a as i64 as f64).to_bits());
    let inputs = floats();
    for (code, to, wanted) in [
        ("cvt.rzi.s32.f32 r, a;", 32, (|a| i64::from(a as i32) as u64) as fn(f32) -> u64),
        ("cvt.rzi.u32.f32 r, a;", 32, |a| u64::from(a as u32)),
        ("cvt.rzi.s8.f32 r, a;", 32, |a| a as i8 as u64),
        ("cvt.rni.u16.f32 r, a;", 32, |a| u64::from(a.round_ties_even() as u16)),
        ("cvt.rmi.s64.f32 r, a;", 64, |a| if a.is_nan() { 1 << 63 } else { a.floor() as i64 as u64 }),
        ("cvt.rpi.u64.f32 r, a;", 64, |a| if a.is_nan() { 1 << 63 } else { a.ceil() as u64 }),
        ("cvt.rzi.sat.u8.f32 r, a;", 32, |a| u64::from(a as u8)),
        ("cvt.rpi.f32.f32 r, a;", 32, |a| {
            u64::from(if a.is_nan() { 0x7FFF_FFFF } else { a.ceil().to_bits() })
        }),
        ("cvt.f64.f32 r, a;", 64, |a| f64::from(a).to_bits()),
    ] {
        let mask = u64::MAX >> (64 - to);
        for ([a, ..], got) in inputs.iter().zip(run(&sim, (32, to), code, &inputs)) {
            assert_eq!(got, wanted(single(*a)) & mask, "{code}: {:e}", single(*a));
        }
    }
    // All numbers of half precision, there and back.
    let halves: Vec<[u64; 3]> = (0..65536).map(|half| [half, 0, 0]).collect();
    let there = run(&sim, (16, 32), "cvt.f32.f16 r, a;", &halves);
    for (half, got) in halves.iter().zip(&there) {
        let (sign, exponent, digits) = (half[0] >> 15, half[0] >> 10 & 31, (half[0] & 1023) as f32);
        let size = match exponent {
            0 => digits * 2.0_f32.powi(-24),
            31 if digits == 0.0 => f32::INFINITY,
            31 => f32::NAN,
            _ => (1.0 + digits / 1024.0) * 2.0_f32.powi(exponent as i32 - 15),
        };
        let wanted = if sign == 1 { -size } else { size };
        let bits = if wanted.is_nan() { 0x7FFF_FFFF } else { wanted.to_bits() };
        assert_eq!(*got, u64::from(bits), "{:#x}", half[0]);
    }
    let back = run(
        &sim,
        (32, 16),
        "cvt.rn.f16.f32 r, a;",
        &there.iter().map(|bits| [*bits, 0, 0]).collect::<Vec<_>>(),
    );
    for (half, got) in halves.iter().zip(back) {
        let nan = half[0] & 0x7C00 == 0x7C00 && half[0] & 0x3FF != 0;
        assert_eq!(got, if nan { 0x7FFF } else { half[0] });
    }
}

#[test]
fn doubles() {
    let sim = Sim::start("h200");
    let all =
        [0.0, -0.0, 1.0, -3.5, 0.1, 1e300, -1e-300, f64::MAX, 5e-324, f64::INFINITY, 1.0 + f64::EPSILON];
    let inputs: Vec<[u64; 3]> = all
        .iter()
        .flat_map(|a: &f64| all.iter().map(move |b| [a.to_bits(), b.to_bits(), (a * 0.3).to_bits()]))
        .collect();
    for (code, wanted) in [
        ("add.f64 r, a, b;", (|a, b, _| a + b) as fn(f64, f64, f64) -> f64),
        ("mul.rn.f64 r, a, b;", |a, b, _| a * b),
        ("div.rn.f64 r, a, b;", |a, b, _| a / b),
        ("fma.rn.f64 r, a, b, c;", f64::mul_add),
        ("sqrt.rn.f64 r, a;", |a, _, _| a.sqrt()),
        ("abs.f64 r, a;", |a, _, _| a.abs()),
        ("neg.f64 r, a;", |a, _, _| -a),
    ] {
        for ([a, b, c], got) in inputs.iter().zip(run(&sim, (64, 64), code, &inputs)) {
            let [a, b, c] = [a, b, c].map(|bits| f64::from_bits(*bits));
            let (wanted, got) = (wanted(a, b, c), f64::from_bits(got));
            assert!(
                wanted.to_bits() == got.to_bits() || (wanted.is_nan() && got.is_nan()),
                "{code}: {a:e} {b:e}: {got:e}"
            );
        }
    }
}

const HEAD: &str = ".version 7.1\n.target sm_70\n.address_size 64\n";

#[test]
fn a_loop_with_shared_memory_barriers_and_atomics_adds_up() {
    let sim = Sim::start("h200");
    // Each block sums its 256 words in shared memory, by halves, and adds the sum to a word.
    let text = format!(
        "{HEAD}.visible .global .align 8 .u64 total = 5;
        .extern .shared .align 16 .b8 more[];
        .visible .entry k(.param .u64 in) {{
        .reg .b64 %rd<6>; .reg .b32 %r<10>; .reg .pred %p<3>; .shared .align 4 .b8 part[1024];
        ld.param.u64 %rd1, [in]; cvta.to.global.u64 %rd1, %rd1;
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1;
        mul.wide.u32 %rd2, %r4, 4; add.s64 %rd1, %rd1, %rd2; ld.global.nc.u32 %r5, [%rd1];
        shl.b32 %r6, %r1, 2; mov.u32 %r7, part; add.s32 %r7, %r7, %r6; st.shared.u32 [%r7], %r5;
        mov.u32 %r8, 128;
        $L__again:
        bar.sync 0;
        setp.ge.u32 %p1, %r1, %r8; @%p1 bra $L__skip;
        shl.b32 %r6, %r8, 2; add.s32 %r6, %r7, %r6; ld.shared.u32 %r5, [%r6]; ld.shared.u32 %r9, [%r7];
        add.s32 %r9, %r9, %r5; st.shared.u32 [%r7], %r9;
        $L__skip:
        shr.u32 %r8, %r8, 1; setp.ne.s32 %p2, %r8, 0; @%p2 bra.uni $L__again;
        setp.ne.s32 %p1, %r1, 0; @%p1 bra $L__done;
        ld.shared.u32 %r9, [part]; cvt.u64.u32 %rd3, %r9; mov.u64 %rd4, total;
        atom.global.add.u64 %rd5, [%rd4], %rd3;
        {{ .reg .b32 %r1; mov.u32 %r1, more; st.shared.u32 [%r1+4], %r9; }}
        $L__done: ret; }}"
    );
    let module = sim.load(&text).map_err(name).expect("a good program");
    let words: Vec<u32> = (0..1024).map(|i| i * 7 + 1).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let block = sim.alloc(4096);
    sim.write(block, &bytes);
    let function = sim.function(module, "k");
    let addresses = [&raw const block];
    // SAFETY: one parameter of eight bytes.
    ok(unsafe { cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 64, 0, addresses.as_ptr(), std::ptr::null()) });
    let (mut at, mut size) = (0, 0);
    // SAFETY: a terminated text.
    ok(unsafe { cuModuleGetGlobal_v2(&mut at, &mut size, module, c"total".as_ptr()) });
    assert_eq!(size, 8);
    let wanted: u64 = 5 + words.iter().map(|word| u64::from(*word)).sum::<u64>();
    assert_eq!(sim.read(at, 8), wanted.to_le_bytes());
}

#[test]
fn elements_of_up_to_16_bytes_are_gathered_over_many_dimensions() {
    let sim = Sim::start("h200");
    // out[i] = in[sum over dimensions of (coordinate * stride)], shapes and strides in a parameter of 512 bytes.
    for (width, load, store) in [
        (1_usize, "ld.global.u8 %h1, [%s];", "st.global.u8 [%d], %h1;"),
        (2, "ld.global.u16 %h1, [%s];", "st.global.u16 [%d], %h1;"),
        (4, "ld.global.u32 %r1, [%s];", "st.global.u32 [%d], %r1;"),
        (8, "ld.global.v2.u32 {%r1, %r2}, [%s];", "st.global.v2.u32 [%d], {%r1, %r2};"),
        (16, "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%s];", "st.global.v4.u32 [%d], {%r1, %r2, %r3, %r4};"),
    ] {
        let text = format!(
            "{HEAD}.visible .entry gather(.param .u64 out, .param .u64 in, .param .u64 count, .param .u32 rank, .param .align 8 .b8 dims[512]) {{
            .reg .b64 %s, %d, %i, %n, %q, %m, %k, %e, %p0; .reg .b32 %r<8>; .reg .b16 %h<2>; .reg .pred %p<2>; .local .align 8 .b8 own[512];
            mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x; mov.u32 %r7, %tid.x; cvt.u64.u32 %i, %r7; mad.wide.u32 %i, %r5, %r6, %i;
            ld.param.u64 %n, [count]; setp.ge.u64 %p1, %i, %n; @%p1 ret;
            ld.param.u64 %s, [in]; ld.param.u64 %d, [out]; mad.lo.u64 %d, %i, {width}, %d; ld.param.u32 %r5, [rank];
            $next: setp.eq.u32 %p1, %r5, 0; @%p1 bra $done;
            sub.u32 %r5, %r5, 1; mul.wide.u32 %k, %r5, 16; mov.u64 %e, dims; add.u64 %e, %e, %k;
            ld.param.v2.u64 {{%n, %q}}, [%e]; rem.u64 %m, %i, %n; div.u64 %i, %i, %n; mad.lo.s64 %s, %m, %q, %s; bra $next;
            $done: {load} {store} ret; }}"
        );
        let module = sim.load(&text).map_err(name).expect("a good program");
        let function = sim.function(module, "gather");
        // Seven dimensions, backwards in memory.
        let shape = [3_u64, 1, 4, 2, 5, 2, 3];
        let count: u64 = shape.iter().product();
        let source: Vec<u8> = (0..count as usize * width).map(|i| (i * 13 + i / 256) as u8).collect();
        let (from, to) = (sim.alloc(source.len()), sim.alloc(source.len()));
        sim.write(from, &source);
        let mut dims = [0_u64; 64];
        let mut stride = width as u64;
        for (d, size) in shape.iter().enumerate() {
            dims[2 * d] = *size;
            dims[2 * d + 1] = stride;
            stride *= size;
        }
        let (rank, threads) = (shape.len() as u64, 64);
        let params = [&raw const to, &raw const from, &raw const count, &raw const rank, dims.as_ptr()];
        let blocks = count.div_ceil(threads) as u32;
        // SAFETY: an address for each parameter, of as many bytes.
        ok(unsafe {
            cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads as u32,
                1,
                1,
                0,
                0,
                params.as_ptr(),
                std::ptr::null(),
            )
        });
        let got = sim.read(to, source.len());
        for i in 0..count {
            let (mut rest, mut at) = (i, 0);
            for d in (0..shape.len()).rev() {
                at += rest % shape[d] * dims[2 * d + 1];
                rest /= shape[d];
            }
            let (at, i) = (at as usize, i as usize * width);
            assert_eq!(got[i..i + width], source[at..at + width], "element {i} of {width} bytes");
        }
    }
}

#[test]
fn warps_and_parts_of_a_block_wait_for_each_other() {
    let sim = Sim::start("h200");
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 out) {{ .reg .b64 %a; .reg .b32 %r<6>; .reg .pred %p; .shared .align 4 .b8 s[512];
        ld.param.u64 %a, [out]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r2, %r2, %r1;
        st.shared.u32 [%r2], %r0; bar.warp.sync 0xffffffff;
        xor.b32 %r3, %r0, 31; shl.b32 %r3, %r3, 2; mov.u32 %r4, s; add.u32 %r3, %r3, %r4; ld.shared.u32 %r5, [%r3];
        setp.ge.u32 %p, %r0, 64; @%p bra second; barrier.sync 1, 64; bra over; second: barrier.cta.sync 2, 64; over:
        cvt.u64.u32 %a, %r1; ld.param.u64 %a, [out]; mad.wide.u32 %a, %r0, 4, %a; st.global.u32 [%a], %r5; }}"
    );
    let module = sim.load(&text).map_err(name).expect("a good program");
    let out = sim.alloc(512);
    ok(sim.launch(sim.function(module, "k"), 1, 128, 0, &[out]));
    for (i, word) in sim.read(out, 512).chunks(4).enumerate() {
        assert_eq!(word, (i as u32 ^ 31).to_le_bytes());
    }
}
