//! Pictures: one by one, many on a stream, one that is damaged, one that is not wanted any more.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use interlock_protos::preprocess::v1::patch_frame::Frame;
use interlock_protos::preprocess::v1::preprocess_images_request::Step;
use interlock_protos::preprocess::v1::{
    ImageBegin, ImageCancel, ImageData, ImageEnd, PreprocessImageRequest, PreprocessImagesRequest, ProfileSelector,
    SourceKind, preprocess_image_request, profile_selector,
};
use serde::Deserialize;
use tokio::time::timeout;
use tonic::Code;

use crate::patches::{Outcome, PatchReader, floats, sha256};
use crate::story::Story;

/// A part of a picture on a stream. Small here, so that there are several; about 1 MiB is a good size.
const PART_BYTES: usize = 4096;

/// All the pictures of a stream take a fraction of it.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
struct Expected {
    pictures: Vec<ExpectedPicture>,
    damaged: Vec<DamagedPicture>,
}

#[derive(Deserialize)]
struct ExpectedPicture {
    file: String,
    profile: String,
    patches_sha256: String,
    crc32c: u32,
    grid_width: u32,
    grid_height: u32,
    first_values: Vec<f32>,
}

#[derive(Deserialize)]
struct DamagedPicture {
    file: String,
    reason: String,
}

