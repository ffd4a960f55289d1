//! The client program: does its steps one after the other and says on stdout, in a JSON line each, how they went.

mod patches;
mod refusals;
mod steps;
mod story;
#[cfg(test)]
mod vectors;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::steps::{asking, pictures, registering, watching};
use crate::story::Story;

const STEPS: [&str; 10] =
    ["register", "race", "mismatch", "watch", "compatibility", "rooms", "picture", "neighbours", "cancel", "deadline"];

const EXIT_USAGE: u8 = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (story, steps) = match asked() {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("{error:#}");
            eprintln!(
                "usage: interlock-client --bootstrap HOST:PORT --preprocess HOST:PORT --pictures DIR [--only STEP,...]"
            );
            eprintln!("steps: {}", STEPS.join(", "));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let mut all_ok = true;
    for step in steps {
        let started = Instant::now();
        let outcome = act(&story, step).await;
        let seconds = started.elapsed().as_secs_f64();
        let ok = outcome.is_ok();
        let detail = outcome.unwrap_or_else(|error| format!("{error:#}"));
        say(&json!({"step": step, "ok": ok, "seconds": seconds, "detail": detail}));
        all_ok &= ok;
    }
    if all_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn act(story: &Story, step: &str) -> Result<String> {
    match step {
        "register" => registering::register(story).await,
        "race" => registering::race(story).await,
        "mismatch" => registering::mismatch(story).await,
        "watch" => watching::watch(story).await,
        "compatibility" => asking::compatibility(story).await,
        "rooms" => asking::rooms(story).await,
        "picture" => pictures::picture(story).await,
        "neighbours" => pictures::neighbours(story).await,
        "cancel" => pictures::cancel(story).await,
        "deadline" => asking::deadline(story).await,
        unknown => unreachable!("step {unknown}"),
    }
}

/// Writes one line. Rust's stdout is line-buffered, so whoever reads it has it at once.
fn say(line: &Value) {
    println!("{line}");
}

/// What the command line asks for.
fn asked() -> Result<(Story, Vec<&'static str>)> {
    let (mut bootstrap, mut preprocess, mut pictures, mut only) = (None, None, None, None);
    let mut arguments = env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let place = match flag.as_str() {
            "--bootstrap" => &mut bootstrap,
            "--preprocess" => &mut preprocess,
            "--pictures" => &mut pictures,
            "--only" => &mut only,
            unknown => anyhow::bail!("unknown flag {unknown}"),
        };
        *place = Some(arguments.next().with_context(|| format!("{flag} needs a value"))?);
    }
    let only = only.unwrap_or_else(|| STEPS.join(","));
    let only: Vec<&str> = only.split(',').collect();
    if let Some(unknown) = only.iter().find(|step| !STEPS.contains(step)) {
        anyhow::bail!("unknown step {unknown}");
    }
    let story = Story::new(
        &bootstrap.context("--bootstrap is missing")?,
        &preprocess.context("--preprocess is missing")?,
        pictures.context("--pictures is missing")?.into(),
    )?;
    let steps: Vec<&str> = STEPS.into_iter().filter(|step| only.contains(step)).collect();
    ensure!(!steps.is_empty(), "no steps");
    Ok((story, steps))
}
