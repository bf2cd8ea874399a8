//! `cargo xtask demo`: the tour, on the GPUs of this machine, or on the CPU and two simulated GPUs where there is none.

use crate::dist::{build_release, release_folder, shown};
use crate::programs;
use crate::shell::{Run, build_folder, make_folder, write_file};
use crate::tools::c_compiler;

/// Asks the driver as any program would, in a process of its own: a broken driver then costs nothing but this answer.
const GPU_COUNT: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
    int count = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : 0;
    int (*get_count)(int *) = driver ? (int (*)(int *))dlsym(driver, "cuDeviceGetCount") : 0;
    if (!init || !get_count || init(0) != 0 || get_count(&count) != 0)
        count = 0;
    printf("%d\n", count);
    return 0;
}
"#;

pub fn command() -> Result<(), String> {
    println!("building the library, which takes a minute or two the first time");
    build_release(&["warpmem", "warpsim"])?;
    let folder = build_folder("demo");
    make_folder(&folder)?;
    let examples = programs::in_folder("examples-c");
    let tour =
        examples.iter().find(|program| program.stem == "tour").ok_or("there is no examples-c/tour.c")?;
    let library = dist_library(&folder)?;
    let binary = folder.join("tour");
    tour.compile(&library, &library.display().to_string(), None, &binary)?;
    let mut run = Run::new(&binary);
    let gpus = gpu_count(&folder);
    if gpus > 0 {
        println!("running {} on the {gpus} GPUs of this machine\n", shown(&tour.source));
    } else {
        println!("no GPU is here: running {} on the CPU and two simulated GPUs\n", shown(&tour.source));
        run = run
            .env("WARPMEM_LIBCUDA", release_folder().join("libwarpsim.so"))
            .env("WARPSIM_TOPOLOGY", "h200x2");
    }
    run.show()
}

/// A folder with the library under the names that a linked program looks for.
fn dist_library(folder: &std::path::Path) -> Result<std::path::PathBuf, String> {
    let library = folder.join("lib");
    crate::shell::remove_folder(&library)?;
    crate::dist::install_library(&library)?;
    Ok(library)
}

fn gpu_count(folder: &std::path::Path) -> u32 {
    let (source, binary) = (folder.join("gpu-count.c"), folder.join("gpu-count"));
    let ask = || -> Result<String, String> {
        write_file(&source, GPU_COUNT)?;
        Run::new(c_compiler()).args(["-w", "-o"]).arg(&binary).arg(&source).arg("-ldl").keep()?;
        Run::new(&binary).limit(60).keep()
    };
    ask().ok().and_then(|answer| answer.trim().parse().ok()).unwrap_or(0)
}
