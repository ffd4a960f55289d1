//! The stubs against `vectors/`, which every language reads: see its README for what each file says.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use interlock_protos::kv::v1::{PoolName, SpecLayout};
use interlock_protos::preprocess::v1::{self as preprocess, PlanImagesRequest, PlanImagesResponse};
use interlock_protos::{FILE_DESCRIPTOR_SET, bootstrap, kv};
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tonic_types::pb;

/// The contract, and the messages of google.rpc that refusals carry.
static CONTRACT: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the descriptors are whole"));

#[derive(Deserialize)]
struct MessageVector {
    about: String,
    r#type: String,
    hex: String,
    json: Value,
    #[serde(default)]
    also_hex: Vec<String>,
    #[serde(default)]
    also_json: Vec<String>,
    hex_without_unknown_fields: Option<String>,
}

#[derive(Deserialize)]
struct ValueVector {
    method: String,
    about: String,
    requests: Vec<RequestVector>,
}

#[derive(Deserialize)]
struct RequestVector {
    r#type: String,
    hex: String,
    json: Option<Value>,
}

#[derive(Deserialize)]
struct Pools {
    pools: Vec<PoolVector>,
    not_wire_names: Vec<String>,
}

#[derive(Deserialize)]
struct PoolVector {
    number: i32,
    enum_name: String,
    wire_name: String,
}

#[derive(Deserialize)]
struct Plans {
    plans: Vec<PlanVector>,
}

#[derive(Deserialize)]
struct PlanVector {
    width: u32,
    height: u32,
    plan: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ErrorVector {
    about: String,
    status: String,
    code: i32,
    message: String,
    details: Vec<DetailVector>,
}

#[derive(Deserialize)]
struct DetailVector {
    r#type: String,
    json: Value,
}

#[derive(Deserialize)]
struct DefaultVector {
    field: String,
    absent_means: Value,
}

#[derive(Deserialize)]
struct AddressVector {
    text: String,
    stored: Option<String>,
}

#[derive(Deserialize)]
struct ExtraJson {
    texts: Vec<ExtraJsonText>,
}

#[derive(Deserialize)]
struct ExtraJsonText {
    text: String,
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name)
}

fn read<T: DeserializeOwned>(name: &str) -> T {
    let text = fs::read_to_string(path(name)).expect(name);
    serde_json::from_str(&text).expect(name)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    assert!(digits.remainder().is_empty(), "{hex}");
    digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal")).collect()
}

fn descriptor(full_name: &str) -> MessageDescriptor {
    CONTRACT.get_message_by_name(full_name).expect(full_name)
}

/// Canonical JSON of a message's bytes, by way of the descriptors: prost itself has none.
fn json_of(full_name: &str, data: &[u8]) -> Value {
    DynamicMessage::decode(descriptor(full_name), data)
        .expect(full_name)
        .serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())
        .expect(full_name)
}

/// Bytes of a message's JSON, by way of the descriptors.
fn bytes_of(full_name: &str, json: &str) -> Vec<u8> {
    let mut reader = serde_json::Deserializer::from_str(json);
    DynamicMessage::deserialize(descriptor(full_name), &mut reader).expect(full_name).encode_to_vec()
}

/// Whether two JSON values are the same, where 1 and 1.0 are.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|twin| same(value, twin)))
        }
        _ => one == other,
    }
}

/// What a generated type makes of a message's bytes: read and written again.
type WrittenAgain = fn(&[u8]) -> Vec<u8>;

fn written_again<M: Message + Default>(data: &[u8]) -> Vec<u8> {
    M::decode(data).expect("a message of its type").encode_to_vec()
}

macro_rules! stubs {
    ($($module:path { $($message:ident),* $(,)? })*) => {
        BTreeMap::from([$($({
            use $module as package;
            (package::$message::full_name(), written_again::<package::$message> as WrittenAgain)
        }),*),*])
    };
}

