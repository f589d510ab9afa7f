//! The program `dueq`: see the library `dueq_cli`.

fn main() -> std::process::ExitCode {
    dueq_cli::main()
}
