//! What a command line runs: a program, a script or a module.

use super::Pattern;

/// What a command line runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation<'a> {
    /// Base name of the program, or of the script that an interpreter runs.
    pub program: &'a str,
    /// The module that an interpreter was told to run.
    pub module: Option<&'a str>,
    /// Path of the script that an interpreter runs.
    pub script: Option<&'a str>,
    /// What follows.
    pub rest: &'a [String],
}

/// A way to start a process: `-m MODULE WORD…` or `PROGRAM WORD…`.
#[derive(Debug, Clone)]
pub(crate) struct RunSpec {
    name: Pattern,
    is_module: bool,
    /// The path of the module's file, from the package on.
    module_files: Vec<String>,
    words: Vec<String>,
}

// === impl Invocation ===

impl<'a> Invocation<'a> {
    /// Reads arguments. `None` when there is none, or the interpreter runs a text or its input.
    pub fn of(arguments: &'a [String]) -> Option<Self> {
        let (first, rest) = arguments.split_first()?;
        let program = base_name(first);
        if !is_interpreter(program) {
            return Some(Self { program, module: None, script: None, rest });
        }
        let mut at = 0;
        while let Some(argument) = rest.get(at) {
            let Some(option) = argument.strip_prefix('-').filter(|option| !option.is_empty()) else {
                let program = base_name(argument);
                return Some(Self { program, module: None, script: Some(argument), rest: &rest[at + 1..] });
            };
            match option.chars().last() {
                _ if option.starts_with('-') => at += 1,
                Some('c') if option.len() <= 3 => return None,
                Some('m') => {
                    let module = rest.get(at + 1)?;
                    return Some(Self { program, module: Some(module), script: None, rest: &rest[at + 2..] });
                }
                Some('W' | 'X') if option.len() == 1 => at += 2,
                _ => at += 1,
            }
        }
        None
    }
}

// === impl RunSpec ===

impl RunSpec {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let first = words.next()?;
        let is_module = first == "-m";
        let name = if is_module { words.next()? } else { first };
        let module_files = match (is_module, name.strip_suffix('*')) {
            (true, None) => {
                let path = name.replace('.', "/");
                vec![format!("/{path}.py"), format!("/{path}/__main__.py")]
            }
            _ => Vec::new(),
        };
        Some(Self { name: Pattern::parse(&name)?, is_module, module_files, words: words.collect() })
    }

    pub(crate) fn matches(&self, invocation: &Invocation<'_>) -> bool {
        self.rest(invocation).is_some()
    }

    /// What follows the words of this start; `None` when the command line runs something else.
    pub(crate) fn rest<'a>(&self, invocation: &Invocation<'a>) -> Option<&'a [String]> {
        let is_it = match (self.is_module, invocation.module, invocation.script) {
            (true, Some(module), _) => self.name.matches(module),
            (true, None, Some(script)) => {
                self.module_files.iter().any(|file| script.ends_with(file.as_str()))
            }
            (true, None, None) | (false, Some(_), _) => false,
            (false, None, _) => self.name.matches(invocation.program),
        };
        let (words, rest) = invocation.rest.split_at_checked(self.words.len())?;
        (is_it && words == self.words.as_slice()).then_some(rest)
    }
}

fn base_name(path: &str) -> &str {
    // A login shell marks its name with a dash.
    path.rsplit('/').next().unwrap_or(path).trim_start_matches('-')
}

/// Whether a program runs what its arguments name. Shells do not count: what they start is a process of its own.
fn is_interpreter(name: &str) -> bool {
    let version = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    version.is_some_and(|version| {
        version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b't')
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;

    fn arguments(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn runs(spec: &str, line: &str) -> bool {
        let arguments = arguments(line);
        Invocation::of(&arguments)
            .is_some_and(|invocation| RunSpec::parse(spec).unwrap().matches(&invocation))
    }

    #[test]
    fn a_module_is_told_by_option_or_by_the_path_of_its_file() {
        for line in [
            "python -m e.server --x",
            "/v/bin/python3.11 -u -X dev -W ignore -m e.server",
            "python3 -Bum e.server",
            "python /v/lib/e/server.py --x",
            "python /v/lib/e/server/__main__.py",
        ] {
            assert!(runs("-m e.server", line), "{line}");
        }
        for line in [
            "python -m e.server2",
            "python -m pip install e.server",
            "vi /v/lib/e/server.py",
            "e.server",
            "python",
            "python -m",
        ] {
            assert!(!runs("-m e.server", line), "{line}");
        }
    }

    #[test]
    fn a_program_is_told_by_its_name_and_the_words_after_it() {
        for line in [
            "e serve m",
            "/usr/bin/e serve",
            "/v/bin/python /v/bin/e serve --port 1",
            "python3.12 -I e serve",
        ] {
            assert!(runs("e serve", line), "{line}");
        }
        for line in [
            "e bench serve",
            "e",
            "sh -c e serve",
            "uv run e serve",
            "grep e serve",
            "python -c e serve",
            "python -m e serve",
        ] {
            assert!(!runs("e serve", line), "{line}");
        }
    }
}
