//! Privileges and children of real processes.
//!
//! Capabilities belong to threads, and the usual harness always has two. So this test has its own `main`: started with a
//! role it is the process that the role tells, on its only thread; else it runs the tests, which start it in roles.

#![allow(
    clippy::print_stdout,
    reason = "the protocol between tests and roles, and the report of a test harness"
)]

mod privileges;
mod supervise;

use std::panic::{UnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};

/// Tells a process which role it plays.
const ROLE: &str = "KVPROV_TEST_ROLE";

type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        return match role.as_str() {
            "privileges" => privileges::role(&arguments[0]),
            _ => supervise::role(&arguments),
        };
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let tests = [privileges::TESTS, supervise::TESTS].concat();
    if has("--list") {
        // As nextest asks for it. No test is ignored.
        if !has("--ignored") {
            tests.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str()));
    let mut failed = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| chosen(name)) {
        let passed = passes(test);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes(test: impl FnOnce() + UnwindSafe) -> bool {
    catch_unwind(test).is_ok()
}

/// This program in a role.
fn in_role(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, role);
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
