//! What this program makes of bytes, against `vectors/`: see its README for what each file says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use interlock_protos::bootstrap::v1::{ContractMismatch, RevisionConflict, Route};
use interlock_protos::preprocess::v1::PatchFrame;
use interlock_protos::preprocess::v1::patch_frame::Frame;
use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tonic::{Code, Status};
use tonic_types::pb;

use crate::patches::{self, Outcome, PatchReader, floats};
use crate::refusals::{detail_of, reason_of};

#[derive(Deserialize)]
struct Buffer {
    hex: String,
    values: Vec<f32>,
}

#[derive(Deserialize)]
struct Checksums {
    about: String,
    hex: String,
    sha256: String,
    crc32c: u32,
}

#[derive(Deserialize)]
struct Stream {
    frames: Vec<String>,
    pictures: BTreeMap<String, StreamedPicture>,
}

#[derive(Deserialize)]
struct StreamedPicture {
    patches: Option<StreamedPatches>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct StreamedPatches {
    hex: String,
    values: Vec<f32>,
    crc32c: u32,
}

#[derive(Deserialize)]
struct ReasonVector {
    reason: String,
    code: i32,
    code_name: String,
}

#[derive(Deserialize)]
struct ErrorVector {
    about: String,
    status: String,
    details: Vec<DetailVector>,
}

#[derive(Deserialize)]
struct DetailVector {
    r#type: String,
    json: Value,
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../vectors").join(name)
}

fn read<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_str(&fs::read_to_string(path(name)).expect(name)).expect(name)
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal")).collect()
}

/// Bits, so that -0 differs from 0.
fn bits(values: impl IntoIterator<Item = f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

fn frames_of(stream: &Stream) -> Vec<PatchFrame> {
    stream.frames.iter().map(|hex| PatchFrame::decode(&*bytes(hex)).expect("a frame")).collect()
}

#[test]
fn checksums() {
    for Checksums { about, hex, sha256, crc32c } in read::<Vec<Checksums>>("checksums.json") {
        let data = bytes(&hex);
        assert_eq!(crc32c::crc32c(&data), crc32c, "{about}");
        assert_eq!(patches::sha256(&data), sha256, "{about}");
    }
}

#[test]
fn bfloat16() {
    let buffers: BTreeMap<String, Buffer> = read("bf16.json");
    assert!(buffers.contains_key("levels") && buffers.contains_key("others"));
    for (name, Buffer { hex, values }) in buffers {
        assert_eq!(bits(floats(&bytes(&hex))), bits(values), "{name}");
    }
}

#[test]
fn each_picture_comes_out_of_interleaved_frames() {
    let stream: Stream = read("stream.json");
    let mut readers: BTreeMap<String, PatchReader> = BTreeMap::new();
    let mut outcomes = BTreeMap::new();
    for frame in frames_of(&stream) {
        let image_id = frame.image_id.clone();
        if let Some(outcome) = readers.entry(image_id.clone()).or_default().read(frame).expect("whole patches") {
            assert!(outcomes.insert(image_id, outcome).is_none());
        }
    }
    assert!(outcomes.keys().eq(stream.pictures.keys()));
    for (image_id, expected) in stream.pictures {
        match (&outcomes[&image_id], expected.patches, expected.error) {
            (Outcome::Patches(found), Some(due), None) => {
                assert_eq!(found.data, bytes(&due.hex), "{image_id}");
                assert_eq!(bits(floats(&found.data)), bits(due.values), "{image_id}");
                assert_eq!(found.crc32c, due.crc32c, "{image_id}");
            }
            (Outcome::Failed(found), None, Some(due)) => {
                assert_eq!((&found.reason, &found.field), (&text(&due["reason"]), &text(&due["field"])));
            }
            (found, _, _) => panic!("{image_id} came out as {found:?}"),
        }
    }
}

#[test]
fn a_chunk_that_is_missing_doubled_or_changed_is_found() {
    let stream: Stream = read("stream.json");
    let (image_id, _) = stream.pictures.iter().find(|(_, picture)| picture.patches.is_some()).expect("a whole one");
    let mut frames = frames_of(&stream);
    frames.retain(|frame| frame.image_id == *image_id);
    let chunk = frames.iter().position(|frame| matches!(frame.frame, Some(Frame::Chunk(_)))).expect("a chunk");

    let mut missing = frames.clone();
    missing.remove(chunk);
    let mut doubled = frames.clone();
    doubled.insert(chunk, frames[chunk].clone());
    let mut changed = frames.clone();
    if let Some(Frame::Chunk(chunk)) = &mut changed[chunk].frame {
        let mut data = chunk.data.to_vec();
        data[0] ^= 1;
        chunk.data = data.into();
    }
    let headless = frames[1..].to_vec();
    for damaged in [missing, doubled, changed, headless] {
        let mut reader = PatchReader::default();
        let read: Result<Vec<_>, _> = damaged.into_iter().map(|frame| reader.read(frame)).collect();
        assert!(read.is_err());
    }
    let mut reader = PatchReader::default();
    assert!(frames.into_iter().all(|frame| reader.read(frame).is_ok()));
}

#[test]
fn codes_have_the_names_that_they_have_here() {
    for ReasonVector { reason, code, code_name } in read::<Vec<ReasonVector>>("reasons.json") {
        let found = format!("{:?}", Code::from_i32(code)).to_uppercase();
        assert_eq!(found, code_name.replace('_', ""), "{reason}");
    }
}

#[test]
fn refusals() {
    let reasons: Vec<ReasonVector> = read("reasons.json");
    let codes: BTreeMap<_, _> = reasons.into_iter().map(|vector| (vector.reason, vector.code)).collect();
    let vectors: Vec<ErrorVector> = read("errors.json");
    let (mut conflicts, mut mismatches) = (0, 0);
    for ErrorVector { about, status, details } in vectors {
        let data = fs::read(path(&status)).expect(&status);
        let found = pb::Status::decode(&*data).expect("a status");
        let refusal = Status::with_details(Code::from_i32(found.code), found.message.clone(), data.into());
        for DetailVector { r#type, json } in details {
            match r#type.as_str() {
                "google.rpc.ErrorInfo" => {
                    let reason = text(&json["reason"]);
                    assert_eq!(codes[&reason], found.code, "{about}");
                    assert_eq!(reason_of(&refusal), Some(reason), "{about}");
                }
                "interlock.bootstrap.v1.RevisionConflict" => {
                    let conflict: RevisionConflict = detail_of(&refusal).expect("the detail");
                    assert_eq!(conflict.revision.to_string(), text(&json["revision"]), "{about}");
                    let Route { rank_ip, .. } = conflict.standing_route.expect("a standing route");
                    assert_eq!(rank_ip, text(&json["standingRoute"]["rankIp"]), "{about}");
                    conflicts += 1;
                }
                "interlock.bootstrap.v1.ContractMismatch" => {
                    let fields: Vec<_> = detail_of::<ContractMismatch>(&refusal)
                        .expect("the detail")
                        .mismatches
                        .into_iter()
                        .map(|mismatch| (mismatch.field, mismatch.standing_value, mismatch.offered_value))
                        .collect();
                    let due: Vec<_> = json["mismatches"]
                        .as_array()
                        .expect("mismatches")
                        .iter()
                        .map(|due| (text(&due["field"]), text(&due["standingValue"]), text(&due["offeredValue"])))
                        .collect();
                    assert_eq!(fields, due, "{about}");
                    mismatches += 1;
                }
                _ => {}
            }
        }
    }
    assert!(conflicts > 0 && mismatches > 0);
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
