//! Every bound of the protocol layer, with its unit.

/// Longest string the protocol allows: export names, descriptions, messages (bytes).
/// Section "Conventions".
pub const STRING_BYTES_MAX: usize = 4096;

/// Default for the longest payload of one read or write (bytes): the size every client may
/// assume when nothing was negotiated. Section "Size constraints".
pub const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 20;

/// Longest payload of a refused request that the server reads and throws away (bytes), so
/// that the connection goes on. A longer one ends the session.
pub const DRAIN_BYTES_MAX: u64 = 64 << 20;

/// Longest data of one option (bytes). Two full strings and a generous list of queries fit.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;

/// Most options a client may send in one handshake.
pub const OPTIONS_MAX: u32 = 256;

/// Most queries in one meta context option.
pub const QUERIES_MAX: u32 = 64;

/// Most meta contexts an export may offer, and a client may ask for.
pub const CONTEXTS_MAX: usize = 8;

/// Most exports a server may offer.
pub const EXPORTS_MAX: usize = 1024;

/// Largest minimum block size the protocol allows (bytes).
pub const MINIMUM_BLOCK_MAX: u32 = 64 << 10;

/// Most extents in one block status chunk the client accepts. Section
/// "Structured reply types", `NBD_REPLY_TYPE_BLOCK_STATUS`.
pub const STATUS_EXTENTS_MAX: u64 = 1 << 20;

/// Longest data of one option reply the client accepts (bytes).
pub const OPTION_REPLY_BYTES_MAX: u32 = 64 << 10;

/// Most replies to one option the client accepts.
pub const OPTION_REPLIES_MAX: u32 = 1024;

/// Most requests a client session keeps in flight.
pub const CLIENT_IN_FLIGHT_MAX: usize = 4096;

/// Most separate pieces of one read reply the client keeps account of. Pieces that adjoin
/// count as one, so a server that answers in order never comes near.
pub const READ_PIECES_MAX: usize = 8;

const _: () = assert!(PAYLOAD_BYTES_DEFAULT as u64 <= DRAIN_BYTES_MAX);
const _: () = assert!(OPTION_BYTES_MAX as usize >= 2 * STRING_BYTES_MAX);
const _: () = assert!(OPTION_REPLY_BYTES_MAX as usize >= 2 * STRING_BYTES_MAX);
const _: () = assert!(CONTEXTS_MAX <= 8, "a context set is an 8-bit mask");
