//! Projects outside of this one (`tests/consumers`) that find an installed library, build with it and run: through CMake and
//! pkg-config, shared and static, from a tree that was moved after it was installed.

use super::native::{build_project, configure, project_options};
use super::{Notes, Problem, simulator};
use crate::dist::{self, fresh_folder};
use crate::shell::{Run, make_folder, root, write_file};
use crate::tally::Tally;
use crate::tools::{self, CMake};
use std::path::Path;

/// Claims, each tried once and counted.
struct Claims<'a> {
    notes: &'a mut Notes,
    tally: Tally,
}

impl Claims<'_> {
    fn claim(&mut self, what: &str, holds: Result<(), String>) {
        self.tally += Tally::of_one(holds.is_ok());
        if let Err(error) = holds {
            self.notes.failures.push(format!("{what}:\n{error}"));
        }
    }
}

/// The library as CMake installs it.
pub fn installed(notes: &mut Notes) -> Result<Tally, Problem> {
    let tools = tools::cmake().map_err(Problem::LeftOut)?;
    super::build_needed()?;
    let work = fresh_folder("consumers")?;
    let package = work.join("package");
    let mut options = project_options();
    options.extend(["-DWARPMEM_BUILD_TESTS=OFF", "-DWARPMEM_BUILD_EXAMPLES=OFF"].map(str::to_string));
    options.push("-DCMAKE_INSTALL_LIBDIR=lib".to_string());
    build_project(&tools, root(), &package, &options)?;

    // Installed in one place and used from another.
    let (first, moved) = (work.join("first"), work.join("moved"));
    Run::new(&tools.cmake).arg("--install").arg(&package).arg("--prefix").arg(&first).keep()?;
    std::fs::rename(&first, &moved).map_err(|error| format!("{}: {error}", first.display()))?;

    let mut claims = Claims { notes, tally: Tally::default() };
    try_cmake(&mut claims, &tools, &moved, &work);
    try_pkg_config(&mut claims, &moved, &work);
    try_versions(&mut claims, &tools, &moved, &work);
    try_programs(&mut claims, &moved, &work);

    // A distribution's way: staged under another root, with the libraries in a folder of the architecture.
    let staged = work.join("staged");
    let system = work.join("system");
    options.retain(|option| !option.contains("LIBDIR"));
    options.push(format!("-DCMAKE_INSTALL_LIBDIR=lib/{}", multiarch()));
    options.push("-DCMAKE_INSTALL_PREFIX=/usr".to_string());
    build_project(&tools, root(), &system, &options)?;
    Run::new(&tools.cmake).arg("--install").arg(&system).env("DESTDIR", &staged).keep()?;
    let usr = staged.join("usr");
    claims.claim(
        "CMake, shared, from a staged tree with an architecture folder",
        cmake_project(&tools, &usr, "shared", &work.join("staged-shared")),
    );
    try_programs(&mut claims, &usr, &work);

    claims.claim("CMake, as a subdirectory", subdirectory(&tools, &work.join("subdirectory")));
    Ok(claims.tally)
}

/// The library as `cargo xtask dist` packs it.
pub fn archive(notes: &mut Notes) -> Result<Tally, Problem> {
    let tree = dist::make()?;
    let archive = dist::pack(&tree)?;
    super::build_needed()?;
    let work = fresh_folder("dist")?;
    Run::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&work).keep()?;
    let unpacked = work.join(tree.file_name().unwrap_or_default());
    let mut claims = Claims { notes, tally: Tally::default() };
    match tools::cmake() {
        Err(reason) => claims.notes.left_out.push(format!("CMake's part: {reason}")),
        Ok(tools) => {
            try_cmake(&mut claims, &tools, &unpacked, &work);
            try_versions(&mut claims, &tools, &unpacked, &work);
        }
    }
    try_pkg_config(&mut claims, &unpacked, &work);
    claims.claim("a bare compiler", bare_compiler(&unpacked, &work));
    try_programs(&mut claims, &unpacked, &work);
    Ok(claims.tally)
}

fn try_cmake(claims: &mut Claims<'_>, tools: &CMake, prefix: &Path, work: &Path) {
    for linking in ["shared", "static"] {
        claims.claim(
            &format!("CMake, {linking}"),
            cmake_project(tools, prefix, linking, &work.join(format!("cmake-{linking}"))),
        );
    }
}

fn try_pkg_config(claims: &mut Claims<'_>, prefix: &Path, work: &Path) {
    match tools::pkg_config() {
        Err(reason) => claims.notes.left_out.push(format!("pkg-config: {reason}")),
        Ok(pkg_config) => {
            for linking in ["shared", "static"] {
                claims.claim(
                    &format!("pkg-config, {linking}"),
                    pkg_config_program(&pkg_config, prefix, linking, work),
                );
            }
        }
    }
}

/// The programs that are installed beside the library: they need nothing but themselves, and see the machine.
fn try_programs(claims: &mut Claims<'_>, prefix: &Path, work: &Path) {
    let run = || {
        let shown = on_simulator(Run::new(prefix.join("bin/warpmem-info")).arg("--json")).keep()?;
        if shown.contains("\"alias\": \"cuda:1\"") { Ok(()) } else { Err(shown) }
    };
    claims.claim(&format!("warpmem-info in {}", dist::shown(prefix)), run());
    let replay = || {
        let log = work.join("one.log");
        let text = "warpmem-allocation-log 1\n\
                    thread,time,action,pointer,size,alignment,device,stream,tag,status\n\
                    1,5,allocate,0x1000,600,256,1,7,\"\",0\n";
        write_file(&log, text)?;
        let shown =
            on_simulator(Run::new(prefix.join("bin/warpmem-replay")).arg("--json").arg(&log)).keep()?;
        if shown.contains("\"peak_bytes\": 600") { Ok(()) } else { Err(shown) }
    };
    claims.claim(&format!("warpmem-replay in {}", dist::shown(prefix)), replay());
}

