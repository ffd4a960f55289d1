//! Uses the packed crate: prints the bytes of one message.

use interlock_protos::bootstrap::v1::RoomAssignment;
use prost::Message as _;

fn main() {
    let assignment = RoomAssignment { room: u64::MAX, dp_rank: 7 };
    let hex: String = assignment.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{hex}");
}