static STUBS: LazyLock<BTreeMap<String, WrittenAgain>> = LazyLock::new(|| {
    stubs! {
        kv::v1 { StateItemLens, SpecLayout, SpecLayoutDeclaration }
        bootstrap::v1 { RankKey, ParallelSizes, Instance, Route, PrefillServerInfo, GroupState, Lease, RegisterRouteRequest, RegisterRouteResponse, DeregisterRouteRequest, DeregisterRouteResponse, LeaseRef, KeepAliveRequest, LeaseRenewal, KeepAliveResponse, GetPrefillServerInfoRequest, GetPrefillServerInfoResponse, GetRankInfoRequest, GetRankInfoResponse, ListGroupsRequest, ListGroupsResponse, WatchTopologyRequest, WatchTopologyResponse, TopologySnapshot, TopologyChange, TopologyEvent, EpochStarted, RouteRegistered, RouteRemoved, WatchProgress, DecodeServer, CheckCompatibilityRequest, Incompatibility, CheckCompatibilityResponse, ForceEpochRequest, ForceEpochResponse, RoomAssignment, RegisterDpRanksRequest, RegisterDpRanksResponse, QueryDpRanksRequest, QueryDpRanksResponse, WaitDpRanksRequest, WaitDpRanksResponse, RevisionConflict, ContractMismatch, FieldMismatch, StaleInstance, StaleIncarnation, NotReady }
        preprocess { VisionProfile, ProfileSelector, ImageSize, Plan, Rgb, DecodeOptions, PlanImagesRequest, PlanResult, PlanImagesResponse, RawRgb, SourceHash, RegionTarget, PreprocessImageRequest, ImageBegin, ImageData, ImageEnd, ImageCancel, PreprocessImagesRequest, PatchFrame, SourceNeeded, StreamSettings, PatchHeader, PatchChunk, PatchTrailer, ImageError, RegisterRegionRequest, RegisterRegionResponse, UnregisterRegionRequest, UnregisterRegionResponse, ListRegionsRequest, Region, ListRegionsResponse, ListProfilesRequest, NamedProfile, ListProfilesResponse }
    }
});

