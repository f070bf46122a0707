//! The `weir` command.

fn main() -> std::process::ExitCode {
    admin_cli::main()
}