/// Asks for versions: those that this one can serve are found, others are refused.
fn try_versions(claims: &mut Claims<'_>, tools: &CMake, prefix: &Path, work: &Path) {
    let mut parts = dist::version().split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let (major, minor, patch) =
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let mut asked = vec![
        (format!("{major}.{minor}"), true),
        (format!("{major}.{minor}.{patch}"), true),
        (format!("{major}.{minor}.{}", patch + 1), false),
        (format!("{major}.{}", minor + 1), false),
        (format!("{}.0", major + 1), false),
        (format!("{major}.{minor}...<{major}.{}", minor + 1), true),
    ];
    if major == 0 && minor > 0 {
        asked.push((format!("0.{}.9", minor - 1), false));
    }
    for (version, found) in asked {
        let build = work.join(format!("version-{}", version.replace(['.', '<'], "-")));
        let configured = configure(
            tools,
            &root().join("tests/consumers/version"),
            &build,
            &[format!("-DCMAKE_PREFIX_PATH={}", prefix.display()), format!("-DASKED={version}")],
        );
        let held = configured.and_then(|output| {
            let expected = if found { "warpmem was found" } else { "warpmem was not found" };
            if output.contains(expected) { Ok(()) } else { Err(output) }
        });
        claims.claim(&format!("version {version} is {}", if found { "found" } else { "refused" }), held);
    }
}

fn cmake_project(tools: &CMake, prefix: &Path, linking: &str, build: &Path) -> Result<(), String> {
    let options = [
        format!("-DCMAKE_PREFIX_PATH={}", prefix.display()),
        format!("-DLINKING={linking}"),
        format!("-DVERSION={}", dist::series()),
        format!("-DCMAKE_LIBRARY_ARCHITECTURE={}", multiarch()),
    ];
    build_project(tools, &root().join("tests/consumers/cmake"), build, &options)?;
    for program in ["consumer-c", "consumer-cpp"] {
        run_program(Run::new(build.join(program)))?;
        uses_the_library(&build.join(program), linking)?;
    }
    Ok(())
}

fn subdirectory(tools: &CMake, build: &Path) -> Result<(), String> {
    let mut options = project_options();
    options.push(format!("-DWARPMEM_SOURCE={}", root().display()));
    build_project(tools, &root().join("tests/consumers/subdirectory"), build, &options)?;
    for program in ["consumer-shared", "consumer-static", "consumer-default"] {
        run_program(Run::new(build.join(program)))?;
    }
    Ok(())
}

fn pkg_config_program(pkg_config: &Path, prefix: &Path, linking: &str, work: &Path) -> Result<(), String> {
    let mut ask = Run::new(pkg_config).args(["--cflags", "--libs"]);
    if linking == "static" {
        ask = ask.arg("--static");
    }
    let flags = ask.arg("warpmem").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).keep()?;
    let library = prefix.join("lib");
    let flags = flags.split_whitespace().map(|flag| match (linking, flag) {
        // The linker prefers the shared library of a folder that has both.
        ("static", "-lwarpmem") => "-l:libwarpmem.a",
        (_, flag) => flag,
    });
    let binary = work.join(format!("pkg-config-{linking}"));
    Run::new(tools::c_compiler())
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&binary)
        .arg(root().join("tests/consumers/consumer.c"))
        .args(flags)
        .keep()?;
    run_program(Run::new(&binary).env("LD_LIBRARY_PATH", library))?;
    uses_the_library(&binary, linking)
}

fn bare_compiler(prefix: &Path, work: &Path) -> Result<(), String> {
    let binary = work.join("bare");
    make_folder(work)?;
    Run::new(tools::c_compiler())
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&binary)
        .arg(root().join("tests/consumers/consumer.c"))
        .arg("-I")
        .arg(prefix.join("include"))
        .arg("-L")
        .arg(prefix.join("lib"))
        .arg("-lwarpmem")
        .keep()?;
    run_program(Run::new(&binary).env("LD_LIBRARY_PATH", prefix.join("lib")))
}

fn run_program(run: Run) -> Result<(), String> {
    on_simulator(run).keep().map(drop)
}

fn on_simulator(run: Run) -> Run {
    run.env("WARPMEM_LIBCUDA", simulator()).env("WARPSIM_TOPOLOGY", "h200x2").limit(120)
}

/// A program that was meant to hold the library in itself must not ask the loader for it, and the other way round.
fn uses_the_library(binary: &Path, linking: &str) -> Result<(), String> {
    let bytes = std::fs::read(binary).map_err(|error| format!("{}: {error}", binary.display()))?;
    let soname = format!("libwarpmem.so.{}", dist::series());
    let asks = bytes.windows(soname.len() + 1).any(|window| window == format!("{soname}\0").as_bytes());
    if asks == (linking == "shared") {
        Ok(())
    } else {
        Err(format!("{} {} {soname}", binary.display(), if asks { "asks for" } else { "does not ask for" }))
    }
}

/// The name of the architecture in library paths, as the compiler has it.
fn multiarch() -> String {
    let answer = Run::new(tools::c_compiler()).arg("-print-multiarch").keep().unwrap_or_default();
    let answer = answer.trim();
    if answer.is_empty() { format!("{}-linux-gnu", std::env::consts::ARCH) } else { answer.to_string() }
}