#[test]
fn every_message_has_a_stub_here_and_a_vector() {
    let vectors: Vec<MessageVector> = read("messages.json");
    for message in CONTRACT.all_messages() {
        let name = message.full_name();
        if name.starts_with("interlock.") && !message.is_map_entry() {
            assert!(STUBS.contains_key(name), "{name}");
            assert!(vectors.iter().any(|vector| vector.r#type == name), "{name}");
        }
    }
}

#[test]
fn messages() {
    let vectors: Vec<MessageVector> = read("messages.json");
    assert!(vectors.len() > 100);
    for MessageVector { about, r#type, hex, json, also_hex, also_json, hex_without_unknown_fields } in vectors {
        let written_again = STUBS[&r#type];
        let sent = bytes(&hex);
        let known = bytes(hex_without_unknown_fields.as_ref().unwrap_or(&hex));
        assert_eq!(written_again(&sent), known, "{type}: {about}");
        let written = json_of(&r#type, &sent);
        assert!(same(&written, &json), "{type}: {about}: {written}, not {json}");
        let read = bytes_of(&r#type, &json.to_string());
        assert_eq!(written_again(&read), known, "{type}: {about}: from JSON");
        for also in also_hex {
            assert_eq!(written_again(&bytes(&also)), known, "{type}: {about}: {also}");
        }
        for also in also_json {
            assert_eq!(written_again(&bytes_of(&r#type, &also)), known, "{type}: {about}: {also}");
        }
    }
}

#[test]
fn values_have_the_bytes_of_their_json() {
    let vectors: Vec<ValueVector> = read("values.json");
    let mut compared = 0;
    for ValueVector { method, about, requests } in vectors {
        for RequestVector { r#type, hex, json } in requests {
            let Some(json) = json else { continue };
            let written_again = STUBS[&r#type];
            let sent = written_again(&bytes(&hex));
            assert!(same(&json_of(&r#type, &sent), &json), "{method}: {about}");
            assert_eq!(written_again(&bytes_of(&r#type, &json.to_string())), sent, "{method}: {about}: from JSON");
            compared += 1;
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn wire_names_of_pools_follow_from_the_names_of_the_enum() {
    fn enum_name(wire_name: &str) -> String {
        format!("POOL_NAME_{}", wire_name.to_ascii_uppercase())
    }
    let Pools { pools, not_wire_names } = read("pool_names.json");
    for pool in &pools {
        let found = PoolName::try_from(pool.number).expect(&pool.enum_name);
        assert_eq!(found.as_str_name(), pool.enum_name);
        assert_eq!(PoolName::from_str_name(&enum_name(&pool.wire_name)), Some(found));
    }
    let next = pools.iter().map(|pool| pool.number).max().expect("pools") + 1;
    assert!(PoolName::try_from(next).is_err(), "a pool without a vector");
    for text in not_wire_names {
        let found = PoolName::from_str_name(&enum_name(&text));
        let taken = found.filter(|found| *found != PoolName::Unspecified && text == text.to_ascii_lowercase());
        assert_eq!(taken, None, "{text}");
    }
}

#[test]
fn plans() {
    for name in ["deepseek-v4.1", "deepseek-v4-flash-vision-exp"] {
        let Plans { plans } = read(&format!("plans/{name}.json"));
        let file = |what: &str| fs::read(path(&format!("plans/{name}.{what}.bin"))).expect(what);
        let request = PlanImagesRequest::decode(&*file("request")).expect("a request");
        let response = PlanImagesResponse::decode(&*file("response")).expect("a response");
        assert_eq!((plans.len(), request.sizes.len(), response.results.len()), (200, 200, 200));
        for ((expected, size), answer) in plans.iter().zip(&request.sizes).zip(&response.results) {
            assert_eq!((size.width, size.height), (expected.width, expected.height));
            match answer.result.as_ref().expect("a plan or an error") {
                preprocess::plan_result::Result::Plan(plan) => {
                    let json = json_of(&preprocess::Plan::full_name(), &plan.encode_to_vec());
                    assert_eq!(Some(&json), expected.plan.as_ref());
                }
                preprocess::plan_result::Result::Error(error) => {
                    let json = json_of(&preprocess::ImageError::full_name(), &error.encode_to_vec());
                    assert_eq!(Some(&json["reason"]), expected.error.as_ref().map(|error| &error["reason"]));
                }
            }
        }
    }
}

#[test]
fn errors() {
    for ErrorVector { about, status, code, message, details } in read::<Vec<ErrorVector>>("errors.json") {
        let found = pb::Status::decode(&*fs::read(path(&status)).expect(&status)).expect("a status");
        assert_eq!((found.code, found.message), (code, message), "{about}");
        assert_eq!(found.details.len(), details.len(), "{about}");
        for (any, expected) in found.details.iter().zip(details) {
            assert_eq!(any.type_url, format!("type.googleapis.com/{}", expected.r#type));
            let json = match expected.r#type.as_str() {
                "google.rpc.ErrorInfo" => {
                    let info = pb::ErrorInfo::decode(&*any.value).expect("an ErrorInfo");
                    assert_eq!(info.domain, "interlock");
                    assert_eq!(info.reason, expected.json["reason"].as_str().expect("a reason"));
                    continue;
                }
                "google.rpc.BadRequest" => {
                    let found = pb::BadRequest::decode(&*any.value).expect("a BadRequest").field_violations;
                    let fields: Vec<_> = found.into_iter().map(|violation| Value::from(violation.field)).collect();
                    let due = expected.json["fieldViolations"].as_array().expect("violations");
                    assert_eq!(fields, due.iter().map(|due| due["field"].clone()).collect::<Vec<_>>());
                    continue;
                }
                "google.rpc.RetryInfo" => {
                    let delay = pb::RetryInfo::decode(&*any.value).expect("a RetryInfo").retry_delay;
                    assert_eq!(delay.expect("a delay").to_string(), expected.json["retryDelay"].as_str().expect("one"));
                    continue;
                }
                own => json_of(own, &any.value),
            };
            assert_eq!(json, expected.json, "{about}");
        }
    }
}

#[test]
fn what_an_absent_field_means_can_be_said() {
    let vectors: Vec<DefaultVector> = read("defaults.json");
    assert!(!vectors.is_empty());
    for DefaultVector { field, absent_means } in vectors {
        let (message, name) = field.rsplit_once('.').expect("a field of a message");
        let said = serde_json::json!({ name: absent_means });
        bytes_of(message, &said.to_string()); // refuses a field that is not there
    }
}

/// What a server stores is the address that was offered: `std` reads both as one, where it reads them at all.
#[test]
fn an_address_is_stored_as_the_one_it_is() {
    let address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().map(|address| address.to_canonical());
    let vectors: Vec<AddressVector> = read("addresses.json");
    let literals = vectors.iter().filter_map(|AddressVector { text, stored }| {
        let stored = stored.as_deref()?; // else it is refused
        Some((address(text).ok()?, stored)) // else it is a host name
    });
    let mut count = 0;
    for (offered, stored) in literals {
        assert_eq!(address(stored), Ok(offered), "{stored}");
        count += 1;
    }
    assert!(count > 10);
}

#[test]
fn texts_of_extra_json_are_kept_as_they_are() {
    let ExtraJson { texts } = read("extra_json.json");
    let extra_json = texts.into_iter().enumerate().map(|(index, ExtraJsonText { text })| (format!("key{index}"), text));
    let layout = SpecLayout { extra_json: extra_json.collect(), ..SpecLayout::default() };
    let again = SpecLayout::decode(&*layout.encode_to_vec()).expect("a layout");
    assert_eq!(again, layout);
}
