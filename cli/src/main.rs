//! The program `dueq`: see the library `dueq_cli`.

// jemalloc gives free memory back to the system, even while a server is idle.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    dueq_cli::main()
}