impl Expected {
    fn read(folder: &Path) -> Result<Self> {
        let file = folder.join("expected.json");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Every picture of the folder gives the patches that the reference gives, byte for byte.
pub async fn picture(story: &Story) -> Result<String> {
    let pictures = Expected::read(&story.pictures)?.pictures;
    let mut bytes = 0;
    for picture in &pictures {
        let request = PreprocessImageRequest {
            image_id: picture.file.clone(),
            source: Some(preprocess_image_request::Source::Encoded(fs::read(story.pictures.join(&picture.file))?)),
            profile: Some(by_name(&picture.profile)),
            ..PreprocessImageRequest::default()
        };
        let mut frames = story.preprocess().preprocess_image(request).await?.into_inner();
        let mut reader = PatchReader::default();
        let mut outcome = None;
        while let Some(frame) = timeout(PATIENCE, frames.message()).await?? {
            ensure!(outcome.is_none(), "{} has a frame after its last", picture.file);
            outcome = reader.read(frame)?;
        }
        bytes += check(picture, outcome.as_ref())?;
    }
    Ok(format!("{} pictures, {bytes} bytes: CRC-32C, SHA-256 and first numbers are right", pictures.len()))
}

/// One damaged picture fails, with reason and field; those before and after it on the same stream are served.
pub async fn neighbours(story: &Story) -> Result<String> {
    let expected = Expected::read(&story.pictures)?;
    let ([before, after, ..], [damaged, ..]) = (&expected.pictures[..], &expected.damaged[..]) else {
        bail!("the folder has too few pictures")
    };
    let mut steps = steps_of(story, &before.file, Some(&before.profile))?;
    steps.extend(steps_of(story, &damaged.file, None)?);
    steps.extend(steps_of(story, &after.file, Some(&after.profile))?);
    let outcomes = outcomes_of(story, steps).await?;
    check(before, outcomes.get(&before.file))?;
    check(after, outcomes.get(&after.file))?;
    let Some(Outcome::Failed(error)) = outcomes.get(&damaged.file) else { bail!("{} did not fail", damaged.file) };
    ensure!(error.code == Code::InvalidArgument as u32, "{} failed with code {}", damaged.file, error.code);
    ensure!(error.reason == damaged.reason, "{} failed with {}, not {}", damaged.file, error.reason, damaged.reason);
    ensure!(!error.field.is_empty(), "the refusal of {} names no field", damaged.file);
    Ok(format!(
        "{} failed with {} in {}; {} and {} were served",
        damaged.file, error.reason, error.field, before.file, after.file
    ))
}

/// A picture is cancelled in the middle of its parts; the next one on the stream is served.
pub async fn cancel(story: &Story) -> Result<String> {
    let expected = Expected::read(&story.pictures)?;
    let [unwanted, wanted, ..] = &expected.pictures[..] else { bail!("the folder has too few pictures") };
    let mut steps = steps_of(story, &unwanted.file, Some(&unwanted.profile))?;
    ensure!(steps.len() > 2, "{} has no parts", unwanted.file);
    steps.truncate(2);
    steps.push(Step::Cancel(ImageCancel { image_id: unwanted.file.clone() }));
    steps.extend(steps_of(story, &wanted.file, Some(&wanted.profile))?);
    let outcomes = outcomes_of(story, steps).await?;
    check(wanted, outcomes.get(&wanted.file))?;
    let Some(Outcome::Failed(error)) = outcomes.get(&unwanted.file) else { bail!("{} was served", unwanted.file) };
    ensure!(error.reason == "CANCELLED", "{} ended with {}", unwanted.file, error.reason);
    Ok(format!("{} ended with CANCELLED, {} was served", unwanted.file, wanted.file))
}

fn by_name(profile: &str) -> ProfileSelector {
    ProfileSelector { profile: Some(profile_selector::Profile::Name(profile.into())) }
}

/// All that is sent of one picture.
fn steps_of(story: &Story, file: &str, profile: Option<&str>) -> Result<Vec<Step>> {
    let source = fs::read(story.pictures.join(file)).with_context(|| file.to_owned())?;
    let mut steps = vec![Step::Begin(ImageBegin {
        image_id: file.into(),
        kind: SourceKind::Encoded.into(),
        total_bytes: source.len() as u64,
        profile: profile.map(by_name),
        ..ImageBegin::default()
    })];
    let mut offset = 0;
    for part in source.chunks(PART_BYTES) {
        steps.push(Step::Data(ImageData { image_id: file.into(), offset, data: part.to_vec().into() }));
        offset += part.len() as u64;
    }
    steps.push(Step::End(ImageEnd { image_id: file.into() }));
    Ok(steps)
}

/// Sends the steps on one stream, and gives how each picture ended, by its id. Three small pictures are within any
/// credits; whoever sends many waits for `settings` first.
async fn outcomes_of(story: &Story, steps: Vec<Step>) -> Result<BTreeMap<String, Outcome>> {
    let requests = steps.into_iter().map(|step| PreprocessImagesRequest { step: Some(step) });
    let mut frames = story.preprocess().preprocess_images(tokio_stream::iter(requests)).await?.into_inner();
    let mut readers: BTreeMap<String, PatchReader> = BTreeMap::new();
    let mut outcomes = BTreeMap::new();
    while let Some(frame) = timeout(PATIENCE, frames.message()).await?? {
        if matches!(frame.frame, Some(Frame::Settings(_))) {
            continue;
        }
        let image_id = frame.image_id.clone(); // frames of different pictures may interleave
        if let Some(outcome) = readers.entry(image_id.clone()).or_default().read(frame)? {
            ensure!(outcomes.insert(image_id.clone(), outcome).is_none(), "{image_id} ended twice");
        }
    }
    Ok(outcomes)
}

/// The number of bytes of the patches, if they are what the reference gives for this picture.
fn check(expected: &ExpectedPicture, outcome: Option<&Outcome>) -> Result<usize> {
    let file = &expected.file;
    let patches = match outcome {
        Some(Outcome::Patches(patches)) => patches,
        Some(Outcome::Failed(error)) => bail!("{file} failed: {}", error.message),
        None => bail!("{file} has no last frame"),
    };
    let plan = patches.header.plan.unwrap_or_default();
    let grid = (plan.grid_width, plan.grid_height);
    ensure!(grid == (expected.grid_width, expected.grid_height), "{file} has a grid of {grid:?}");
    ensure!(patches.crc32c == expected.crc32c, "{file} has CRC-32C {}", patches.crc32c);
    let sha256 = sha256(&patches.data);
    ensure!(sha256 == expected.patches_sha256, "{file} has SHA-256 {sha256}");
    let first: Vec<f32> = floats(&patches.data).take(expected.first_values.len()).collect();
    ensure!(first == expected.first_values, "{file} begins with {first:?}");
    Ok(patches.data.len())
}
