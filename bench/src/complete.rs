//! The completions of a word after `forkless bench`, in the form of `forkless completions`: a line that says what the shell adds,
//! and a line for each value.

use std::{
    ffi::OsString,
    io::{Write, stdout},
};

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::engine::complete;

use super::options::BenchOptions;

/// Prints the completions of the last of the words that follow `forkless bench`.
pub(crate) fn print(words: &[OsString]) -> Result<()> {
    let is_option = |word: Option<&OsString>| word.is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
    let (word, before) = (words.last(), words.iter().nth_back(1));
    let is_program = !is_option(word) && !is_option(before);
    let mut command = BenchOptions::command();
    let line: Vec<OsString> = [OsString::from("forkless-bench")].into_iter().chain(words.iter().cloned()).collect();
    let mut out = String::from(if is_program { "commands \n" } else { "nothing \n" });
    for candidate in complete(&mut command, line, words.len(), None)? {
        let value = candidate.get_value().to_string_lossy();
        if !is_program || command.find_subcommand(&*value).is_some() {
            let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
            out += &format!("{value}\t{}\n", help.lines().next().unwrap_or_default());
        }
    }
    Ok(stdout().write_all(out.as_bytes())?)
}
